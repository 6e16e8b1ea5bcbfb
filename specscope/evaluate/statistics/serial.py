"""Errors of a mean whose pairs follow each other: where the mix wanders, so does the effect.

Neighbouring pairs then say nearly the same, and an error that takes them as independent is too
small: intervals of nominal 95 % cover 73 to 84 % if half of the variance or all of it has a memory
of 0.5. The larger of two estimates of the long-run variance covers 92 to 94 %.
Source: Newey & West 1987; for the memory of one pair, Kendall 1954 on the bias of its estimate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from specscope.evaluate.statistics.ratio import Floats, LogRatio

# Pairs from which on a memory can be told from chance.
FEWEST = 20
LAGS = 4
_STRONGEST = 0.8


def widened(contrast: LogRatio, lines: Sequence[int]) -> LogRatio:
    """A contrast whose error allows for what consecutive pairs of a line share.

    lines: [pairs] which line each pair is on, such as its replica's start; pairs of a line are in
    the order of time. Never smaller than the error of independent pairs.
    """
    if contrast.se is None or contrast.pairs < FEWEST:
        return contrast
    return replace(contrast, se=contrast.se * math.sqrt(inflation(contrast.scores, lines)))


def inflation(scores: Floats, lines: Sequence[int]) -> float:
    """Long-run variance of a mean over that of independent pairs. [>= 1]"""
    total = float(scores @ scores)
    if total <= 0.0:
        return 1.0
    memory = [_product(scores, lines, lag) / total for lag in range(1, LAGS + 1)]
    weighted = 1.0 + 2.0 * math.fsum(
        (1.0 - lag / (LAGS + 1)) * value for lag, value in enumerate(memory, start=1)
    )
    first = memory[0] + (1.0 + 4.0 * memory[0]) / len(scores)
    first = min(max(first, 0.0), _STRONGEST)
    return max(1.0, weighted, (1.0 + first) / (1.0 - first))


def _product(scores: Floats, lines: Sequence[int], lag: int) -> float:
    """Sum of products of pairs so many places apart on one line."""
    return math.fsum(
        float(scores[i] * scores[i - lag])
        for i in range(lag, len(scores))
        if lines[i] == lines[i - lag]
    )
