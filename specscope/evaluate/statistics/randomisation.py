"""Randomisation tests, which rely only on the random order of the arms in each pair.

If an arm changes nothing, both signs of a pair's contrast are equally likely. So the distribution
of the sum over pairs is known exactly for any noise: skewed, with heavy tails, or unequal between
pairs. Signs do not change the sum of squares, so this is also a test of Student's statistic. As
such, it is valid for a mean of unequal effects. Source: Fisher, The Design of Experiments;
Lugannani & Rice 1980 for the tail.
"""

from __future__ import annotations

import math
from itertools import accumulate

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from specscope.evaluate.statistics import sequential
from specscope.evaluate.statistics.ratio import Floats, LogRatio

# Up to so many pairs every assignment of signs is counted.
ENUMERATED = 14
# Pairs from which the exact test resolves any level that many comparisons ask for.
EXACT_FROM = 20
# Bets of the e-value, in root mean squares of a pair's contrast: weak effects to overwhelming ones.
_BETS = np.geomspace(0.05, 6.0, 14)
# The same of a test that only stops what is worse: few bets, so that the worst stops early.
_LOSS_BETS = np.geomspace(0.25, 4.0, 5)


def sign_flip_p(scores: ArrayLike) -> float:
    """Two-sided p-value of a sum under random signs. [2^(1 - pairs)..1]

    It is exact up to 14 pairs. Beyond that it is a saddlepoint approximation, within a few percent
    of the exact value far into the tail. Returns 1 if all contrasts are 0.
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
    """e-value against "the arm changes nothing", valid at any time and from the first pair.

    contrasts: [pairs] contrast of each pair, such as its log ratio, in the order of time. A bet b
    on the sign of the next pair multiplies the capital by exp(b u) / cosh(b u); u is the pair's
    contrast over the root mean square so far. Under random signs the capital is a martingale, so 1
    / value is a p-value at any time (Ville). The value averages bets of several sizes and both
    directions.
    """
    return _capital(contrasts, np.concatenate([_BETS, -_BETS]))


def loss_e_value(contrasts: ArrayLike) -> float:
    """e-value against "the arm is no slower": all bets are on a loss.

    It assumes symmetric noise with one peak. If the arm is faster, a loss of any size is then rarer
    than a gain of that size, so the expected capital shrinks.
    """
    return _capital(contrasts, -_LOSS_BETS)


def _capital(contrasts: ArrayLike, sizes: Floats) -> float:
    values = np.asarray(contrasts, dtype=np.float64)
    if not len(values):
        return 1.0
    squares = np.array(list(accumulate(values**2)))
    counts = np.arange(1, len(values) + 1)
    scale = np.sqrt(squares / counts)
    units = np.divide(values, scale, out=np.zeros_like(values), where=scale > 0)
    bets = sizes[:, None] * units[None, :]
    size = np.abs(bets)
    logs = np.sum(bets - size - np.log1p(np.exp(-2.0 * size)) + math.log(2.0), axis=1)
    return float(np.exp(min(700.0, np.logaddexp.reduce(logs) - math.log(len(logs)))))


def p_value(contrast: LogRatio, looked_at_often: bool = False) -> float | None:
    """Two-sided p-value of "the arm changes nothing". [0..1] None for a single pair looked at once.

    Evidence looked at once uses random signs for at least 20 pairs, and Student's t for fewer,
    because few signs allow only coarse p-values. looked_at_often: valid at any time. It combines
    the sign e-value (10 % of the error) and the confidence sequence (90 %).
    """
    if looked_at_often:
        signs = 1.0 / sign_e_value(contrast.own)
        if float(np.sum(contrast.own)) * contrast.delta <= 0.0:
            signs = 1.0
        sums = sequential.p_value(contrast)
        p = min(1.0, signs / sequential.SIGN_SHARE, sums / (1.0 - sequential.SIGN_SHARE))
        return max(p, math.ldexp(1.0, 1 - contrast.pairs))  # no order of so many is rarer
    if contrast.pairs < EXACT_FROM:
        return contrast.p_value()
    if len(contrast.null):
        return sign_flip_p(contrast.null)
    return sign_flip_p(contrast.delta + contrast.pairs * contrast.scores)
