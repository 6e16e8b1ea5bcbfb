"""Times of rounds, pooled per input: a log has one entry per request."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

from specscope.readers.records import TimeParts

_PER_ROUND = (
    "round_ms",
    "draft_ms",
    "verify_ms",
    "sample_ms",
    "idle_ms",
    "idle_share",
    "trace_coverage",
)


class Times:
    """Means per round, weighted by rounds, and sums of parts."""

    def __init__(self) -> None:
        self._first: dict[str, TimeParts] = {}
        self._rounds: Counter[str] = Counter()
        self._sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._parts: dict[str, Counter[str]] = defaultdict(Counter)

    def add(self, time: TimeParts) -> None:
        """Add one entry; an entry without rounds has the weight of one round."""
        self._first.setdefault(time.input, time)
        self._rounds[time.input] += time.rounds or 0
        weight = float(time.rounds or 1)
        for name in _PER_ROUND:
            value = getattr(time, name)
            if value is not None:
                entry = self._sums[time.input, name]
                entry[0] += value * weight
                entry[1] += weight
        for part, ms in time.parts_ms.items():
            self._parts[time.input][part] += ms  # type: ignore[assignment]

    def all(self) -> list[TimeParts]:
        """One entry per input."""
        return [self._pooled(input, first) for input, first in self._first.items()]

    def _pooled(self, input: str, first: TimeParts) -> TimeParts:
        means: dict[str, Any] = {}
        for name in _PER_ROUND:
            total, weight = self._sums.get((input, name), (0.0, 0.0))
            means[name] = total / weight if weight else None
        rounds = self._rounds[input] or None
        return replace(first, rounds=rounds, parts_ms=dict(self._parts[input]), **means)
