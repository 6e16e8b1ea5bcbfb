"""Reasons not to believe the blocks of a segment, looked for before anything is decided."""

from __future__ import annotations

import math
from collections.abc import Sequence

from specscope.evaluate import checks, contrast
from specscope.evaluate.blocks import BASELINE, Pair, arm_k
from specscope.evaluate.checks import Design
from specscope.evaluate.traces import INCONSISTENT_BASELINE, VERIFY_FLOOR

# Blocks of a pair share engine and clock, so only more than a kernel's whim counts: on some
# processors a product of three rows is a few percent faster than one of a single row.
_SURELY_TOO_FAST = 0.9


def find_flags(
    pairs: Sequence[Pair], arms: Sequence[str], design: Design, level: float
) -> set[str]:
    """INCONSISTENT_BASELINE, SAMPLE_RATIO and TWINS_DIFFER, where they hold for any arm."""
    flags = set()
    for arm in arms:
        if _verify_too_fast(pairs, arm, level):
            flags.add(INCONSISTENT_BASELINE)
        if (
            design == "switchback"
            and checks.sample_ratio_p(pairs, arm, BASELINE) < checks.SRM_LEVEL
        ):
            flags.add("SAMPLE_RATIO")
    twins = checks.twin_check(pairs, BASELINE)
    if twins is not None and not twins.passed:
        flags.add("TWINS_DIFFER")
    return flags


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
