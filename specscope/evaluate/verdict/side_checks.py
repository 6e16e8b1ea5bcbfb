"""Flags of a crossover by router, and its missing evidence."""

from __future__ import annotations

from collections.abc import Sequence

from specscope.evaluate.experiment import checks
from specscope.evaluate.experiment.blocks import BASELINE, BlockTime
from specscope.evaluate.experiment.crossover import Crossover, Deploy, SwapPair
from specscope.evaluate.experiment.estimate import Estimate
from specscope.evaluate.experiment.pairs import Pair
from specscope.evaluate.experiment.summary import ArmSummary
from specscope.evaluate.outputs.copies import OutputCheck
from specscope.evaluate.outputs.states import DIFFERS, UNDECIDED
from specscope.evaluate.statistics import ratio
from specscope.evaluate.verdict.choice import Rules
from specscope.evaluate.verdict.flags import find_flags
from specscope.evaluate.verdict.verdict import Flag, Reason, Why, because

# About a k0 that is not what the verdict compares with.
ABOUT_K0 = {Flag.BASELINE_DRAFTS, Flag.INCONSISTENT_BASELINE}


def side_flags(
    pairs: Sequence[SwapPair],
    rows: Sequence[Pair],
    joint: Crossover,
    deciding: Estimate | None,
    level: float,
    outputs: Sequence[OutputCheck],
    closed_loop: bool,
) -> tuple[Flag, ...]:
    """Reasons to distrust a crossover: the flags of any blocks, and those of sides."""
    # Whether both sides got their share of live traffic is a matter of sides, not of arms.
    seen = find_flags(rows, [deciding.arm] if deciding else [], "closed_loop", level)
    if deciding is None or deciding.baseline != BASELINE:
        seen -= ABOUT_K0
    if not closed_loop and _uneven(pairs):
        seen.add(Flag.SAMPLE_RATIO)
    if deciding is not None:
        if (deciding.arm, deciding.baseline) in joint.confounded:
            seen.add(Flag.NOT_SWAPPED)
        if any(one.state == DIFFERS and one.arm == deciding.arm for one in outputs):
            seen.add(Flag.OUTPUTS_DIFFER)
    return tuple(sorted(seen))


def _uneven(pairs: Sequence[SwapPair]) -> bool:
    """Whether a side, or a configuration, got more requests than the other, with confidence.

    Each pair gives both streams to both sides. If deploys swapped the configurations, a router that
    favours one configuration favours neither side; so both are tested.
    """
    groups: dict[tuple[str, ...], list[tuple[BlockTime, BlockTime]]] = {}
    for pair in pairs:
        groups.setdefault(pair.sides, []).append((pair.left, pair.right))
        one, other = sorted((pair.left, pair.right), key=lambda side: side.arm)
        if one.arm != other.arm:
            groups.setdefault(("", one.arm, other.arm), []).append((one, other))
    return any(_favoured(group) for group in groups.values())


def _favoured(pairs: Sequence[tuple[BlockTime, BlockTime]]) -> bool:
    if len(pairs) < 2 or not all(one.requests and other.requests for one, other in pairs):
        return False
    ones = [1.0] * len(pairs)
    contrast = ratio.paired_log_ratio(
        [float(one.requests) / one.merged for one, _ in pairs],
        ones,
        [float(other.requests) / other.merged for _, other in pairs],
        ones,
    )
    p_value = contrast.p_value()
    return p_value is not None and p_value < checks.SRM_LEVEL


def lacking(
    deploys: Sequence[Deploy],
    arms: Sequence[ArmSummary],
    outputs: Sequence[OutputCheck],
    deciding: Estimate | None,
    rules: Rules,
) -> list[Reason]:
    """Missing evidence before engines should be configured by this verdict."""
    missing = [
        because(
            Why.THIN,
            f"{one.left} and {one.right}",
            have=one.contrast.pairs,
            least=rules.min_pairs,
            unit="pairs",
        )
        for one in deploys
        if one.contrast.pairs < rules.min_pairs
    ]
    if deciding is None:
        return missing
    for arm in arms:
        if arm.arm in (deciding.arm, deciding.baseline):
            for have, least, unit in (
                (arm.requests, rules.min_requests, "requests"),
                (arm.request_rounds, rules.min_rounds, "rounds"),
            ):
                if have < least:
                    missing.append(because(Why.THIN, arm.arm, have=have, least=least, unit=unit))
    if any(one.state == UNDECIDED and one.arm == deciding.arm for one in outputs):
        missing.append(because(Why.THIN_OUTPUTS, deciding.arm))
    return missing
