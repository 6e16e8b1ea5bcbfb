"""Rows of a report about all traffic together, and about untried draft lengths."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RatioRow:
    """A ratio of throughputs with its interval. k: the draft length, if there is one."""

    k: int | None
    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class StoryRow:
    """One draft length for all traffic against one per class, at equal tokens per class.

    switches, gate: speedups over target-only. gain: the gate over the best switch. naive_k: the
    longest length, which people enable without measuring. best_k: the best single length.
    """

    load: str
    switches: list[RatioRow]
    naive_k: int
    best_k: int
    gate: RatioRow
    gain: RatioRow
    table: dict[str, int]  # class to draft length


@dataclass(frozen=True, slots=True)
class FleetRow:
    """Ratio of an arm over target-only in all segments that ran both, without an interval.

    pooled: ratio of totals. standardised: ratio at one mix of traffic for both arms. turned:
    whether pooled and standardised lie on different sides of 1 (Simpson's paradox).
    """

    arm: str
    segments: int
    pooled: float
    standardised: float
    turned: bool


@dataclass(frozen=True, slots=True)
class UntriedRow:
    """A draft length that a segment never ran.

    at_best: modelled upper limit of its throughput over target-only, at target-only's batch. worth:
    worth_exploring, below_best (a length that ran is better) or cannot_pay.
    """

    segment: str
    k: int
    at_best: float
    worth: str
