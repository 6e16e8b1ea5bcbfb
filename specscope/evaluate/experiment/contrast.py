"""Speedups of arms against a baseline over pairs of blocks: the only speedups there are."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from specscope.evaluate.experiment.blocks import arm_k
from specscope.evaluate.experiment.estimate import Estimate
from specscope.evaluate.experiment.pairs import Pair
from specscope.evaluate.statistics import randomisation, ratio, sequential
from specscope.evaluate.statistics.ratio import LogRatio

TOKENS, TIME = "emitted", "wall_us"


def log_ratio(
    pairs: Sequence[Pair], arm: str, baseline: str, numerator: str = TOKENS, per: str = TIME
) -> LogRatio | None:
    """log of an arm's ratio (numerator over denominator) minus log of the baseline's ratio.

    It uses the pairs that ran both arms and know both quantities. None if there is no such pair, or
    if a sum is 0.
    """
    names = [(arm, numerator), (arm, per), (baseline, numerator), (baseline, per)]
    rows = []
    for pair in pairs:
        if arm in pair.blocks and baseline in pair.blocks:
            row = [getattr(pair.blocks[name], field) for name, field in names]
            if all(value is not None for value in row):
                rows.append(row)
    if not rows:
        return None
    columns = np.array(rows, dtype=np.float64).T
    if (columns.sum(axis=1) <= 0).any():
        return None
    return ratio.paired_log_ratio(*columns)


def estimate(
    contrast: LogRatio, arm: str, baseline: str, level: float, looked_at_often: bool = False
) -> Estimate:
    """The ratio, its interval (Student's t, or a confidence sequence if looked at often) and its
    test."""
    if looked_at_often:
        limits = sequential.interval(contrast, (1.0 - sequential.SIGN_SHARE) * (1.0 - level))
    else:
        limits = contrast.interval(level)
    low, high = (None, None) if limits is None else (_exp(limits[0]), _exp(limits[1]))
    return Estimate(
        arm=arm,
        value=contrast.ratio,
        low=low,
        high=high,
        pairs=contrast.pairs,
        level=level,
        baseline=baseline,
        k=arm_k(arm),
        p=randomisation.p_value(contrast, looked_at_often),
    )


def pairs_needed(
    contrast: LogRatio | None, level: float, effect: float, looked_at_often: bool = False
) -> int | None:
    """Expected total number of pairs until this contrast is decided.

    The interval's half-width must fall below the larger of the smallest relevant effect and the
    observed difference. None for a single pair, which has no spread; at most 100 000.
    """
    if contrast is None or contrast.pair_sd is None:
        return None
    aim = max(math.log1p(effect), abs(contrast.delta))

    def too_wide(pairs: int) -> bool:
        if looked_at_often:
            width = sequential.reach(pairs, (1.0 - sequential.SIGN_SHARE) * (1.0 - level))
        else:
            width = ratio.t_quantile(level, pairs - 1) / math.sqrt(pairs)
        return width * (contrast.pair_sd or 0.0) >= aim

    low, high = sequential.FIRST_LOOK if looked_at_often else 2, 100_000
    if too_wide(high):
        return high
    while low < high:
        middle = (low + high) // 2
        if too_wide(middle):
            low = middle + 1
        else:
            high = middle
    return low


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))
