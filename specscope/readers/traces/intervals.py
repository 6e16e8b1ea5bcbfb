"""Sets of time as sorted, disjoint intervals."""

from __future__ import annotations

import bisect
from collections.abc import Iterable

Interval = tuple[float, float]


def union(spans: Iterable[Interval]) -> list[Interval]:
    """Disjoint intervals that cover the same time, in order."""
    merged: list[list[float]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        elif end > start:
            merged.append([start, end])
    return [(start, end) for start, end in merged]


def clipped(spans: Iterable[Interval], start: float, end: float) -> list[Interval]:
    """What of the intervals lies between two points."""
    return [(max(s, start), min(e, end)) for s, e in spans if e > start and s < end]


def length(spans: Iterable[Interval]) -> float:
    """Total time of disjoint intervals."""
    return sum(end - start for start, end in spans)


def covered_by(spans: list[Interval], at: float) -> bool:
    """Whether a point lies in one of disjoint, sorted intervals (their end excluded)."""
    place = bisect.bisect_right(spans, at, key=lambda span: span[0])
    return bool(place) and at < spans[place - 1][1]
