"""Confidence sequences: intervals that hold at any time, however often you look.

A fixed-time interval that is checked after every pair is wrong in a third of all runs. The
asymptotic confidence sequence below covers the true value at all looks jointly, at about 1.55 times
the width. It assumes a known spread of pairs. To correct for that at the first looks and for
correlated pairs, it is widened by Student's t over the normal quantile. Source: Waudby-Smith,
Arbour, Sinha, Kennedy & Ramdas (arXiv 2103.06476).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from scipy import optimize, special

from specscope.evaluate.statistics.ratio import Floats, LogRatio, t_quantile

# Below this the asymptotics do not hold; with skewed pair scores, from thirty on.
FIRST_LOOK = 20
FIRST_LOOK_SKEWED = 30
TIGHTEST_AT = 100
_FEWEST_OF_A_PART = 5
# Share of the error of the test of signs, which needs no first look; the sequence has the rest.
SIGN_SHARE = 0.1
# Level of the fixed interval that says how much wider an estimated spread makes one.
_USUAL = 0.95
# Where a p-value is searched: alpha, and log of alpha.
_WEAKEST, _STRONGEST = 0.3, -300.0


def tightest_rho2(look: float, alpha: float, exact: bool = True) -> float:
    """The mixture variance that minimises the width after `look` pairs. [> 0]

    exact: use Lambert's W; otherwise the usual approximation, about 3 % smaller.
    """
    _check(look, alpha)
    if exact:
        branch = special.lambertw(-(alpha**2) * math.exp(-1.0), k=-1)
        return float((-branch.real - 1.0) / look)
    doubled = -2.0 * math.log(alpha)
    return (doubled + math.log(doubled + 1.0)) / look


def margin(pairs: float, alpha: float = 0.05, rho2: float | None = None) -> float:
    """Half-width after `pairs`, in standard deviations of one pair.

    sqrt(2 (t r + 1) / (t^2 r) * log(sqrt(t r + 1) / alpha)), t = pairs, r = rho2 (default: the
    tightest one at 100 pairs for this alpha).
    """
    _check(pairs, alpha)
    rho = tightest_rho2(TIGHTEST_AT, alpha) if rho2 is None else rho2
    scaled = pairs * rho + 1.0
    return math.sqrt(2.0 * scaled / (pairs**2 * rho) * (0.5 * math.log(scaled) - math.log(alpha)))


def margin_from(pairs: float, first: float, alpha: float = 0.05) -> float:
    """Half-width after `pairs`, in standard deviations of one pair, if the first look comes at
    `first`.

    Skipped looks cost no error, so the interval is narrower at the first looks than `margin`.

    sqrt((a^2 + log(t / first)) / t), with 2 (1 - Phi(a) + a phi(a)) = alpha. ValueError for fewer
    pairs than `first`. Source: Robbins 1970, Statistical methods related to the law of the iterated
    logarithm.
    """
    _check(pairs, alpha)
    if pairs < first:
        raise ValueError(f"pairs must be {first:g} at least, got {pairs}")
    return math.sqrt((_crossed(alpha) ** 2 + math.log(pairs / first)) / pairs)


@lru_cache(maxsize=256)
def _crossed(alpha: float) -> float:
    """The parameter a of `margin_from`."""

    def excess(a: float) -> float:
        density = math.exp(-0.5 * a * a) / math.sqrt(2.0 * math.pi)
        return 2.0 * (float(special.ndtr(-a)) + a * density) - alpha

    return float(optimize.brentq(excess, 0.0, 40.0))


def reach(length: float, alpha: float = 0.05, spent: int = 0, first: float | None = None) -> float:
    """Half-width after `length` pairs, in estimated standard deviations of one pair.

    It is `margin`, or `margin_from` if `first` is given, times a factor. The factor is Student's t
    quantile divided by the normal quantile, both of a fixed 95 % interval. spent: degrees of
    freedom used by estimates other than the mean.
    """
    freedom = length - 1.0 - spent
    half = margin(length, alpha) if first is None else margin_from(length, first, alpha)
    return half * t_quantile(_USUAL, freedom) / t_quantile(_USUAL, math.inf)


def interval(
    contrast: LogRatio, alpha: float = 0.05, first: float | None = None
) -> tuple[float, float] | None:
    """Interval of the log ratio, valid at any time. None before the first look is allowed.

    Correlated pairs count as their effective number of independent pairs. first: as in `reach`; the
    result is None for a shorter sequence.
    """
    if contrast.se is None or contrast.pairs - contrast.spent < first_look(contrast):
        return None
    length = _length(contrast)
    if first is not None and length < first:
        return None
    half = contrast.se * math.sqrt(length) * reach(length, alpha, contrast.spent, first)
    return contrast.delta - half, contrast.delta + half


def half_width(
    se: float | None, scores: Floats, alpha: float = 0.05, spent: int = 0
) -> float | None:
    """Half-width of the interval of a mean or a ratio of sums. None before the first look is
    allowed.

    se: standard error. scores: [clusters] contribution of each cluster, summing to 0.
    """
    clusters = len(scores)
    if se is None or clusters - spent < _first_look(scores):
        return None
    return se * math.sqrt(clusters) * reach(clusters, alpha, spent)


def half_width_of_sum(
    parts: Sequence[tuple[float | None, Floats]], alpha: float, first: float | None = None
) -> float | None:
    """Half-width of the interval of a sum of independent estimates. None before the first look is
    allowed.

    parts: se and scores of each, as in `half_width`. All pairs form one sequence: the variances
    add, and its length is the Satterthwaite number of pairs. Each part needs five pairs; all parts
    together need as many as one sequence. first: as in `reach`; the result is None for a shorter
    sequence.
    """
    if any(se is None or len(scores) < _FEWEST_OF_A_PART for se, scores in parts):
        return None
    variances = [(se or 0.0) ** 2 for se, _ in parts]
    total = math.fsum(variances)
    if sum(len(scores) for _, scores in parts) < max(_first_look(scores) for _, scores in parts):
        return None
    if total == 0.0:
        return 0.0
    spread = math.fsum(v**2 / len(scores) for v, (_, scores) in zip(variances, parts, strict=True))
    length = total**2 / spread
    if first is not None and length < first:
        return None
    return math.sqrt(total * length) * reach(length, alpha, first=first)


def p_value(contrast: LogRatio) -> float:
    """Smallest alpha at which the sequence excludes a difference of 0. [0..1]

    It is 1 below 20 pairs. Without an effect, the random order makes a pair's contrast symmetric.
    So skewed scores delay an interval but not this test.
    """
    if contrast.pair_sd is None or contrast.freedom + 1 < FIRST_LOOK:
        return 1.0
    if contrast.pair_sd == 0:
        return 1.0 if contrast.delta == 0 else 0.0
    length = _length(contrast)
    distance = abs(contrast.delta) / ((contrast.se or 0.0) * math.sqrt(length))
    if reach(length, _WEAKEST, contrast.spent) >= distance:
        return 1.0
    low, high = _STRONGEST, math.log(_WEAKEST)
    if reach(length, math.exp(low), contrast.spent) < distance:
        return math.exp(low)
    for _ in range(40):
        middle = 0.5 * (low + high)
        if reach(length, math.exp(middle), contrast.spent) < distance:
            high = middle
        else:
            low = middle
    return math.exp(high)


def first_look(contrast: LogRatio) -> int:
    """Number of pairs before the first look: 20, or 30 if the pair scores are skewed.

    Each degree of freedom that a covariate uses adds one pair.
    """
    return _first_look(contrast.scores)


def _length(contrast: LogRatio) -> float:
    """Number of pairs of the sequence; for correlated pairs, their effective number."""
    if contrast.worth is None:
        return contrast.pairs
    return min(contrast.pairs, contrast.worth + 1.0 + contrast.spent)


def _first_look(scores: Floats) -> int:
    return FIRST_LOOK_SKEWED if abs(_skewness(scores)) > 1.0 else FIRST_LOOK


def _skewness(scores: Floats) -> float:
    centred = scores - scores.mean()
    spread = float((centred**2).mean())
    if spread <= 1e-300:
        return 0.0
    return float((centred**3).mean()) / math.pow(spread, 1.5)


def _check(pairs: float, alpha: float) -> None:
    if pairs <= 0:
        raise ValueError(f"pairs must be positive, got {pairs}")
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha must be within 0..1, got {alpha}")
