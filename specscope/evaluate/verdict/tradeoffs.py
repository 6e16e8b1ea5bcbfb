"""Both sides of the bargain: what an arm gives and takes beside the metric that decides.

A mean may improve while the slowest requests, the device's capacity or its memory pay for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from specscope.evaluate.experiment import contrast
from specscope.evaluate.experiment.blocks import BASELINE
from specscope.evaluate.experiment.pairs import Pair
from specscope.evaluate.experiment.summary import ArmSummary
from specscope.evaluate.verdict.verdict import Metric, Reason, Tradeoff, Why, because


def tradeoffs_of(
    pairs: Sequence[Pair], arms: Sequence[ArmSummary], level: float, looked_at_often: bool
) -> list[Tradeoff]:
    """Every metric of every arm against k0, where both are known. level: of each interval."""
    base = next((arm for arm in arms if arm.arm == BASELINE), None)
    if base is None:
        return []
    found = []
    for arm in arms:
        if arm.arm != BASELINE:
            found += [
                _token_time_p95(arm, base),
                _capacity(pairs, arm.arm, level, looked_at_often),
                _preemptions(pairs, arm.arm, level, looked_at_often),
            ]
    return [one for one in found if one is not None]


def reasons_of_tradeoffs(tradeoffs: Sequence[Tradeoff]) -> list[Reason]:
    """What surely worsens."""
    return [
        because(
            Why.WORSENS,
            one.arm,
            metric=one.metric,
            baseline=one.baseline,
            before=one.before,
            after=one.after,
            ratio=one.ratio,
            low=one.low,
            high=one.high,
        )
        for one in tradeoffs
        if one.worsens
    ]


def _token_time_p95(arm: ArmSummary, base: ArmSummary) -> Tradeoff | None:
    """Intervals of both percentiles give the ratio's: wide, and valid at every look."""
    ones, bases = arm.tpot_p95_ms, base.tpot_p95_ms
    if ones is None or bases is None or bases.value <= 0:
        return None
    known = None not in (ones.low, ones.high, bases.low, bases.high) and (bases.low or 0) > 0
    return Tradeoff(
        metric=Metric.TOKEN_TIME_P95,
        arm=arm.arm,
        baseline=base.arm,
        before=bases.value,
        after=ones.value,
        ratio=ones.value / bases.value,
        low=(ones.low or 0.0) / (bases.high or 1.0) if known else None,
        high=(ones.high or 0.0) / (bases.low or 1.0) if known else None,
    )


def _capacity(
    pairs: Sequence[Pair], arm: str, level: float, looked_at_often: bool
) -> Tradeoff | None:
    """Busy device time per output token: what the device could serve at most is its inverse."""
    return _per(pairs, arm, "busy_us", "emitted", Metric.DEVICE_TIME, level, looked_at_often, 1e-3)


def _preemptions(
    pairs: Sequence[Pair], arm: str, level: float, looked_at_often: bool
) -> Tradeoff | None:
    """Requests that went back into the queue for want of memory, per request."""
    return _per(pairs, arm, "preempted", "requests", Metric.PREEMPTIONS, level, looked_at_often)


def _per(
    pairs: Sequence[Pair],
    arm: str,
    quantity: str,
    per: str,
    metric: Metric,
    level: float,
    looked_at_often: bool,
    unit: float = 1.0,
) -> Tradeoff | None:
    both = [pair for pair in pairs if arm in pair.blocks and BASELINE in pair.blocks]
    before, after = (_rate(both, name, quantity, per) for name in (BASELINE, arm))
    if before is None or after is None or before <= 0:
        return None
    found = contrast.log_ratio(both, arm, BASELINE, quantity, per)
    if found is None:
        return Tradeoff(metric, arm, BASELINE, unit * before, unit * after, after / before)
    one = contrast.estimate(found, arm, BASELINE, level, looked_at_often)
    return Tradeoff(
        metric, arm, BASELINE, unit * before, unit * after, one.value, one.low, one.high
    )


def _rate(pairs: Sequence[Pair], arm: str, quantity: str, per: str) -> float | None:
    amounts = [getattr(pair.blocks[arm], quantity) for pair in pairs]
    total = sum(getattr(pair.blocks[arm], per) for pair in pairs)
    if not amounts or total <= 0 or any(amount is None for amount in amounts):
        return None
    return math.fsum(amounts) / float(total)
