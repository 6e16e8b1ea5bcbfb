"""What a crossover by router says: one verdict on what its sides ran."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from specscope.evaluate.experiment import objectives
from specscope.evaluate.experiment.blocks import BASELINE, BlockTime
from specscope.evaluate.experiment.contrast import Estimate
from specscope.evaluate.experiment.crossover import (
    CLEAN,
    Crossover,
    SwapPair,
    crossover,
    deploys_of,
    swap_pairs,
)
from specscope.evaluate.experiment.objectives import METRICS
from specscope.evaluate.experiment.pairs import Pair
from specscope.evaluate.experiment.segments import Mix, Segment, segments_of
from specscope.evaluate.experiment.summary import summarise
from specscope.evaluate.outputs.copies import DIFFERS, UNDECIDED, OutputCheck
from specscope.evaluate.statistics.multiplicity import bonferroni
from specscope.evaluate.verdict.choice import Rules
from specscope.evaluate.verdict.decide import Verdict
from specscope.evaluate.verdict.flags import NOT_SWAPPED, overruled
from specscope.evaluate.verdict.sentences import FLAGS, describe
from specscope.gate.side_checks import lacking, side_flags
from specscope.gate.sides import Crossing

WORDS = FLAGS | {
    "SAMPLE_RATIO": "SAMPLE_RATIO: the sides did not serve a fair share of the requests",
    NOT_SWAPPED: f"{NOT_SWAPPED}: no deploy tells the sides' hardware from what they ran",
}


@dataclass(frozen=True, slots=True)
class Judged:
    """One crossover's verdict, its pairs with a block a side, and the joint estimates."""

    verdict: Verdict
    pairs: tuple[Pair, ...]
    joint: Crossover


def judge_crossovers(
    found: Iterable[Crossing], rules: Rules | None = None, *, closed_loop: bool = False
) -> list[Judged]:
    """A verdict for each crossover and each kind of engine that it ran on.

    closed_loop: clients wait for their answers, so the faster side rightly serves more.
    """
    return [_judge(crossing, rules or Rules(), closed_loop) for crossing in found]


def _judge(crossing: Crossing, rules: Rules, closed_loop: bool) -> Judged:
    pairs, left_out = swap_pairs(crossing.blocks, crossing.sides)
    both = [block for pair in pairs for block in (pair.left, pair.right)]
    objective = rules.objective or objectives.objective_for(
        "closed_loop" if closed_loop else "switchback",
        [block for block in crossing.blocks if block.wall_us],
    )
    deploys = deploys_of(pairs, objective)
    level = bonferroni(rules.level, _contrasts(both))
    joint = crossover(deploys, level, looked_at_often=True)
    deciding = _deciding(joint)
    epoch = "+".join(sorted({block.epoch for block in crossing.blocks}))
    segment = _segment(both or crossing.blocks, epoch, closed_loop)
    rows = tuple(_row(pair, epoch, segment) for pair in pairs)
    names = sorted({block.arm for block in both})
    arms = tuple(found for name in names if (found := summarise(rows, name)))
    outputs = [one for one in crossing.outputs if segment.class_ in (None, one.class_)]
    flags = side_flags(pairs, rows, joint, deciding, level, outputs, closed_loop)
    chosen, k = _action(deciding, rules)
    action = "not_comparable" if NOT_SWAPPED in flags else overruled(chosen, flags)
    decided = action == chosen and action not in ("inconclusive", "collect_baseline")
    grade = "measured" if deciding and not flags and len(pairs) > 1 else "none"
    used = [deploy for deploy in deploys if deploy.contrast.se is not None]
    enough = min((deploy.contrast.pairs for deploy in used), default=0) >= rules.min_pairs
    thin = lacking(used, arms, outputs, deciding, rules)
    sure = enough and not thin and grade != "none"
    verdict = Verdict(
        epoch=epoch,
        segment=segment,
        action=action,
        k=k if decided else None,
        grade=grade,
        confidence="none" if not decided else "high" if sure else "low",
        reasons=tuple(_reasons(joint, flags, outputs, thin, left_out, len(pairs))),
        # Over `clean` last: where one stands for an arm, it is this.
        speedups=tuple(sorted(joint.estimates, key=lambda e: e.baseline == CLEAN)),
        metric=METRICS[objective],
        arms=arms,
        best=() if deciding is None else (deciding.arm,),
        pairs=len(pairs),
        pairs_needed=None if enough else rules.min_pairs * max(2, len(deploys)),
        flags=flags,
        left_out=tuple(sorted(left_out.items())),
    )
    return Judged(verdict, rows, joint)


def _contrasts(blocks: Sequence[BlockTime]) -> int:
    """How many intervals must hold together: of each two configurations, and the hardware's."""
    ran = len({block.arm for block in blocks})
    return ran * (ran - 1) // 2 + 1


def _deciding(joint: Crossover) -> Estimate | None:
    """The best that drafts over the engine without speculation, or over k0 where none ran."""
    for baseline in (CLEAN, BASELINE):
        found = [e for e in joint.estimates if e.baseline == baseline and e.arm != BASELINE]
        if found:
            return max(found, key=lambda e: e.value)
    return None


def _action(found: Estimate | None, rules: Rules) -> tuple[str, int | None]:
    """What the contrast says, and the draft length where it is one."""
    if found is None:
        return "collect_baseline", None
    if found.within(rules.smallest_effect):
        return "no_difference", None
    if found.wins:
        return "keep", found.k
    return ("disable", 0) if found.loses else ("inconclusive", None)


def _reasons(
    joint: Crossover,
    flags: Sequence[str],
    outputs: Sequence[OutputCheck],
    thin: Sequence[str],
    left_out: Mapping[str, int],
    pairs: int,
) -> list[str]:
    said = ["crossover by router: sides with fixed configurations, their traffic swapped"]
    said += [WORDS[flag] for flag in flags]
    said += [f"outputs: {one}" for one in outputs if one.state in (DIFFERS, UNDECIDED)]
    for one in joint.estimates:
        held = (one.arm, one.baseline) in joint.confounded
        said.append(describe(one) + ("; the sides' hardware is in it" if held else ""))
    if joint.hardware is not None:
        said.append(f"the sides' hardware alone: {describe(joint.hardware)}")
    elif joint.estimates:
        said.append("swap the configurations at the next deploy: then the hardware cancels")
    if not joint.estimates:
        said.append("no two sides ran different configurations in two pairs or more")
    tax = joint.of(BASELINE, CLEAN)
    if tax is not None and tax.loses:
        said.append(
            f"k = 0 in a speculative engine costs {1 - tax.value:.1%}: target-only traffic belongs "
            "on engines started without speculation"
        )
    said += [f"thin evidence: {one}" for one in thin]
    said += [f"{count} pairs left out: {reason}" for reason, count in left_out.items()]
    return said if pairs or left_out else [*said, "no pair of blocks yet"]


def _segment(blocks: Sequence[BlockTime], epoch: str, closed_loop: bool) -> Segment:
    """Of all its traffic together, by the rules of every other experiment."""
    if not blocks:
        return Segment()
    numbered = {str(place): block for place, block in enumerate(blocks)}
    (found,) = segments_of([Mix(epoch, numbered, {})], closed_loop)
    return found


def _row(pair: SwapPair, epoch: str, segment: Segment) -> Pair:
    """A pair as reports draw it; where both sides ran alike, one of them stands for both."""
    policy, number = pair.key
    blocks = {side.arm: side for side in (pair.left, pair.right)}
    return Pair((epoch, policy, "crossover", "", number), blocks, {}, segment)
