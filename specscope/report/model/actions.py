"""Rows of a report about proposed actions, the outcome of past verdicts, and events."""

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
        """The inverse ratio: the baseline over the arm."""
        return Interval(
            1.0 / self.value,
            None if self.high is None else 1.0 / self.high,
            None if self.low is None else 1.0 / self.low,
        )


@dataclass(frozen=True, slots=True)
class Worth:
    """The gain of a change, for the traffic of the report's period scaled to a week.

    metric: the deciding metric, in words. speedup: the new arm over the old one. tokens_per_second:
    additional output of one busy replica; None if the engine keeps up with its arrivals.
    token_time_p95_ms: 95th percentile of time per token before and after; None if unknown.
    replica_hours, gpu_hours: busy hours saved per week. money: the price of these hours; None if
    the engine keeps up, because its idle time costs the same.
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

    rule: enable, raise, lower, disable, route or adopt. arm: the arm whose table replaces the whole
    table in force; None if a single cell changes. cell: the cell, in words.
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

    speedup: the promised ratio of arm over baseline. measured: the same ratio from later pairs;
    None if no such pair ran. until: end of the period of the later pairs. current: the draft length
    in force now; None if unknown. outcome: held (same sign, with 95 % confidence), more or less
    (than promised, with 95 % confidence), open (too few pairs) or not_measured.
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
    """The last verdict of a day, with the speedup of its arm; None if it had no speedup."""

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

    speedup: ratio of `arm` over `baseline`, measured at the client. trace: digest of the requests.
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

    Events of equal kind, note and day are merged over replicas. replica: empty for merged events.
    """

    at: datetime
    kind: str
    replica: str
    author: str
    note: str
    replicas: int = 1
