"""Rows of a report about all traffic together, and about what nobody ran."""

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

    switches, gate: over target-only; gain: the gate over the best switch. naive_k: the length
    that is switched on without measuring, the longest; best_k: the best single length.
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
    """An arm over target-only in all segments that ran both. [ratio] No intervals.

    pooled: ratio of totals. standardised: ratio at one mix of traffic for both arms. turned:
    whether the two lie on different sides of 1 (Simpson's paradox).
    """

    arm: str
    segments: int
    pooled: float
    standardised: float
    turned: bool


@dataclass(frozen=True, slots=True)
class UntriedRow:
    """A draft length that a segment never ran. at_best: of its throughput over target-only at the
    batch that target-only ran, modelled.

    worth: worth_exploring, below_best (than a length that ran) or cannot_pay.
    """

    segment: str
    k: int
    at_best: float
    worth: str
