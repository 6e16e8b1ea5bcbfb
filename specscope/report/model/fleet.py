"""Rows of a report about all traffic together, and about what nobody ran."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RatioRow:
    """A throughput over another, with its interval. k: the draft length, where there is one."""

    k: int | None
    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class StoryRow:
    """One switch for all traffic against a gate per class, at equal tokens per class.

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

    pooled: of the totals as they came. standardised: with both arms given the same mix of
    traffic. turned: that these two lie on either side of 1 (Simpson's paradox).
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
