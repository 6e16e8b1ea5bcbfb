"""Named intervals of time."""

from __future__ import annotations

import bisect
from dataclasses import dataclass

DEEPEST = 16
"""Annotations nest a few deep; further back none can be around a point."""


@dataclass(frozen=True, slots=True)
class Span:
    """An interval in microseconds; `key` is the launch (correlation id) of device work."""

    start: float
    end: float
    name: str
    key: int | None = None


def starts_before(spans: list[Span], at: float) -> Span | None:
    """The last of spans, sorted by start, that starts at or before a point in time."""
    place = bisect.bisect_right(spans, at, key=lambda span: span.start)
    return spans[place - 1] if place else None


def starts_after(spans: list[Span], at: float) -> Span | None:
    """The first of spans, sorted by start, that starts after a point in time."""
    place = bisect.bisect_right(spans, at, key=lambda span: span.start)
    return spans[place] if place < len(spans) else None


def innermost(spans: list[Span], at: float) -> Span | None:
    """The innermost of properly nested spans, sorted by start, around a point in time."""
    place = bisect.bisect_right(spans, at, key=lambda span: span.start)
    for span in reversed(spans[max(0, place - DEEPEST) : place]):
        if span.end >= at:
            return span
    return None
