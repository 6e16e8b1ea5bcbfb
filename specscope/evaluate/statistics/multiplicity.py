"""Joint levels for many comparisons."""

from __future__ import annotations

from collections.abc import Sequence


def bonferroni(level: float, comparisons: int) -> float:
    """Level of each of several intervals that must hold jointly, under any dependence."""
    if comparisons < 1:
        raise ValueError(f"comparisons must be at least 1, got {comparisons}")
    return 1.0 - (1.0 - level) / comparisons


def holm_levels(p_values: Sequence[float], level: float) -> list[float]:
    """Level of each of several tests, so that all claims hold jointly at `level`.

    A test at its level rejects exactly if Holm's procedure does. With m tests and alpha = 1 -
    level, the procedure compares the j-th smallest p-value with alpha / (m - j + 1), until a test
    fails. All later tests get the limit of the test that failed.
    Tests with equal p-values share the strictest of their levels. The result holds under any
    dependence. Source: Holm 1979.
    """
    count = len(p_values)
    order = sorted(range(count), key=lambda i: p_values[i])
    levels = [level] * count
    limit, failed = 0.0, False
    for rank, i in enumerate(order):
        if not failed and (rank == 0 or p_values[i] > p_values[order[rank - 1]]):
            limit = (1.0 - level) / (count - rank)
            failed = p_values[i] > limit
        levels[i] = 1.0 - limit
    return levels
