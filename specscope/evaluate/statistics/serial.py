"""Errors of a mean whose pairs follow each other: where the mix wanders, so does the effect.

Neighbouring pairs then say nearly the same, and an error that takes them as independent is too
small: of 48 pairs, intervals of nominal 95 % cover 59 to 84 % if half of the variance or all of it
has a memory of 0.5 to 0.7. Here they cover 92 to 96 %, and 96 % without a memory. No error of 20
pairs can know a memory of 0.7: those cover 88 to 92 %.

Two estimates of the long-run variance are joined. The memory of one pair fits a variance that
wanders as a whole; its weights by Newey and West see four pairs back. If the wander lies under
noise, its memory is longer than one pair shows: waves over the whole line see that, and each is a
degree of freedom. They are few, so they count as far as the first estimate sees a memory at all.
Sources: Newey & West 1987; Kendall 1954 on the bias of a memory's estimate; Lazarus, Lewis, Stock &
Watson 2018 on equally weighted cosines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from specscope.evaluate.statistics.ratio import Floats, LogRatio

# Pairs from which on a memory can be told from chance.
FEWEST = 20
LAGS = 4
_STRONGEST = 0.9
# Waves a line: so many times its pairs to the power of two thirds, at least four on few lines.
_WAVES, _FEWEST_WAVES = 0.3, 4
# Waves count in full where neighbours show that half as much again is needed.
_TRUST = 2.0


def widened(contrast: LogRatio, lines: Sequence[int]) -> LogRatio:
    """A contrast whose error allows for what consecutive pairs of a line share.

    lines: [pairs] which line each pair is on, such as its replica's start; pairs of a line stand
    together, in the order of time. The error is never smaller than that of independent pairs, and
    has as many degrees of freedom as pairs of such a memory are worth.
    """
    if contrast.se is None or contrast.pairs < FEWEST:
        return contrast
    total = float(contrast.scores @ contrast.scores)
    if total <= 0.0:
        return contrast
    by_line = _split(contrast.scores, lines)
    ratio = inflation(by_line)
    freedom = max(1.0, contrast.pairs / ratio - 1.0 - contrast.spent)
    waves, number = _by_waves(by_line)
    more = waves * contrast.pairs / total - ratio
    if more > 0.0:
        weight = min(1.0, _TRUST * (ratio - 1.0))
        ratio += weight * more
        freedom = 1.0 / ((1.0 - weight) / freedom + weight / min(freedom, number))
    return replace(contrast, se=contrast.se * math.sqrt(ratio), worth=freedom)


def inflation(by_line: Sequence[Floats]) -> float:
    """Variance of a mean over that of independent pairs, from neighbours. [>= 1]

    by_line: scores around their common mean, not all 0.
    """
    total = math.fsum(float(line @ line) for line in by_line)
    memory = [
        math.fsum(float(line[lag:] @ line[:-lag]) for line in by_line if len(line) > lag) / total
        for lag in range(1, LAGS + 1)
    ]
    weighted = 1.0 + 2.0 * math.fsum(
        (1.0 - lag / (LAGS + 1)) * value for lag, value in enumerate(memory, start=1)
    )
    return max(1.0, weighted, _by_memory(memory[0], sum(map(len, by_line))))


def _by_memory(first: float, pairs: int) -> float:
    """Inflation by the correlation of neighbours, as it is expected given an estimate of it.

    The inflation bends upwards, so by an estimate that errs alike to both sides it is too low: half
    of its second derivative times the estimate's variance is added, less that of no memory.
    """
    memory = min(max(first + (1.0 + 4.0 * first) / pairs, 0.0), _STRONGEST)
    variance = (1.0 + 4.0 / pairs) ** 2 / pairs  # of an estimate of 0, the correction included
    bend = 2.0 * variance * ((1.0 + memory) / (1.0 - memory) ** 2 - 1.0)
    return (1.0 + memory) / (1.0 - memory) + bend


def _by_waves(by_line: Sequence[Floats]) -> tuple[float, int]:
    """Long-run variance of a score from slow waves over each line, and how many they are."""
    longest = max(map(len, by_line))
    fewest = 0 if len(by_line) > _FEWEST_WAVES else min(_FEWEST_WAVES, longest - 1)
    squares, number = 0.0, -1  # the mean over all lines is nothing by construction
    for line in by_line:
        count = min(len(line) - 1, max(fewest, int(_WAVES * len(line) ** (2 / 3))))
        waves = np.arange(count + 1)[:, None] * (np.arange(len(line)) + 0.5) / len(line)
        size = np.where(np.arange(count + 1) > 0, 2.0, 1.0) / len(line)
        squares += float(size @ (np.cos(np.pi * waves) @ line) ** 2)
        number += count + 1
    return (squares / number, number) if number else (0.0, 1)


def _split(scores: Floats, lines: Sequence[int]) -> list[Floats]:
    """Scores of each line, in order."""
    edges = [at for at in range(1, len(lines)) if lines[at] != lines[at - 1]]
    return np.split(scores, edges)
