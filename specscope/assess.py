"""Judge a store's evidence once, so that every screen shows the same `Assessment`.

This is the only caller of the judge. The report, the gate, the dashboards, the demo and the
terminal show what `assess` returns and decide nothing by themselves.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol, TypeVar

from specscope.evaluate.causes.diagnosis import CauseOdds
from specscope.evaluate.experiment.blocks import BASELINE, Design
from specscope.evaluate.experiment.estimate import Estimate
from specscope.evaluate.experiment.paired import Paired, paired
from specscope.evaluate.experiment.segments import Segment
from specscope.evaluate.outputs.copies import OutputCheck
from specscope.evaluate.verdict import words
from specscope.evaluate.verdict.choice import Rules
from specscope.evaluate.verdict.crossover import judge_crossovers
from specscope.evaluate.verdict.decide import judge
from specscope.evaluate.verdict.fleet import FleetVerdict, fleet_verdict
from specscope.evaluate.verdict.shared_batch import (
    ClassDelay,
    ClassTimes,
    class_times,
    judge_delays,
)
from specscope.evaluate.verdict.strata import FleetRatio, over_the_fleet
from specscope.evaluate.verdict.switch import SwitchComparison, compare_switches
from specscope.evaluate.verdict.untried import Untried, untried
from specscope.evaluate.verdict.verdict import Verdict
from specscope.evidence.read import Evidence, Experiment
from specscope.evidence.tables import reaches_back, tables_of_arms
from specscope.policy.stored import unread
from specscope.policy.table import GateTable, State, range_of
from specscope.store.buckets import CONTEXT, OUTPUT

MIXED, UNKNOWN = "mixed", "unknown"


@dataclass(frozen=True, slots=True)
class JudgedExperiment:
    """One kind of experiment with its verdicts.

    paired: the judged blocks. begun: begins of the pairs with a target-only block, by epoch and
    segment, ns since 1970. policies: the newest policy, by epoch. blocks: number of blocks, by
    epoch. tables: tables of the arms, by epoch and arm.
    """

    kind: str
    design: Design
    verdicts: tuple[Verdict, ...]
    stories: tuple[SwitchComparison, ...] = ()
    untried: tuple[Untried, ...] = ()
    paired: Paired | None = None
    begun: Mapping[tuple[str, Segment], tuple[int, ...]] = field(default_factory=dict)
    policies: Mapping[str, int] = field(default_factory=dict)
    blocks: Mapping[str, int] = field(default_factory=dict)
    tables: Mapping[tuple[str, str], GateTable] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SegmentAnswer:
    """The answer on one segment, with the names that all screens use.

    arm: the arm to run; None without one. current: the draft length in force; None if unknown.
    primary: the cause of the smallest loss; None if speculation pays, or if several causes compete.
    cause_odds: all competing causes.
    """

    epoch: str
    label: str
    context: str
    output: str
    load: str
    action: str
    k: int | None
    arm: str | None
    grade: str
    confidence: str
    current: int | None
    pairs: int
    pairs_needed: int | None
    primary: str | None
    cause_odds: tuple[CauseOdds, ...]


@dataclass(frozen=True, slots=True)
class Assessment:
    """All judgements from one reading of the evidence.

    table: the table in force; None if unknown. epochs: epochs, the latest last. delays: verdicts on
    classes with a latency limit, in batches shared under the table in force; class_times: times of
    all classes there. ratios: ratios of arms over all segments. of_hour: price per replica hour, by
    epoch.
    """

    table: GateTable | None
    epochs: tuple[str, ...]
    experiments: tuple[JudgedExperiment, ...]
    crossovers: tuple[Verdict, ...]
    fleet: FleetVerdict
    ratios: tuple[FleetRatio, ...]
    delays: tuple[ClassDelay, ...]
    class_times: tuple[ClassTimes, ...]
    outputs: tuple[OutputCheck, ...]
    of_hour: Mapping[str, float]
    allowances: Mapping[str, float]
    notes: tuple[str, ...]

    @property
    def verdicts(self) -> list[Verdict]:
        """One verdict per segment: of every experiment, then of crossovers by router."""
        judged = [verdict for one in self.experiments for verdict in one.verdicts]
        return [*judged, *self.crossovers]

    @property
    def by_design(self) -> list[tuple[Verdict, str]]:
        """Each verdict with the kind of its experiment, in the order of `verdicts`."""
        judged = [(verdict, one.kind) for one in self.experiments for verdict in one.verdicts]
        return [*judged, *((verdict, "crossover") for verdict in self.crossovers)]

    @property
    def stories(self) -> list[SwitchComparison]:
        """Comparisons of one switch for all traffic with a gate, at each load."""
        return [story for one in self.experiments for story in one.stories]

    @property
    def untried(self) -> list[Untried]:
        """Draft lengths that no arm ran; they are never recommended."""
        return [length for one in self.experiments for length in one.untried]

    @property
    def segments(self) -> list[SegmentAnswer]:
        """The answer for each segment, in the order of `verdicts`."""
        return [answer(verdict) for verdict in self.verdicts]

    def newest(self, epoch: str) -> JudgedExperiment | None:
        """The experiment with the newest policy that ran blocks in an epoch."""
        ran = [one for one in self.experiments if epoch in one.policies]
        return max(ran, key=lambda one: one.policies[epoch], default=None)


def assess(
    evidence: Evidence,
    table: GateTable | None = None,
    allowances: Mapping[str, float] | None = None,
    *,
    closed_loop: bool = False,
    rules: Rules | None = None,
    explained: bool = True,
) -> Assessment:
    """Judge evidence under the table in force.

    allowances: limits of the 95th percentile of time per output token by class [ms]; the limits in
    the table's cells apply too. closed_loop: in every experiment the clients wait for their
    answers; otherwise each policy decides. explained: include causes of losses and the comparison
    of switch and gate, which take most of the time and change no verdict.
    """
    allowed = {**_allowances_of(table), **(allowances or {})}
    rules = rules or Rules()
    if allowed:
        rules = replace(rules, tpot_allowance_ms={**(rules.tpot_allowance_ms or {}), **allowed})
    if table is not None:
        rules = replace(rules, current=lambda segment, batch: table.k(state_of(segment, batch)))
    experiments = tuple(
        _judged(evidence, one, rules, closed_loop, explained) for one in evidence.experiments
    )
    crossovers = tuple(
        one.verdict for one in judge_crossovers(evidence.crossings, rules, closed_loop=closed_loop)
    )
    verdicts = [*(verdict for one in experiments for verdict in one.verdicts), *crossovers]
    every = [*evidence.blocks, *(b for one in evidence.crossings for b in one.blocks)]
    often = any(one.looked_at_often for one in evidence.experiments)
    return Assessment(
        table=table,
        epochs=evidence.epochs,
        experiments=experiments,
        crossovers=crossovers,
        fleet=fleet_verdict(verdicts),
        ratios=tuple(over_the_fleet(verdicts)),
        delays=tuple(judge_delays(evidence.classes, replace(rules, looked_at_often=often))),
        class_times=tuple(class_times(evidence.classes, replace(rules, looked_at_often=often))),
        outputs=(
            *evidence.outputs,
            *(check for crossing in evidence.crossings for check in crossing.outputs),
        ),
        of_hour=evidence.of_hour,
        allowances=rules.tpot_allowance_ms or {},
        notes=(
            *reaches_back(every, evidence.since),
            *unread(evidence.policies),
            *_never_served(evidence, allowed),
        ),
    )


def assess_in_force(
    evidence: Evidence,
    default_k: int | None = None,
    allowances: Mapping[str, float] | None = None,
    *,
    closed_loop: bool = False,
    explained: bool = True,
) -> Assessment:
    """Judge evidence under the table in force, or under default_k if no table is."""
    table = evidence.table
    if table is None and default_k is not None:
        table = GateTable((), default_k)
    return assess(evidence, table, allowances, closed_loop=closed_loop, explained=explained)


def state_of(segment: Segment, batch: float) -> State:
    """A typical state of a segment, to look up in a table. batch: mean sequences per round."""
    context, output = range_of(CONTEXT, segment.context), range_of(OUTPUT, segment.output)
    return State(
        class_=segment.class_ or "",
        context=context[0] if context else 0,
        output=output[0] if output else 0,
        batch=max(1, round(batch)),
    )


def answer(verdict: Verdict) -> SegmentAnswer:
    """The answer for one segment."""
    return SegmentAnswer(
        epoch=verdict.epoch,
        label=verdict.segment.class_ or MIXED,
        context=verdict.segment.context or MIXED,
        output=verdict.segment.output or MIXED,
        load=verdict.segment.load or UNKNOWN,
        action=verdict.action,
        k=verdict.k,
        arm=verdict.arm,
        grade=verdict.grade,
        confidence=verdict.confidence,
        current=verdict.current,
        pairs=verdict.pairs,
        pairs_needed=verdict.pairs_needed,
        primary=verdict.primary,
        cause_odds=verdict.cause_odds,
    )


class OfArm(Protocol):
    """One arm's speedup, diagnosis and other results."""

    @property
    def arm(self) -> str: ...

    @property
    def k(self) -> int | None: ...


T = TypeVar("T", bound=OfArm)


def deciding(verdict: Verdict) -> Estimate | None:
    """The deciding speedup of a verdict."""
    return decisive(verdict.speedups, verdict.arm, verdict.k, lambda one: one.value)


def decisive(
    arms: Sequence[T], chosen: str | None, k: int | None, speedup: Callable[[T], float]
) -> T | None:
    """The results of a verdict's arm: the chosen one, else the best that ran. chosen, k: from the
    verdict."""
    named = [one for one in arms if one.arm == chosen or (k and one.k == k)]
    return max(named or arms, key=speedup, default=None)


def verdict_row(verdict: Verdict, design: str) -> dict[str, Any]:
    """The columns of `assessment` from a verdict."""
    one, segment = deciding(verdict), verdict.segment
    return {
        "epoch": verdict.epoch,
        "design": design,
        "class": segment.class_ or "",
        "context": segment.context or "",
        "output": segment.output or "",
        "load": segment.load or "",
        "action": verdict.action,
        "k": verdict.k,
        "arm": one.arm if one else None,
        "baseline": one.baseline if one else None,
        "grade": verdict.grade,
        "confidence": verdict.confidence,
        "metric": verdict.metric or None,
        "speedup": one.value if one else None,
        "low": one.low if one else None,
        "high": one.high if one else None,
        "pairs": verdict.pairs,
        "pairs_needed": verdict.pairs_needed,
        "cause": ", ".join(one.cause for one in verdict.cause_odds) or None,
        "body": json.dumps(
            {
                "segment": asdict(answer(verdict)),
                "flags": list(verdict.flags),
                "reasons": [words.reason_json(reason) for reason in verdict.reasons],
                "tradeoffs": [asdict(tradeoff) for tradeoff in verdict.tradeoffs],
            }
        ),
    }


def segments_json(assessment: Assessment) -> list[dict[str, Any]]:
    """The segments as plain values."""
    return [asdict(segment) for segment in assessment.segments]


def _judged(
    evidence: Evidence, experiment: Experiment, rules: Rules, closed_loop: bool, explained: bool
) -> JudgedExperiment:
    design: Design = "closed_loop" if closed_loop else experiment.design
    often = rules.looked_at_often or experiment.looked_at_often
    looked = replace(rules, looked_at_often=often)
    pairs = paired(experiment.blocks, evidence.parts, design)
    verdicts = judge(pairs, looked, evidence.machines, evidence.outputs, causes=explained)
    newest: dict[str, int] = {}
    for block in experiment.blocks:
        newest[block.epoch] = max(block.policy, newest.get(block.epoch, 0))
    return JudgedExperiment(
        kind=experiment.kind,
        design=design,
        verdicts=tuple(verdicts),
        stories=tuple(compare_switches(pairs, looked)) if explained else (),
        untried=tuple(untried(pairs, verdicts)),
        paired=pairs,
        begun={
            key: tuple(
                min(block.first_at for block in pair.blocks.values())
                for pair in usable.pairs
                if BASELINE in pair.blocks
            )
            for key, usable in pairs.usable.items()
        },
        policies=newest,
        blocks=Counter(block.epoch for block in experiment.blocks),
        tables=tables_of_arms(
            experiment.blocks, {policy.number: policy.body for policy in evidence.policies}
        ),
    )


def _allowances_of(table: GateTable | None) -> dict[str, float]:
    """The latency limits of classes in a table's cells."""
    return {
        cell.class_: cell.basis.tpot_ms
        for cell in (table.cells if table else ())
        if cell.class_ is not None and cell.basis is not None and cell.basis.tpot_ms is not None
    }


def _never_served(evidence: Evidence, allowances: Mapping[str, float]) -> list[str]:
    """A note for each limit of a class that no block served, such as a misspelt class."""
    served = {name for block in evidence.blocks for name in block.classes}
    served |= {row.class_ for row in evidence.classes}
    return [
        f"nothing was compared with the latency limit of {name}: no block served that class"
        for name in sorted(set(allowances) - served)
    ]
