"""Tests that are based on the coin that ordered the arms of each pair, and on nothing else.

If an arm changed nothing, each pair's contrast would have come out with the other sign as often.
So the distribution of the sum over pairs is known exactly, whatever the noise: skewed, with heavy
tails, or unequal between pairs. The sum of squares does not change with the signs, so the test of
the sum is also that of Student's statistic, which is valid for a mean of unequal effects.
Source: Fisher, The Design of Experiments; Lugannani & Rice 1980 for the tail.
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
    """Two-sided chance of a sum as large under random signs. [2^(1 - pairs)..1]

    Exact up to 14 pairs; beyond, a saddlepoint approximation of the exact distribution, which is
    within a few percent of it far into the tail. 1 if nothing differs.
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
    return _capital(contrasts, np.concatenate([_BETS, -_BETS]))


def loss_e_value(contrasts: ArrayLike) -> float:
    """The same against "the arm is no slower": all bets are on its loss.

    If the arm is faster and the noise of a pair symmetric around that with one peak, a loss of any
    size is rarer than a gain of the same size, so the capital shrinks in the mean.
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
    """Of "the arm changes nothing", two-sided. [0..1] None for a single pair looked at once.

    Looked at once: by random signs from 20 pairs on, before that by Student's t, whose
    distribution these signs approach and which small samples resolve. looked_at_often: valid at
    every look, from the exact capital of bets on signs and the confidence sequence, which have a
    tenth and nine tenths of the error.
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
