"""Many comparisons at once: which to believe, which to list, and how to order them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


def bonferroni(level: float, comparisons: int) -> float:
    """Level of each of several intervals that shall hold together. Holds however they depend."""
    if comparisons < 1:
        raise ValueError(f"comparisons must be at least 1, got {comparisons}")
    return 1.0 - (1.0 - level) / comparisons


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


def benjamini_hochberg(p_values: Sequence[float], q: float) -> list[bool]:
    """Which to list so that at most the share q of the list is false, in the order given.

    For independent or positively dependent tests at a fixed time. Source: Benjamini & Hochberg
    1995.
    """
    _check(q)
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    last = 0
    for rank, i in enumerate(order, start=1):
        if p_values[i] <= q * rank / len(p_values):
            last = rank
    listed = set(order[:last])
    return [i in listed for i in range(len(p_values))]


def e_benjamini_hochberg(e_values: Sequence[float], q: float) -> list[bool]:
    """The same from e-values (inverse sequential p-values), under any dependence.

    The largest k with e_(k) >= m / (q k). Source: Wang & Ramdas 2022.
    """
    _check(q)
    order = sorted(range(len(e_values)), key=lambda i: -e_values[i])
    last = 0
    for rank, i in enumerate(order, start=1):
        if e_values[i] >= len(e_values) / (q * rank):
            last = rank
    listed = set(order[:last])
    return [i in listed for i in range(len(e_values))]


@dataclass(frozen=True, slots=True)
class Shrunk:
    """Estimates drawn towards their common mean: for order and display, never for a decision.

    heterogeneity: Cochran's Q. between: variance between the true values. They hide the small
    segment that is on fire.
    """

    mean: float
    between: float
    heterogeneity: float
    values: tuple[float, ...]


def shrink(values: Sequence[float], errors: Sequence[float]) -> Shrunk:
    """Random-effects shrinkage. values: log ratios; errors: their standard errors, positive.

    Source: DerSimonian & Laird 1986.
    """
    if len(values) != len(errors) or not values or min(errors) <= 0:
        raise ValueError("every value needs a positive standard error")
    weights = [1.0 / e**2 for e in errors]
    total = math.fsum(weights)
    fixed = math.fsum(w * y for w, y in zip(weights, values, strict=True)) / total
    q = math.fsum(w * (y - fixed) ** 2 for w, y in zip(weights, values, strict=True))
    scale = total - math.fsum(w**2 for w in weights) / total
    between = max(0.0, (q - (len(values) - 1)) / scale) if scale > 0 else 0.0
    joint = [1.0 / (between + e**2) for e in errors]
    mean = math.fsum(w * y for w, y in zip(joint, values, strict=True)) / math.fsum(joint)
    drawn = tuple(
        mean + (y - mean) * between / (between + e**2) for y, e in zip(values, errors, strict=True)
    )
    return Shrunk(mean, between, q, drawn)


def _check(q: float) -> None:
    if not 0.0 < q < 1.0:
        raise ValueError(f"q must be within 0..1, got {q}")
