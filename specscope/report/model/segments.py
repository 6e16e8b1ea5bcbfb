"""Rows of a report about one kind of traffic: its verdict, its arms, its causes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from specscope.assess import SegmentAnswer


@dataclass(frozen=True, slots=True)
class Percentile:
    """A percentile with its interval; None if unknown."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class TradeoffRow:
    """One metric of an arm and of its baseline; ratio: arm / baseline, > 1 is worse.

    worsens: whether the interval lies above 1.
    """

    metric: str
    arm: str
    baseline: str
    before: float
    after: float
    ratio: float
    low: float | None
    high: float | None
    worsens: bool


@dataclass(frozen=True, slots=True)
class ArmRow:
    """One draft length within a segment. speedup, low and high are NULL for target-only.

    cost_per_million: of a million output tokens, in the currency of the Boot's price; None
    without a price, and where the engine was not busy, since paid idle time is nobody's token.
    cost_difference: that less target-only's, None for target-only. held_equal: traffic that was
    held equal between the arms, in words; unadjusted: the plain speedup beside it.

    Views of the arm, which never stratify a speedup because the arm itself changes them:
    acceptance, accepted over proposed; queue, mean requests that wait during a round;
    queue_delay_ms, mean time from arrival to the first token; token_time_p95_ms, of requests;
    bandwidth, bytes that the rounds had to move per second of their verify passes; dram_active,
    share of time that the device's memory was busy. survival_low, survival_high: 95 % interval of
    `survival`; None if unknown. break_even: tokens per round at which the arm would be as fast as
    target-only.
    """

    arm: str
    k: int | None  # None for an arm that follows a table
    pairs: int
    batch: float  # mean sequences a round
    tokens_per_round: float | None
    tokens_per_second: float | None
    speedup: float | None
    low: float | None
    high: float | None
    chunk_gap_p95_ms: float | None
    ms_per_token: dict[str, float]  # by part of the round; sums to the whole
    survival: list[float]  # of positions 1, 2, …
    at_risk: list[int]  # rounds in which that position was tested
    cost_per_million: float | None = None
    cost_difference: float | None = None
    held_equal: str = ""
    unadjusted: float | None = None
    acceptance: float | None = None
    queue: float | None = None
    queue_delay_ms: float | None = None
    token_time_p95_ms: Percentile | None = None
    survival_low: list[float | None] = field(default_factory=list)
    survival_high: list[float | None] = field(default_factory=list)
    bandwidth: float | None = None
    dram_active: float | None = None
    break_even: float | None = None


@dataclass(frozen=True, slots=True)
class Quality:
    """What weakens a segment's evidence.

    lost_share: lost records of its replicas, 0..1; None if unknown per replica. tails: boots that
    ended without closing their ring.
    """

    lost_share: float | None = None
    tails: int = 0


@dataclass(frozen=True, slots=True)
class CauseRow:
    """One cause of a loss. speedup: what the arm would reach without it, with its 95 % interval;
    flips: that it gains. evidence: what shows it, in words; numbers: the same as values."""

    cause: str
    speedup: float
    flips: bool
    evidence: str
    low: float | None = None
    high: float | None = None
    numbers: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CauseOddsRow:
    """A cause that may be the largest.

    odds: share of resampled pairs in which it is; None if its reference is not known, so that it
    is not ruled out. speedup: what the arm would reach without it; at most, if odds is None.
    needs: columns or blocks that would tell.
    """

    cause: str
    odds: float | None
    speedup: float | None
    needs: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class LossCauses:
    """Why one arm loses: every cause that was seen, the largest gain first.

    primary: the cause that is named alone, or `no_single_fix`; None if the rivals stand together.
    unseen: causes that could not be looked for, so that they are not ruled out, each with the
    columns or blocks that would tell.
    """

    arm: str
    speedup: float
    primary: str | None
    cause_odds: list[CauseOddsRow]
    causes: list[CauseRow]
    unseen: dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class OutputRow:
    """Outputs of one arm compared with target-only's, and target-only's compared with themselves.

    state: equal, as_twins, undecided or differs. excess: share that differs beyond target-only's
    own, with its interval.
    """

    label: str
    arm: str
    state: str
    compared: int
    differing: int
    twins: int
    twins_differing: int
    excess: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class ReasonRow:
    """One reason of a verdict: its code, the arm that it is about, its numbers, its sentence."""

    code: str
    arm: str | None
    numbers: dict[str, Any]
    text: str


@dataclass(frozen=True, slots=True)
class FlagRow:
    """A reason not to believe the input: its code and its sentence."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class SegmentRow(SegmentAnswer):
    """The answer for one kind of traffic, and every arm that it is based on.

    metric: what its speedups are of, in words. causes: of every arm that loses. quality: what
    weakens it.
    """

    name: str
    reasons: list[ReasonRow]
    arms: list[ArmRow]
    causes: list[LossCauses] = field(default_factory=list)
    metric: str = ""
    flags: list[FlagRow] = field(default_factory=list)
    tradeoffs: list[TradeoffRow] = field(default_factory=list)
    quality: Quality = field(default_factory=Quality)
