"""Rows of a report about what to do, what came of it, and what changed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Interval:
    """A quantity with its interval; low and high are None if unknown."""

    value: float
    low: float | None
    high: float | None

    @property
    def inverse(self) -> Interval:
        """A ratio seen from the other side."""
        return Interval(
            1.0 / self.value,
            None if self.high is None else 1.0 / self.high,
            None if self.low is None else 1.0 / self.low,
        )


@dataclass(frozen=True, slots=True)
class Worth:
    """What a change gains, at the traffic of the report's period scaled to a week.

    metric: what the speedup is of, in words. speedup: the new arm over the old one.
    tokens_per_second: more of them, of one busy replica; None if the engine keeps up with its
    arrivals. token_time_p95_ms: 95th percentile of time per token before and after; None if
    unknown. replica_hours, gpu_hours: that a week's tokens no longer keep busy; money: their
    price, None if the engine keeps up and so pays for idle time.
    """

    metric: str
    speedup: Interval
    tokens_per_second: Interval | None
    token_time_p95_ms: tuple[float | None, float | None]
    replica_hours: Interval | None
    gpu_hours: Interval | None
    money: Interval | None


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """A proposed change of the gate's table, and its worth.

    rule: enable, raise, lower, disable, route or adopt. arm: of a table that replaces the whole
    table in force; None if one cell changes. cell: the cell of the table, in words.
    """

    segment: str
    rule: str
    old_k: int
    new_k: int
    arm: str | None
    grade: str
    confidence: str
    pairs: int
    cell: str
    worth: Worth | None


@dataclass(frozen=True, slots=True)
class HowRow:
    """Instructions: the difference of the tables, the command, and settings of engines that read
    their table at start."""

    diff: list[str]
    command: str
    engine_flags: dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class PromiseRow:
    """A verdict of an earlier week, and the speedup that later pairs measured.

    speedup: of arm over baseline, as promised and as measured again; measured is None if no such
    pair ran. until: end of the stretch that was measured again. current: the draft length in force
    now; None if unknown. outcome: held (the effect has the same sign beyond doubt), more or less
    (than promised, with 95 % confidence), open (too few pairs to tell) or not_measured.
    """

    segment: str
    at: datetime
    until: datetime
    action: str
    k: int | None
    arm: str
    promised: Interval
    measured: Interval | None
    pairs: int
    current: int | None
    outcome: str


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """The last verdict of a day: speedup of the arm that it is based on; NULL if it had none."""

    at: datetime
    epoch: str
    action: str
    k: int | None
    speedup: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class TrendRow:
    """The verdicts on one kind of traffic, oldest first, over every epoch."""

    segment: str
    points: list[TrendPoint]


@dataclass(frozen=True, slots=True)
class KeptReplayRow:
    """Verdict of a kept replay on one class; label is empty for all traffic.

    speedup: of `arm` over `baseline`, as a client saw it. trace: digest of what was sent.
    """

    at: datetime
    label: str
    arm: str
    baseline: str
    action: str
    k: int | None
    grade: str
    confidence: str
    speedup: Interval | None
    metric: str
    requests: int
    trace: str
    epoch: str


@dataclass(frozen=True, slots=True)
class EventRow:
    """A change of the gate, a deploy, a guardrail or an experiment.

    Those of one kind, note and day on many replicas are one; replica: empty for all.
    """

    at: datetime
    kind: str
    replica: str
    author: str
    note: str
    replicas: int = 1
