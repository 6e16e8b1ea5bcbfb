"""Tradeoffs: the metrics of an arm other than the deciding one.

A mean may improve while the slowest requests, the device's capacity or its memory get worse.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from specscope.evaluate.experiment import contrast, objectives
from specscope.evaluate.experiment.blocks import BASELINE
from specscope.evaluate.experiment.objectives import Objective
from specscope.evaluate.experiment.pairs import Pair
from specscope.evaluate.experiment.summary import ArmSummary
from specscope.evaluate.verdict.verdict import Metric, Reason, Tradeoff, Why, because


def tradeoffs_of(
    pairs: Sequence[Pair],
    arms: Sequence[ArmSummary],
    level: float,
    looked_at_often: bool,
    baseline: str = BASELINE,
    objective: Objective = "throughput",
) -> list[Tradeoff]:
    """Every metric of every arm against the baseline, if both are known.

    level: level of each interval. objective: the deciding metric; if it lies between two metrics,
    both appear.
    """
    base = next((arm for arm in arms if arm.arm == baseline), None)
    if base is None:
        return []
    tradeoffs = []
    for arm in arms:
        if arm.arm != baseline:
            names = arm.arm, baseline
            tradeoffs += [
                _token_time_p95(arm, base),
                _capacity(pairs, names, level, looked_at_often),
                _preemptions(pairs, names, level, looked_at_often),
            ]
            if 0.0 < objectives.weight_of(objective) < 1.0:
                tradeoffs += [
                    _token_time_mean(pairs, names, level, looked_at_often),
                    _per(pairs, names, "wall_us", "emitted", Metric.WALL_TIME, level,
                         looked_at_often, 1e-3),
                ]  # fmt: skip
    return [one for one in tradeoffs if one is not None]


def cache_lost(cache: Mapping[str, int], arm: str, baseline: str) -> Tradeoff | None:
    """The KV-cache capacity that an arm's drafter takes. cache: capacity in tokens, by arm."""
    before, after = cache.get(baseline), cache.get(arm)
    if not before or not after:
        return None
    ratio = before / after
    return Tradeoff(
        Metric.CACHE, arm, baseline, float(before), float(after), ratio, low=ratio, high=ratio
    )


def reasons_of_tradeoffs(tradeoffs: Sequence[Tradeoff]) -> list[Reason]:
    """Reasons for the metrics that get worse with confidence."""
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
    """The ratio's interval combines those of both percentiles: it is wide, and valid at any
    time."""
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


def _token_time_mean(
    pairs: Sequence[Pair], names: tuple[str, str], level: float, looked_at_often: bool
) -> Tradeoff | None:
    """Mean over requests of the time per output token."""
    arm, baseline = names
    known = objectives.comparable(pairs, arm, baseline, "latency")
    log_ratio = objectives.measure(known, arm, baseline, "latency")
    if log_ratio is None:
        return None
    one = contrast.estimate(log_ratio, arm, baseline, level, looked_at_often).reversed()
    sums = [
        [objectives.amounts(pair.blocks[name], "latency") for pair in known]
        for name in (baseline, arm)
    ]
    before, after = (sum(t for _, t in rows) / sum(n for n, _ in rows) for rows in sums)
    return Tradeoff(
        Metric.TOKEN_TIME_MEAN, arm, baseline, before, after, one.value, one.low, one.high
    )


def _capacity(
    pairs: Sequence[Pair], names: tuple[str, str], level: float, looked_at_often: bool
) -> Tradeoff | None:
    """Busy device time per output token, the inverse of the device's capacity."""
    return _per(
        pairs, names, "busy_us", "emitted", Metric.DEVICE_TIME, level, looked_at_often, 1e-3
    )


def _preemptions(
    pairs: Sequence[Pair], names: tuple[str, str], level: float, looked_at_often: bool
) -> Tradeoff | None:
    """Preemptions per request, for lack of memory."""
    return _per(pairs, names, "preempted", "requests", Metric.PREEMPTIONS, level, looked_at_often)


def _per(
    pairs: Sequence[Pair],
    names: tuple[str, str],
    quantity: str,
    per: str,
    metric: Metric,
    level: float,
    looked_at_often: bool,
    unit: float = 1.0,
) -> Tradeoff | None:
    arm, baseline = names
    both = [pair for pair in pairs if arm in pair.blocks and baseline in pair.blocks]
    before, after = (_rate(both, name, quantity, per) for name in (baseline, arm))
    if before is None or after is None or before <= 0:
        return None
    log_ratio = contrast.log_ratio(both, arm, baseline, quantity, per)
    if log_ratio is None:
        return Tradeoff(metric, arm, baseline, unit * before, unit * after, after / before)
    one = contrast.estimate(log_ratio, arm, baseline, level, looked_at_often)
    return Tradeoff(
        metric, arm, baseline, unit * before, unit * after, one.value, one.low, one.high
    )


def _rate(pairs: Sequence[Pair], arm: str, quantity: str, per: str) -> float | None:
    amounts = [getattr(pair.blocks[arm], quantity) for pair in pairs]
    total = sum(getattr(pair.blocks[arm], per) for pair in pairs)
    if not amounts or total <= 0 or any(amount is None for amount in amounts):
        return None
    return math.fsum(amounts) / float(total)
