"""Tests that rest on the coin that ordered the arms of each pair, and on nothing else.

If an arm changed nothing, each pair's contrast would have come out with the other sign as often.
So the distribution of the sum over pairs is known exactly, whatever the noise: skewed, with heavy
tails, or unequal between pairs. The sum of squares does not change with the signs, so the test of
the sum is also that of Student's statistic, which is valid for a mean of unequal effects.
Source: Fisher, The Design of Experiments; Lugannani & Rice 1980 for the tail.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from specscope.evaluate.statistics.ratio import Floats

# Up to so many pairs every assignment of signs is counted.
ENUMERATED = 14
# Bets of the e-value, in root mean squares of a pair's contrast: weak effects to overwhelming ones.
_BETS = np.geomspace(0.05, 6.0, 14)


def null_scores(x1: ArrayLike, y1: ArrayLike, x0: ArrayLike, y0: ArrayLike) -> Floats:
    """[pairs] contrasts whose signs alone depend on the order, if both ratios are equal.

    x1 / y1 against x0 / y0, ratios of sums. The pooled ratio of a pair's blocks is the same in
    either order, so exchanging the arms of a pair turns its score's sign and nothing else.
    """
    a, b, c, d = (np.asarray(column, dtype=np.float64) for column in (x1, y1, x0, y0))
    pooled = (a.sum() + c.sum()) / (b.sum() + d.sum())
    scores: Floats = (a - pooled * b) - (c - pooled * d)
    return scores


def sign_flip_p(scores: ArrayLike) -> float:
    """Two-sided chance of a sum as large under random signs. [2^(1 - pairs)..1]

    Exact up to 14 pairs; beyond, a saddlepoint approximation of the exact distribution, which is
    within a few percent of it far into the tail. 1 where nothing differs.
    """
    values = np.abs(np.asarray(scores, dtype=np.float64))
    total = abs(float(np.sum(scores)))
    values = values[values > 0]
    if not len(values):
        return 1.0
    if len(values) <= ENUMERATED:
        sums = np.array([0.0])
        for value in values:
            sums = np.concatenate([sums + value, sums - value])
        slack = 1e-12 * float(values.sum())
        return float(np.mean(np.abs(sums) >= total - slack))
    return min(1.0, 2.0 * _upper_tail(values / values.max(), total / float(values.max())))


def _upper_tail(values: Floats, total: float) -> float:
    """P(sum of values with random signs >= total) by Lugannani and Rice."""
    least = math.ldexp(1.0, -len(values))
    most = float(values.sum())
    if total >= most * (1.0 - 1e-12):
        return least
    spread = math.sqrt(float(values @ values))
    if total < 1e-6 * spread:
        return 0.5
    low, high = 0.0, 1.0 / float(values.min())
    while float(values @ np.tanh(high * values)) < total and high < 1e6:
        high *= 2.0
    for _ in range(80):
        point = 0.5 * (low + high)
        if float(values @ np.tanh(point * values)) < total:
            low = point
        else:
            high = point
    point = 0.5 * (low + high)
    log_moment = float(np.sum(np.logaddexp(point * values, -point * values) - math.log(2.0)))
    curvature = float(np.sum((values / np.cosh(np.minimum(point * values, 300.0))) ** 2))
    w = math.sqrt(max(0.0, 2.0 * (point * total - log_moment)))
    u = point * math.sqrt(curvature)
    if u < 1e-9 or w < 1e-9:
        return least if w > 1.0 else 0.5
    density = math.exp(-0.5 * w * w) / math.sqrt(2.0 * math.pi)
    tail = float(special.ndtr(-w)) + density * (1.0 / u - 1.0 / w)
    return min(0.5, max(least, tail))


def sign_e_value(contrasts: ArrayLike) -> float:
    """Evidence against "the arm changes nothing", valid at every look and from the first pair on.

    contrasts: [pairs] of each pair alone, in the order of time, such as log ratios. A bet on the
    sign of the next pair, given its size, multiplies the capital: exp(b u) / cosh(b u) for a pair
    of u root mean squares of those so far. The capital is a martingale if signs are coin flips, so
    1 / value is a p-value at any look (Ville). Bets are mixed over sizes and both directions.
    """
    values = np.asarray(contrasts, dtype=np.float64)
    if not len(values):
        return 1.0
    squares = np.array(list(accumulate(values**2)))
    counts = np.arange(1, len(values) + 1)
    scale = np.sqrt(squares / counts)
    units = np.divide(values, scale, out=np.zeros_like(values), where=scale > 0)
    bets = np.concatenate([_BETS, -_BETS])[:, None] * units[None, :]
    size = np.abs(bets)
    logs = np.sum(bets - size - np.log1p(np.exp(-2.0 * size)) + math.log(2.0), axis=1)
    return float(np.exp(min(700.0, special.logsumexp(logs) - math.log(len(logs)))))


def holm_levels(p_values: Sequence[float], level: float) -> list[float]:
    """Level of each of several tests so that all claims together hold at `level`.

    A test at its level rejects exactly where Holm's procedure does: the j-th smallest p-value is
    held against alpha / (m - j + 1) until one fails, and all others against the limit that failed.
    Holds however the tests depend on each other. Source: Holm 1979.
    """
    count = len(p_values)
    order = sorted(range(count), key=lambda i: p_values[i])
    levels = [level] * count
    alpha, failed = 1.0 - level, None
    for rank, i in enumerate(order):
        if failed is None and p_values[i] > alpha / (count - rank):
            failed = alpha / (count - rank)
        levels[i] = 1.0 - (failed if failed is not None else alpha / (count - rank))
    return levels
