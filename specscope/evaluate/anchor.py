"""Target-only in a speculative engine is not an engine without speculation: three contrasts.

An engine started for speculation pays for it at k = 0 too (drafter state, graphs, memory):
6.6 % to 21.6 % in one published measurement. So `disable` and `move to a clean pool` are
different advice. A clean engine needs its own process, so the contrast with it is one between
replicas, and its grade is never `measured`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from specscope.evaluate.blocks import BASELINE, BlockTime, arm_k
from specscope.evaluate.contrast import Estimate
from specscope.evaluate.ratio import ratio_of_sums, t_quantile


@dataclass(frozen=True, slots=True)
class Anchored:
    """An arm against both baselines. tax: k0 over clean, below 1 where the engine pays."""

    k_over_k0: Estimate
    tax: Estimate
    k_over_clean: Estimate
    grade: str = "replayed"


def anchor(
    arm: Estimate, k0: Sequence[BlockTime], clean: Sequence[BlockTime], level: float = 0.95
) -> Anchored | None:
    """Join a paired speedup with the unpaired contrast of k0 against clean blocks.

    k0, clean: blocks of the same traffic on like hardware; the block is the cluster. None where
    either is missing or has one block only, or the arm's interval is unknown.
    """
    if arm.low is None or arm.high is None or len(k0) < 2 or len(clean) < 2:
        return None
    rates = [
        ratio_of_sums([b.emitted for b in blocks], [b.wall_us for b in blocks])
        for blocks in (k0, clean)
    ]
    if rates[0].se is None or rates[1].se is None or min(r.value for r in rates) <= 0:
        return None
    delta = math.log(rates[0].value / rates[1].value)
    parts = [(r.se or 0.0) ** 2 / r.value**2 for r in rates]
    variance = sum(parts)
    half = 0.0
    if variance > 0:
        freedom = variance**2 / sum(
            v**2 / (r.clusters - 1) for v, r in zip(parts, rates, strict=True)
        )
        half = t_quantile(level, freedom) * math.sqrt(variance)
    count = min(len(k0), len(clean))
    tax = _estimate(BASELINE, delta, half, count, level, "clean")
    own = math.log(arm.high / arm.low) / 2.0
    joint = _estimate(
        arm.arm, math.log(arm.value) + delta, math.hypot(own, half), count, level, "clean"
    )
    return Anchored(arm, tax, joint)


def _estimate(
    arm: str, delta: float, half: float, pairs: int, level: float, baseline: str
) -> Estimate:
    return Estimate(
        arm,
        math.exp(delta),
        math.exp(delta - half),
        math.exp(delta + half),
        pairs,
        level,
        baseline,
        arm_k(arm),
    )
