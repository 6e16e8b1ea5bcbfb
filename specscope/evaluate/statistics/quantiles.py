"""Quantiles from log-histograms, with intervals from blocks.

A histogram with bins of constant relative width merges exactly and gives ranks, which an interval
needs. With a = 0.01 a value is known to 1 %, so claim no difference under 4 %.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from specscope.evaluate.statistics import sequential
from specscope.evaluate.statistics.ratio import ratio_of_sums, t_quantile

ACCURACY = 0.01
Histogram = Mapping[int, int]


def bin_of(value: float, accuracy: float = ACCURACY) -> int:
    """Bin of a positive value: ceil(ln x / ln g), g = (1 + a) / (1 - a)."""
    if not value > 0:
        raise ValueError(f"only positive values have a bin, got {value}")
    return math.ceil(math.log(value) / _log_width(accuracy))


@lru_cache(maxsize=8192)
def value_of(index: int, accuracy: float = ACCURACY) -> float:
    """Middle of a bin, within `accuracy` of every value in it: 2 g^i / (g + 1)."""
    width = (1.0 + accuracy) / (1.0 - accuracy)
    return 2.0 * math.pow(width, index) / (width + 1.0)


def merge(histograms: Sequence[Histogram]) -> dict[int, int]:
    """Sum of histograms, bins in order."""
    total: dict[int, int] = {}
    for histogram in histograms:
        for index, count in histogram.items():
            total[index] = total.get(index, 0) + count
    return dict(sorted(total.items()))


def quantile(histogram: Histogram, q: float, accuracy: float = ACCURACY) -> float:
    """Smallest value with at least a share q of all values at or below it. ValueError if empty."""
    return value_of(_bin_at(merge([histogram]), q), accuracy)


@dataclass(frozen=True, slots=True)
class QuantileEstimate:
    """A quantile with its interval; low and high are None if unknown.

    They are unknown for a single block, and before the first look at evidence that is looked at
    often.
    """

    value: float
    low: float | None
    high: float | None
    blocks: int


def woodruff(
    blocks: Sequence[Histogram],
    q: float,
    level: float = 0.95,
    accuracy: float = ACCURACY,
    looked_at_often: bool = False,
) -> QuantileEstimate:
    """A quantile over blocks, with the interval of its rank converted into values.

    The share at or below the pooled quantile is a ratio of sums over blocks, whose cluster error
    bounds the rank. Both ends are widened by the histogram's own error. Order statistics of pooled
    values, as if independent, would cover 65 % instead of 95 %. looked_at_often: the interval is a
    confidence sequence over blocks. Empty blocks are ignored. ValueError if all are empty, or q
    lies outside 0..1. Source: Woodruff 1952.
    """
    full = [block for block in blocks if sum(block.values())]
    pooled = merge(full)
    at = _bin_at(pooled, q)
    below = np.array([sum(n for i, n in block.items() if i <= at) for block in full], float)
    sizes = np.array([sum(block.values()) for block in full], float)
    rank = ratio_of_sums(below, sizes)
    value = value_of(at, accuracy)
    if rank.se is None:
        half = None
    elif looked_at_often:
        scores = (below - rank.value * sizes) / sizes.sum()
        half = sequential.half_width(rank.se, scores, 1.0 - level)
    else:
        half = t_quantile(level, rank.clusters - 1) * rank.se
    if half is None:
        return QuantileEstimate(value, None, None, len(full))
    low = value_of(_bin_at(pooled, max(0.0, q - half)), accuracy) * (1.0 - accuracy)
    high = value_of(_bin_at(pooled, min(1.0, q + half)), accuracy) * (1.0 + accuracy)
    return QuantileEstimate(value, low, high, len(full))


def paired_quantile_ratio(
    ones: Sequence[Histogram],
    bases: Sequence[Histogram],
    q: float,
    level: float = 0.95,
    draws: int = 500,
    seed: int = 0,
) -> QuantileEstimate:
    """Ratio of a quantile of two arms, with a bootstrap interval over whole pairs of blocks.

    ones, bases: [pairs] histograms of the same pairs. The interval holds percentiles of the ratio
    over `draws` resamples, widened by the histograms' error; None for fewer than two pairs.
    """
    if len(ones) != len(bases) or not ones:
        raise ValueError(f"pairs need both arms: {len(ones)} and {len(bases)}")
    value = quantile(merge(ones), q) / quantile(merge(bases), q)
    if len(ones) < 2:
        return QuantileEstimate(value, None, None, len(ones))
    tops, top_low = _dense(ones)
    bottoms, bottom_low = _dense(bases)
    random = np.random.default_rng(seed)
    weights = random.multinomial(len(ones), np.full(len(ones), 1.0 / len(ones)), size=draws)
    log_ratio = (
        _dense_quantile(weights @ tops, q)
        + top_low
        - _dense_quantile(weights @ bottoms, q)
        - bottom_low
    ) * _log_width(ACCURACY)
    low, high = np.quantile(log_ratio, [(1 - level) / 2, (1 + level) / 2])
    error = math.log1p(2 * ACCURACY)
    return QuantileEstimate(
        value, math.exp(float(low) - error), math.exp(float(high) + error), len(ones)
    )


def _dense(blocks: Sequence[Histogram]) -> tuple[np.ndarray, int]:
    bins = [index for block in blocks for index in block]
    first, last = min(bins), max(bins)
    table = np.zeros((len(blocks), last - first + 1))
    for row, block in enumerate(blocks):
        for index, count in block.items():
            table[row, index - first] += count
    return table, first


def _dense_quantile(counts: np.ndarray, q: float) -> np.ndarray:
    ranks = counts.cumsum(axis=1)
    places: np.ndarray = (ranks >= q * ranks[:, -1:] - 1e-9).argmax(axis=1)
    return places


def _bin_at(histogram: Histogram, q: float) -> int:
    if not 0.0 <= q <= 1.0:
        raise ValueError(f"a quantile lies within 0..1, got {q}")
    total = sum(histogram.values())
    if total <= 0:
        raise ValueError("an empty histogram has no quantile")
    seen, last = 0, 0
    for index, count in histogram.items():
        seen, last = seen + count, index
        if count and seen >= q * total - 1e-9:
            return index
    return last


def _log_width(accuracy: float) -> float:
    return math.log((1.0 + accuracy) / (1.0 - accuracy))
