"""Reasons not to believe the blocks of a segment, looked for before anything is decided."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from specscope.evaluate.costs.traces import INCONSISTENT_BASELINE, VERIFY_FLOOR
from specscope.evaluate.experiment import checks, contrast, objectives
from specscope.evaluate.experiment.blocks import BASELINE, BlockTime, arm_k
from specscope.evaluate.experiment.checks import Design
from specscope.evaluate.experiment.pairs import Pair

# Blocks of a pair share engine and clock, so only more than a kernel's whim counts: on some
# processors a product of three rows is a few percent faster than one of a single row.
_SURELY_TOO_FAST = 0.9

BASELINE_DRAFTS = "BASELINE_DRAFTS"
IMPOSSIBLE_COUNTS = "IMPOSSIBLE_COUNTS"
OUTPUTS_DIFFER = "OUTPUTS_DIFFER"  # set by `verdicts`, which is told of the outputs
NOT_SWAPPED = "NOT_SWAPPED"  # set by crossovers: the sides' hardware is in the contrast
# Of a target-only block's time that may go into drafts before it is none.
_DRAFT_SHARE = 0.02


def find_flags(
    pairs: Sequence[Pair], arms: Sequence[str], design: Design, level: float
) -> set[str]:
    """INCONSISTENT_BASELINE, SAMPLE_RATIO, TWINS_DIFFER, BASELINE_DRAFTS and IMPOSSIBLE_COUNTS,
    where they hold.

    Where open traffic queues, how many requests a block admits follows from how fast its arm is,
    and says nothing about who was sent where.
    """
    flags = set()
    if _baseline_drafts(pairs):
        flags.add(BASELINE_DRAFTS)
    for arm in arms:
        if _impossible([pair.blocks[arm] for pair in pairs if arm in pair.blocks]):
            flags.add(IMPOSSIBLE_COUNTS)
        if _verify_too_fast(pairs, arm, level):
            flags.add(INCONSISTENT_BASELINE)
        queue = objectives.queue_share([b for pair in pairs for b in pair.blocks.values()])
        if (
            design == "switchback"
            and (queue is None or queue <= objectives.QUEUE)
            and checks.sample_ratio_p(pairs, arm, BASELINE) < checks.SRM_LEVEL
        ):
            flags.add("SAMPLE_RATIO")
    twins = checks.twin_check(pairs, BASELINE)
    if twins is not None and not twins.passed:
        flags.add("TWINS_DIFFER")
    return flags


def overruled(action: str, flags: Collection[str]) -> str:
    """What is left of an action under flags.

    not_comparable where arms cannot be compared; engine_fault where what would be switched on is
    wrong. What loses even to a baseline that pays for drafts loses all the more to a true one,
    and what is to be switched off needs no second reason.
    """
    if "SAMPLE_RATIO" in flags or "TWINS_DIFFER" in flags:
        return "not_comparable"
    if action in ("disable", "inconclusive", "collect_baseline"):
        return action
    if IMPOSSIBLE_COUNTS in flags or OUTPUTS_DIFFER in flags:
        return "engine_fault"
    return "not_comparable" if BASELINE_DRAFTS in flags else action


def _impossible(blocks: Sequence[BlockTime]) -> bool:
    """Whether counters say what no engine does: kept more than was offered, or gave out more
    than was kept and one token a round. Blocks without proposals tell nothing."""
    proposed = sum(block.proposed for block in blocks)
    accepted = sum(block.accepted for block in blocks)
    emitted = sum(block.emitted for block in blocks)
    rounds = sum(block.request_rounds for block in blocks)
    return proposed > 0 and (accepted > proposed or emitted > accepted + rounds)


def _baseline_drafts(pairs: Sequence[Pair]) -> bool:
    """Whether k0 pays for drafts that are then thrown away, which makes every arm look better."""
    blocks = [pair.blocks[BASELINE] for pair in pairs if BASELINE in pair.blocks]
    drafting = sum(block.draft_us or 0.0 for block in blocks)
    return drafting > _DRAFT_SHARE * sum(block.wall_us for block in blocks)


def _verify_too_fast(pairs: Sequence[Pair], arm: str, level: float) -> bool:
    """Whether a verify pass took surely less than a target-only one at no smaller batch."""
    k = arm_k(arm)
    if k is None or k == 0:
        return False
    passes = contrast.log_ratio(pairs, arm, BASELINE, "verify_us", "rounds")
    batches = contrast.log_ratio(pairs, arm, BASELINE, "request_rounds", "rounds")
    if passes is None or batches is None or batches.ratio < VERIFY_FLOOR:
        return False
    limits = passes.interval(level)
    return limits is not None and math.exp(limits[1]) < _SURELY_TOO_FAST
