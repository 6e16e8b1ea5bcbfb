"""Ratios of sums over clusters, single and paired, with cluster-robust intervals.

All functions add first and divide once, because a mean of ratios gives a short block the weight of
a long one. The cluster (a block, a pair, a request of an offline replay) is the unit of inference.
Its rounds are not independent; treating them so makes intervals five times too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

Floats = NDArray[np.float64]
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Ratio:
    """sum(X) / sum(Y) over clusters. se is None for a single cluster."""

    value: float
    se: float | None
    clusters: int

    def interval(self, level: float = 0.95) -> tuple[float, float] | None:
        """Interval by Student's t with clusters - 1; None if there is one cluster."""
        if self.se is None:
            return None
        half = t_quantile(level, self.clusters - 1) * self.se
        return self.value - half, self.value + half


@dataclass(frozen=True, slots=True)
class LogRatio:
    """log(theta_1 / theta_0) of two ratios of sums over the same pairs.

    scores: [pairs] linearised contribution of each pair, summing to 0. se: standard error of
    `delta`; None for a single pair. spent: degrees of freedom used by estimates other than the
    mean. worth: degrees of freedom of `se` if pairs are not independent; None if they are. own:
    [pairs] log ratio of each pair alone. null: [pairs] contrasts around the pooled ratio.
    Exchanging the arms of a pair only flips the signs of its `own` and `null`.
    """

    delta: float
    se: float | None
    scores: Floats
    spent: int = 0
    worth: float | None = None
    own: Floats = field(default_factory=lambda: np.zeros(0))
    null: Floats = field(default_factory=lambda: np.zeros(0))

    @property
    def pairs(self) -> int:
        """Number of pairs."""
        return len(self.scores)

    @property
    def freedom(self) -> int:
        """Degrees of freedom of `se`."""
        return self.pairs - 1 - self.spent

    @property
    def ratio(self) -> float:
        """theta_1 / theta_0."""
        return math.exp(self.delta)

    @property
    def pair_sd(self) -> float | None:
        """Standard deviation of one pair's log ratio: se * sqrt(pairs)."""
        return None if self.se is None else self.se * math.sqrt(self.pairs)

    def interval(self, level: float = 0.95) -> tuple[float, float] | None:
        """Interval of delta by Student's t; None if there is one pair."""
        if self.se is None:
            return None
        freedom = self.freedom if self.worth is None else self.worth
        half = t_quantile(level, freedom) * self.se
        return self.delta - half, self.delta + half

    def p_value(self) -> float | None:
        """Two-sided p-value of delta = 0, looked at once; None for a single pair."""
        if self.se is None:
            return None
        if self.se == 0:
            return 1.0 if self.delta == 0 else 0.0
        return float(2.0 * stats.t.sf(abs(self.delta) / self.se, self.freedom))


def ratio_of_sums(x: ArrayLike, y: ArrayLike) -> Ratio:
    """sum(x) / sum(y) with the cluster-robust error of the delta method.

    x, y: [clusters] sums of the numerator and the denominator. Var = G / (G - 1) * sum((x - r
    y)**2) / sum(y)**2. ValueError for unequal lengths, no cluster, or a denominator that is not
    positive. Source: Deng, Knoblich & Lu 2018 (arXiv 1803.06336).
    """
    xs, ys = _columns(x, y)
    total = float(ys.sum())
    value = float(xs.sum()) / total
    if len(xs) < 2:
        return Ratio(value, None, len(xs))
    residual = xs - value * ys
    variance = len(xs) / (len(xs) - 1) * float(residual @ residual) / total**2
    return Ratio(value, math.sqrt(variance), len(xs))


def paired_log_ratio(x1: ArrayLike, y1: ArrayLike, x0: ArrayLike, y0: ArrayLike) -> LogRatio:
    """log of (sum(x1) / sum(y1)) / (sum(x0) / sum(y0)) over pairs of blocks.

    All arrays are [pairs], with equal index for equal pair. So effects that both blocks of a pair
    share (clocks, heat, time of day) cancel. Score of a pair: (x1 - r1 y1) / sum(x1) - (x0 - r0 y0)
    / sum(x0); Var = P / (P - 1) * sum(score**2). ValueError for unequal lengths, no pair, or sums
    that are not positive.
    """
    x1s, y1s = _columns(x1, y1)
    x0s, y0s = _columns(x0, y0)
    if len(x1s) != len(x0s):
        raise ValueError(f"pairs need both arms: {len(x1s)} and {len(x0s)} blocks")
    sum1, sum0 = float(x1s.sum()), float(x0s.sum())
    if sum1 <= 0 or sum0 <= 0:
        raise ValueError("numerators must add to more than nothing")
    rate1, rate0 = sum1 / float(y1s.sum()), sum0 / float(y0s.sum())
    scores = (x1s - rate1 * y1s) / sum1 - (x0s - rate0 * y0s) / sum0
    pairs = len(scores)
    se = None if pairs < 2 else math.sqrt(pairs / (pairs - 1) * float(scores @ scores))
    pooled = (sum1 + sum0) / float(y1s.sum() + y0s.sum())
    known = (x1s > 0) & (y1s > 0) & (x0s > 0) & (y0s > 0)
    own = np.zeros(pairs)
    own[known] = np.log(x1s[known] / y1s[known]) - np.log(x0s[known] / y0s[known])
    return LogRatio(
        delta=math.log(rate1 / rate0),
        se=se,
        scores=scores,
        own=own,
        null=(x1s - pooled * y1s) - (x0s - pooled * y0s),
    )


def weighted(first: LogRatio, second: LogRatio, weight: float) -> LogRatio:
    """Weighted mean of two contrasts over the same pairs (weight, 1 - weight).

    The scores are combined pair by pair, so the error includes the correlation of the two.
    """
    if weight >= 1.0 or weight <= 0.0:
        return first if weight >= 1.0 else second
    rest = 1.0 - weight
    scores = weight * first.scores + rest * second.scores
    spent = max(first.spent, second.spent)
    freedom = len(scores) - 1 - spent
    se = math.sqrt(len(scores) / freedom * float(scores @ scores)) if freedom > 0 else None
    scales = [float(np.abs(one.null).sum()) or 1.0 for one in (first, second)]
    return LogRatio(
        delta=weight * first.delta + rest * second.delta,
        se=se,
        scores=scores,
        spent=spent,
        own=weight * first.own + rest * second.own,
        null=weight * first.null / scales[0] + rest * second.null / scales[1],
    )


def jackknife(
    groups: Sequence[Item], statistic: Callable[[Sequence[Item]], float]
) -> tuple[float, float]:
    """A statistic of all groups, with its jackknife error (one group left out at a time).

    groups: sums per hash of request or session (32 groups serve any statistic). Var = (M - 1) / M *
    sum((theta_without_g - mean)^2). ValueError for fewer than two.
    """
    if len(groups) < 2:
        raise ValueError(f"need at least two groups, got {len(groups)}")
    left_out = [statistic([*groups[:index], *groups[index + 1 :]]) for index in range(len(groups))]
    mean = math.fsum(left_out) / len(groups)
    spread = math.fsum((value - mean) ** 2 for value in left_out)
    return statistic(groups), math.sqrt((len(groups) - 1) / len(groups) * spread)


def welch_half_width(parts: Sequence[tuple[float, float]], level: float) -> float:
    """Half-width of the interval of a sum of independent estimates, by Student's t.

    parts: standard error and degrees of freedom of each; the sum has those of Welch and
    Satterthwaite. Returns 0 if all errors are 0.
    """
    variances = [se**2 for se, _ in parts]
    variance = math.fsum(variances)
    if variance == 0:
        return 0.0
    spread = math.fsum(v**2 / freedom for v, (_, freedom) in zip(variances, parts, strict=True))
    return t_quantile(level, variance**2 / spread) * math.sqrt(variance)


@lru_cache(maxsize=4096)
def t_quantile(level: float, freedom: float) -> float:
    """Half-width of a two-sided interval in standard errors. [> 0]"""
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be within 0..1, got {level}")
    return float(stats.t.isf((1.0 - level) / 2.0, freedom))


def _columns(x: ArrayLike, y: ArrayLike) -> tuple[Floats, Floats]:
    xs = np.asarray(x, dtype=np.float64)
    ys = np.asarray(y, dtype=np.float64)
    if xs.ndim != 1 or xs.shape != ys.shape or not len(xs):
        raise ValueError(f"need one numerator and denominator a cluster: {xs.shape}, {ys.shape}")
    if not (np.isfinite(xs).all() and np.isfinite(ys).all()):
        raise ValueError("sums must be finite")
    if ys.sum() <= 0:
        raise ValueError("denominators must add to more than nothing")
    return xs, ys
