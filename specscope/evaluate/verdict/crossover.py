"""The verdict of a crossover by router on the configurations of its sides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from specscope.evaluate.experiment import objectives
from specscope.evaluate.experiment.blocks import BASELINE, BlockTime, Design, LeftOut
from specscope.evaluate.experiment.crossover import (
    CLEAN,
    Crossover,
    Side,
    SwapPair,
    crossover,
    deploys_of,
    kind_of,
    swap_pairs,
)
from specscope.evaluate.experiment.estimate import Estimate
from specscope.evaluate.experiment.pairs import Pair
from specscope.evaluate.experiment.segments import Mix, Segment, segments_of
from specscope.evaluate.experiment.summary import ArmSummary, summarise
from specscope.evaluate.outputs.copies import OutputCheck
from specscope.evaluate.outputs.states import DIFFERS, UNDECIDED
from specscope.evaluate.statistics.multiplicity import bonferroni
from specscope.evaluate.verdict.choice import Rules
from specscope.evaluate.verdict.flags import overruled
from specscope.evaluate.verdict.reasons import of_outputs
from specscope.evaluate.verdict.side_checks import lacking, side_flags
from specscope.evaluate.verdict.tradeoffs import cache_lost, reasons_of_tradeoffs, tradeoffs_of
from specscope.evaluate.verdict.verdict import (
    Action,
    Confidence,
    Grade,
    Reason,
    Tradeoff,
    Verdict,
    Why,
    because,
)

Boots = Mapping[tuple[str, str], str]
"""What each (replica, boot) ran."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """A crossover of two sides on one kind of engine, over all policies that ran it.

    blocks: blocks, whose arm is the name of their replica's configuration. ran: configuration by
    replica and boot. outputs: comparison of the configurations' outputs. ambiguous: names that
    cover two configurations, with these; their blocks are void. undeclared: differing parts of the
    configuration that nobody declared, with their values; then all blocks are void. cache: capacity
    of a configuration's KV cache in tokens, if its boots agree. lossy: by configuration, an
    acceptance rule that changes outputs. closed_loop: clients wait for their answers, so the faster
    side may serve more.
    """

    policies: tuple[int, ...]
    sides: Mapping[str, Side]
    blocks: tuple[BlockTime, ...]
    ran: Boots
    outputs: tuple[OutputCheck, ...] = ()
    ambiguous: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    cache: Mapping[str, int] = field(default_factory=dict)
    lossy: Mapping[str, str] = field(default_factory=dict)
    undeclared: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    closed_loop: bool = False

    @property
    def baseline(self) -> str:
        """The baseline of the outputs: engines without speculation, or k0 if none ran."""
        return CLEAN if CLEAN in self.ran.values() else BASELINE


@dataclass(frozen=True, slots=True)
class JudgedCrossover:
    """One crossover's verdict, its pairs with one block per side, and the joint estimates."""

    verdict: Verdict
    pairs: tuple[Pair, ...]
    joint: Crossover


def judge_crossovers(
    crossings: Iterable[Crossing], rules: Rules | None = None, *, closed_loop: bool = False
) -> list[JudgedCrossover]:
    """A verdict for each crossover and each kind of engine.

    closed_loop: overrides the value of every crossing
    """
    return [
        _judge(crossing, rules or Rules(), closed_loop or crossing.closed_loop)
        for crossing in crossings
    ]


def _judge(crossing: Crossing, rules: Rules, closed_loop: bool) -> JudgedCrossover:
    pairs, left_out = swap_pairs(crossing.blocks, crossing.sides)
    both = [block for pair in pairs for block in (pair.left, pair.right)]
    objective = rules.objective or objectives.objective_for(
        "closed_loop" if closed_loop else "switchback",
        [block for block in crossing.blocks if block.wall_us],
    )
    deploys = deploys_of(pairs, objective)
    level = bonferroni(rules.level, _contrasts(both))
    joint = crossover(deploys, level, looked_at_often=True, hardware_level=rules.level)
    deciding = _deciding(joint)
    epoch = "+".join(sorted({block.epoch for block in crossing.blocks}))
    segment = _segment(both or crossing.blocks, epoch, closed_loop)
    rows = tuple(_row(pair, epoch, segment) for pair in pairs)
    names = sorted({block.arm for block in both})
    arms = tuple(summary for name in names if (summary := summarise(rows, name)))
    outputs = [
        one
        for one in crossing.outputs
        if segment.class_ in (None, one.class_) and one.arm not in crossing.lossy
    ]
    flags = side_flags(pairs, rows, joint, deciding, level, outputs, closed_loop)
    chosen, k = _action(deciding, rules)
    if crossing.undeclared:
        chosen = Action.NOT_COMPARABLE
    action = overruled(chosen, flags)
    decided = action is chosen and action.settles
    sound = deciding is not None and not flags and len(pairs) > 1
    used = [deploy for deploy in deploys if deploy.contrast.se is not None]
    enough = min((deploy.contrast.pairs for deploy in used), default=0) >= rules.min_pairs
    thin = lacking(used, arms, outputs, deciding, rules)
    sure = Confidence.HIGH if enough and not thin and sound else Confidence.LOW
    tradeoffs = _tradeoffs(crossing, rows, arms, deciding, level)
    reasons = _reasons(crossing, joint, outputs, thin, left_out, len(pairs))
    verdict = Verdict(
        epoch=epoch,
        segment=segment,
        action=action,
        k=k if decided else None,
        grade=Grade.MEASURED if sound else Grade.NONE,
        confidence=sure if decided else Confidence.NONE,
        reasons=(*reasons, *reasons_of_tradeoffs(tradeoffs)),
        tradeoffs=tuple(tradeoffs),
        # Over `clean` last: where one stands for an arm, it is this.
        speedups=tuple(sorted(joint.estimates, key=lambda e: e.baseline == CLEAN)),
        metric=objectives.metric_of(objective),
        arms=arms,
        best=() if deciding is None else (deciding.arm,),
        pairs=len(pairs),
        pairs_needed=None if enough else rules.min_pairs * max(2, len(deploys)),
        flags=flags,
        left_out=tuple(sorted(left_out.items())),
    )
    return JudgedCrossover(verdict, rows, joint)


def _tradeoffs(
    crossing: Crossing,
    pairs: Sequence[Pair],
    arms: Sequence[ArmSummary],
    deciding: Estimate | None,
    level: float,
) -> list[Tradeoff]:
    """The other metrics of the deciding configuration against its baseline."""
    if deciding is None:
        return []
    taking = [arm for arm in arms if arm.arm in (deciding.arm, deciding.baseline)]
    tradeoffs = tradeoffs_of(pairs, taking, level, looked_at_often=True, baseline=deciding.baseline)
    lost = cache_lost(crossing.cache, deciding.arm, deciding.baseline)
    return tradeoffs if lost is None else [*tradeoffs, lost]


def _contrasts(blocks: Sequence[BlockTime]) -> int:
    """The number of intervals that hold jointly: one for each two configurations."""
    ran = len({block.arm for block in blocks})
    return max(1, ran * (ran - 1) // 2)


def _deciding(joint: Crossover) -> Estimate | None:
    """The best drafting configuration over the engine without speculation, or over k0 if none
    ran."""
    for baseline in (CLEAN, BASELINE):
        estimates = [
            e
            for e in joint.estimates
            if kind_of(e.baseline) == baseline and kind_of(e.arm) not in (CLEAN, BASELINE)
        ]
        if estimates:
            return max(estimates, key=lambda e: e.value)
    return None


def _action(deciding: Estimate | None, rules: Rules) -> tuple[Action, int | None]:
    """The action from the contrast, and the draft length if the arm has one."""
    if deciding is None:
        return Action.COLLECT_BASELINE, None
    if deciding.within(rules.smallest_effect):
        return Action.NO_DIFFERENCE, None
    if deciding.wins:
        return Action.KEEP, deciding.k
    return (Action.DISABLE, 0) if deciding.loses else (Action.INCONCLUSIVE, None)


def _reasons(
    crossing: Crossing,
    joint: Crossover,
    outputs: Sequence[OutputCheck],
    thin: Sequence[Reason],
    left_out: Mapping[LeftOut, int],
    pairs: int,
) -> list[Reason]:
    reasons = [because(Why.CROSSOVER)]
    reasons += [because(Why.LOSSY, arm, rule=rule) for arm, rule in sorted(crossing.lossy.items())]
    reasons += [of_outputs(one) for one in outputs if one.state in (DIFFERS, UNDECIDED)]
    reasons += [
        because(Why.HARDWARE_INCLUDED, one.arm, baseline=one.baseline)
        for one in joint.estimates
        if (one.arm, one.baseline) in joint.confounded
    ]
    for side in joint.hardware:
        limits = {"value": side.value, "low": side.low, "high": side.high}
        reasons.append(because(Why.HARDWARE, side.arm, baseline=side.baseline, **limits))
    if joint.estimates and not joint.hardware:
        reasons.append(because(Why.SWAP_NEXT))
    if not joint.estimates:
        reasons.append(because(Why.NO_CONTRAST))
    tax = joint.of(BASELINE, CLEAN)
    if tax is not None and tax.loses:
        reasons.append(because(Why.IDLE_SPECULATION, loss=1.0 - tax.value))
    reasons += thin
    reasons += [because(Why.LEFT_OUT, reason=code, pairs=n) for code, n in left_out.items()]
    reasons += [because(Why.AMBIGUOUS, arm, ways=ways) for arm, ways in crossing.ambiguous.items()]
    reasons += [
        because(Why.UNDECLARED, part, ways=ways) for part, ways in crossing.undeclared.items()
    ]
    return reasons if pairs or left_out else [*reasons, because(Why.NO_PAIRS)]


def _segment(blocks: Sequence[BlockTime], epoch: str, closed_loop: bool) -> Segment:
    """The segment of all its traffic together, by the rules of other experiments."""
    if not blocks:
        return Segment()
    numbered = {str(place): block for place, block in enumerate(blocks)}
    design: Design = "closed_loop" if closed_loop else "switchback"
    (placed,) = segments_of([Mix(epoch, numbered, {})], design)
    return placed.segment


def _row(pair: SwapPair, epoch: str, segment: Segment) -> Pair:
    """A pair as reports draw it; if both sides ran the same configuration, one represents both."""
    policy, number = pair.key
    blocks = {side.arm: side for side in (pair.left, pair.right)}
    return Pair((epoch, policy, "crossover", "", number), blocks, {}, segment)
