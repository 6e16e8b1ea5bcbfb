"""From block rows to one verdict per segment, with its evidence and the missing evidence.

Every speedup is a contrast of blocks. Requests of one batch are never compared, because such a
contrast cannot show the cost of speculation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from specscope.evaluate.causes.epoch_traffic import EpochTraffic
from specscope.evaluate.causes.search import find_causes
from specscope.evaluate.costs.machine import Machine
from specscope.evaluate.experiment import checks, objectives
from specscope.evaluate.experiment.backlog import find_backlog
from specscope.evaluate.experiment.blocks import BlockPart, BlockTime, Design, arm_k
from specscope.evaluate.experiment.compliance import ShortArm
from specscope.evaluate.experiment.loads import Group, turning
from specscope.evaluate.experiment.measures import Measure
from specscope.evaluate.experiment.objectives import Objective
from specscope.evaluate.experiment.offered import offered_to
from specscope.evaluate.experiment.paired import Paired, paired
from specscope.evaluate.experiment.pairs import Pair
from specscope.evaluate.experiment.segments import Segment
from specscope.evaluate.experiment.summary import base_batch, summarise
from specscope.evaluate.outputs.copies import OutputCheck, changed_outputs
from specscope.evaluate.outputs.states import DIFFERS, UNDECIDED
from specscope.evaluate.statistics.multiplicity import bonferroni
from specscope.evaluate.verdict.allowance import keep_to_allowance
from specscope.evaluate.verdict.choice import Choice, Rules, choose
from specscope.evaluate.verdict.comparisons import Comparisons, Estimates, compare, hold
from specscope.evaluate.verdict.enough import lacking, pairs_needed
from specscope.evaluate.verdict.flags import find_flags, overruled
from specscope.evaluate.verdict.reasons import of_cause, of_outputs, reasons_of
from specscope.evaluate.verdict.tradeoffs import reasons_of_tradeoffs, tradeoffs_of
from specscope.evaluate.verdict.verdict import (
    Confidence,
    Flag,
    Grade,
    Reason,
    Verdict,
    Why,
    because,
)


def decide(
    blocks: Iterable[BlockTime],
    parts: Iterable[BlockPart],
    rules: Rules | None = None,
    design: Design = "cohort",
    machines: Mapping[str, Machine] | None = None,
    outputs: Sequence[OutputCheck] = (),
) -> list[Verdict]:
    """`judge` for rows. The order of rows does not matter; a repeated row counts once."""
    return judge(paired(blocks, parts, design), rules, machines, outputs)


def judge(
    experiment: Paired,
    rules: Rules | None = None,
    machines: Mapping[str, Machine] | None = None,
    outputs: Sequence[OutputCheck] = (),
    *,
    causes: bool = True,
) -> list[Verdict]:
    """One verdict for every segment of every epoch; none without blocks.

    The error rate of `rules` holds jointly over all segments and arms: for speedups, for
    comparisons between arms, and for latencies against limits. machines: by epoch, for causes that
    need a model card or a device's peaks. outputs: an arm that changes outputs is a fault, whatever
    its speedup. causes: whether to diagnose losses, which takes most of the time and changes no
    action.
    """
    rules = rules or Rules()
    design, usable = experiment.design, experiment.usable
    offered = offered_to(experiment.pairs) if design == "switchback" else None
    objective = {
        name: rules.objective or objectives.objective_for(design, _blocks(u.pairs))
        for name, u in usable.items()
    }
    compared = {
        name: compare(
            u.pairs, Measure(objective[name], offered, design != "cohort"), rules.looked_at_often
        )
        for name, u in usable.items()
    }
    held = hold(compared, rules.level)
    allowed = sum(
        len(_all_arms(u.pairs))
        for (_, segment), u in usable.items()
        if rules.allowance(segment.class_) is not None
    )
    verdicts = [
        _verdict(
            *name,
            usable[name],
            compared[name],
            held[name],
            rules,
            bonferroni(rules.level, max(1, allowed)),
            design,
            objective[name],
            changed_outputs(outputs, *name),
        )
        for name in sorted(usable, key=_order)
    ]
    verdicts = _with_crossings(verdicts, usable, objective)
    if not causes:
        return verdicts
    return [
        _with_causes(
            verdict,
            usable[verdict.epoch, verdict.segment].pairs,
            objective[verdict.epoch, verdict.segment],
            traffic,
            (machines or {}).get(verdict.epoch),
        )
        for traffic in (_traffic_by_epoch(verdicts, usable),)
        for verdict in verdicts
    ]


def _verdict(
    epoch: str,
    segment: Segment,
    usable: checks.Usable,
    compared: Comparisons,
    held: Estimates,
    rules: Rules,
    p95_level: float,
    design: Design,
    objective: Objective,
    changed: Sequence[OutputCheck],
) -> Verdict:
    pairs = usable.pairs
    summaries = (
        summarise(pairs, arm, p95_level, rules.looked_at_often) for arm in _all_arms(pairs)
    )
    arms = [one for one in summaries if one]
    current = rules.current_k(segment, base_batch(arms))
    choice = choose(held, rules, current)
    allowance = rules.allowance(segment.class_)
    choice = keep_to_allowance(choice, arms, allowance)
    level = min((one.level for one in held.speedups), default=rules.level)
    seen = find_flags(pairs, compared.arms, design, level, rules.looked_at_often)
    if usable.short and not choice.speedups:
        seen.add(Flag.NOT_DRAFTED)
    if any(check.state == DIFFERS and check.arm == choice.arm for check in changed):
        seen.add(Flag.OUTPUTS_DIFFER)
    flags = tuple(sorted(seen))
    count = max((e.pairs for e in choice.speedups), default=0)
    grade = Grade.MEASURED if count >= 2 and not flags else Grade.NONE
    thin = lacking(pairs, choice, rules)
    if any(check.state == UNDECIDED and check.arm == choice.arm for check in changed):
        thin.append(because(Why.THIN_OUTPUTS, choice.arm))
    action = overruled(choice.action, flags)
    decided = action is choice.action and action.settles
    needed = pairs_needed(compared, choice, rules, decided, current)
    sure = Confidence.LOW if thin or grade is Grade.NONE else Confidence.HIGH
    verdict = Verdict(
        epoch=epoch,
        segment=segment,
        action=action,
        k=choice.k if decided else None,
        arm=choice.arm if decided else None,
        grade=grade,
        confidence=sure if decided else Confidence.NONE,
        current=current,
        tradeoffs=tuple(
            tradeoffs_of(pairs, arms, level, rules.looked_at_often, objective=objective)
        ),
        speedups=choice.speedups,
        metric=objectives.metric_of(objective),
        arms=tuple(arms),
        best=choice.best,
        pairs=count,
        pairs_needed=needed if needed > count else None,
        flags=flags,
        left_out=tuple(sorted(usable.left_out.items())),
        between=held.between,
    )
    backlogs = _backlogs(pairs, compared.arms) if design == "switchback" else []
    return _with_reasons(verdict, choice, thin, rules, allowance, changed, usable.short, backlogs)


def _with_crossings(
    verdicts: Sequence[Verdict],
    usable: Mapping[tuple[str, Segment], checks.Usable],
    objective: Mapping[tuple[str, Segment], Objective],
) -> list[Verdict]:
    """Add to the verdicts of one kind of traffic the load at which an arm's effect changes its
    sign."""
    kinds: dict[tuple[object, ...], list[Group]] = defaultdict(list)
    for name, used in usable.items():
        epoch, segment = name
        kind = epoch, segment.class_, segment.context, segment.output
        kinds[kind].append((used.pairs, objective[name]))
    reasons = {kind: _crossings(groups) for kind, groups in kinds.items()}
    return [
        replace(one, reasons=(*one.reasons, *reasons[one.epoch, s.class_, s.context, s.output]))
        for one in verdicts
        for s in (one.segment,)
    ]


def _crossings(groups: Sequence[Group]) -> list[Reason]:
    reasons = []
    for line in turning(groups):
        low, high = line.crossing_interval()
        falls = line.slope < 0.0
        reasons.append(
            because(Why.CROSSING, line.arm, load=line.crossing, low=low, high=high, falls=falls)
        )
    return reasons


def _backlogs(pairs: Sequence[Pair], arms: Sequence[str]) -> list[Reason]:
    backlogs = (find_backlog(pairs, arm) for arm in arms)
    return [
        because(Why.BACKLOG, one.arm, share=one.share, capacity=one.capacity, capacity_low=one.low)
        for one in backlogs
        if one is not None
    ]


def _with_reasons(
    verdict: Verdict,
    choice: Choice,
    thin: Sequence[Reason],
    rules: Rules,
    allowance: float | None,
    changed: Sequence[OutputCheck],
    short: Sequence[ShortArm],
    backlogs: Sequence[Reason],
) -> Verdict:
    reasons = reasons_of(
        action=verdict.action,
        choice=choice,
        arms=verdict.arms,
        thin=thin,
        pairs_needed=verdict.pairs_needed,
        left_out=verdict.left_out,
        effect=rules.smallest_effect,
        allowance_ms=allowance,
        metric=verdict.metric,
    )
    outputs = [of_outputs(check) for check in changed if check.state in (DIFFERS, UNDECIDED)]
    drafted = [because(Why.DRAFTED_LESS, s.arm, drafted=s.drafted, k=s.k) for s in short]
    worse = reasons_of_tradeoffs(verdict.tradeoffs)
    return replace(verdict, reasons=(*outputs, *drafted, *reasons, *worse, *backlogs))


def _traffic_by_epoch(
    verdicts: Sequence[Verdict], usable: Mapping[tuple[str, Segment], checks.Usable]
) -> dict[str, EpochTraffic]:
    """All traffic of each epoch, the earliest epoch first."""
    traffic: dict[str, EpochTraffic] = defaultdict(EpochTraffic)
    for one in verdicts:
        traffic[one.epoch].add(one.segment, usable[one.epoch, one.segment].pairs, one.arms)
    return dict(sorted(traffic.items(), key=lambda item: item[1].began))


def _with_causes(
    verdict: Verdict,
    pairs: Sequence[Pair],
    objective: Objective,
    traffic: Mapping[str, EpochTraffic],
    machine: Machine | None,
) -> Verdict:
    epochs = list(traffic)
    place = epochs.index(verdict.epoch)
    diagnoses = find_causes(
        verdict.segment,
        pairs,
        verdict.arms,
        verdict.flags,
        traffic[verdict.epoch],
        machine,
        objective=objective,
        earlier=traffic[epochs[place - 1]] if place else None,
    )
    if any(e.wins for e in verdict.speedups) or not any(e.loses for e in verdict.speedups):
        return replace(verdict, diagnoses=diagnoses)
    nearest = max(verdict.speedups, key=lambda e: e.value).arm
    diagnosis = next((d for d in diagnoses if d.arm == nearest), None)
    cause = None if diagnosis is None else of_cause(diagnosis)
    if diagnosis is None or cause is None:
        return replace(verdict, diagnoses=diagnoses)
    return replace(
        verdict,
        diagnoses=diagnoses,
        primary=diagnosis.primary,
        cause_odds=diagnosis.cause_odds,
        reasons=(*verdict.reasons, cause),
    )


def _blocks(pairs: Sequence[Pair]) -> list[BlockTime]:
    return [block for pair in pairs for block in pair.blocks.values()]


def _all_arms(pairs: Sequence[Pair]) -> list[str]:
    names = {arm for pair in pairs for arm in pair.blocks}
    return sorted(names, key=lambda arm: (arm_k(arm) is None, arm_k(arm) or 0, arm))


def _order(key: tuple[str, Segment]) -> tuple[str, ...]:
    epoch, segment = key
    return (
        epoch,
        segment.class_ or "",
        segment.context or "",
        segment.output or "",
        f"{len(segment.load or ''):02}{segment.load or ''}",
    )
