"""Reasons to distrust the blocks of a segment, checked before any decision."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from specscope.evaluate.costs.traces import VERIFY_FLOOR
from specscope.evaluate.experiment import checks, contrast
from specscope.evaluate.experiment.blocks import BASELINE, BlockTime, Design, arm_k
from specscope.evaluate.experiment.pairs import Pair
from specscope.evaluate.verdict.verdict import OVERRULES_ALL, OVERRULES_GAINS, Action, Flag

# Blocks of a pair share engine and clock, so only more than a kernel's whim counts: on some
# processors a product of three rows is a few percent faster than one of a single row.
_SURELY_TOO_FAST = 0.9

# Of a target-only block's time that may go into drafts before it is none.
_DRAFT_SHARE = 0.02


def find_flags(
    pairs: Sequence[Pair],
    arms: Sequence[str],
    design: Design,
    level: float,
    looked_at_often: bool = False,
) -> set[Flag]:
    """Those of INCONSISTENT_BASELINE, SAMPLE_RATIO, TWINS_DIFFER, BASELINE_DRAFTS and
    IMPOSSIBLE_COUNTS that hold.
    """
    flags: set[Flag] = set()
    if _baseline_drafts(pairs):
        flags.add(Flag.BASELINE_DRAFTS)
    for arm in arms:
        if _impossible([pair.blocks[arm] for pair in pairs if arm in pair.blocks]):
            flags.add(Flag.IMPOSSIBLE_COUNTS)
        if _verify_too_fast(pairs, arm, level):
            flags.add(Flag.INCONSISTENT_BASELINE)
        if design == "switchback":
            p = checks.sample_ratio_p(pairs, arm, BASELINE, looked_at_often)
            if p < checks.SRM_LEVEL:
                flags.add(Flag.SAMPLE_RATIO)
    twins = checks.twin_check(pairs, BASELINE)
    if twins is not None and not twins.passed:
        flags.add(Flag.TWINS_DIFFER)
    return flags


def overruled(action: Action, flags: Collection[Flag]) -> Action:
    """The action after flags.

    Some flags overrule only actions that would enable speculation. A loss against a baseline that
    pays for drafts is a loss against a true baseline too.
    """
    for flag, left in OVERRULES_ALL.items():
        if flag in flags:
            return left
    if action in _SWITCHES_NOTHING_ON:
        return action
    return next((left for flag, left in OVERRULES_GAINS.items() if flag in flags), action)


_SWITCHES_NOTHING_ON = (Action.DISABLE, Action.INCONCLUSIVE, Action.COLLECT_BASELINE)


def _impossible(blocks: Sequence[BlockTime]) -> bool:
    """Whether counters are impossible: more accepted than proposed, or more emitted than accepted +
    1 per round. Blocks without proposals are skipped."""
    proposed = sum(block.proposed for block in blocks)
    accepted = sum(block.accepted for block in blocks)
    emitted = sum(block.emitted for block in blocks)
    rounds = sum(block.request_rounds for block in blocks)
    return proposed > 0 and (accepted > proposed or emitted > accepted + rounds)


def _baseline_drafts(pairs: Sequence[Pair]) -> bool:
    """Whether k0 drafts tokens and discards them, which makes every arm look better."""
    blocks = [pair.blocks[BASELINE] for pair in pairs if BASELINE in pair.blocks]
    drafting = sum(block.draft_us or 0.0 for block in blocks)
    return drafting > _DRAFT_SHARE * sum(block.wall_us for block in blocks)


def _verify_too_fast(pairs: Sequence[Pair], arm: str, level: float) -> bool:
    """Whether a verify pass is faster than a target-only step at the same or a larger batch, with
    confidence."""
    k = arm_k(arm)
    if k is None or k == 0:
        return False
    passes = contrast.log_ratio(pairs, arm, BASELINE, "verify_us", "rounds")
    batches = contrast.log_ratio(pairs, arm, BASELINE, "request_rounds", "rounds")
    if passes is None or batches is None or batches.ratio < VERIFY_FLOOR:
        return False
    limits = passes.interval(level)
    return limits is not None and math.exp(limits[1]) < _SURELY_TOO_FAST
