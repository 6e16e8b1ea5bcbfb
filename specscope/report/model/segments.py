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
    """One draft length within a segment. speedup, low and high are None for target-only.

    cost_per_million: price of a million output tokens, in the currency of the boot's price. It is
    None without a price, and if the engine was not busy, because idle time has no tokens.
    cost_difference: cost_per_million minus target-only's; None for target-only. held_equal: the
    differences in traffic that the speedup is corrected for, in words. unadjusted: the uncorrected
    speedup.

    The following fields describe the arm. They never stratify a speedup, because the arm changes
    them. acceptance: accepted over proposed. queue: mean number of waiting requests.
    queue_delay_ms: mean time from arrival to the first token. token_time_p95_ms: 95th percentile
    over requests. bandwidth: bytes that the rounds had to move, per second of their verify passes.
    dram_active: share of time in which the device's memory was busy. survival_low, survival_high:
    95 % interval of `survival`; None if unknown. break_even: tokens per round at which the arm
    equals target-only.
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
    """Losses that weaken a segment's evidence.

    lost_share: lost records of its replicas, 0..1; None if unknown per replica. tails: number of
    boots that ended without closing their ring.
    """

    lost_share: float | None = None
    tails: int = 0


@dataclass(frozen=True, slots=True)
class CauseRow:
    """One cause of a loss.

    speedup: the arm's speedup without this cause, with its 95 % interval. flips: whether that
    speedup is a gain. evidence: the observation, in words; numbers: the observation, as values."""

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

    odds: share of resamples in which this cause is the largest. None if its reference is unknown;
    then it is not ruled out, and speedup is an upper limit. speedup: the arm's speedup without this
    cause. needs: missing columns or blocks.
    """

    cause: str
    odds: float | None
    speedup: float | None
    needs: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class LossCauses:
    """Why one arm loses: all detected causes, the largest gain first.

    primary: the single cause that the evidence names, or `no_single_fix`; None if several causes
    compete. unseen: causes that could not be checked and are not ruled out, each with the missing
    columns or blocks.
    """

    arm: str
    speedup: float
    primary: str | None
    cause_odds: list[CauseOddsRow]
    causes: list[CauseRow]
    unseen: dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class OutputRow:
    """Outputs of one arm compared with target-only, and of target-only compared with itself (A/A).

    state: equal, as_twins, undecided or differs. excess: share of differing outputs minus that of
    A/A, with its interval.
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
    """One reason of a verdict: its code, its arm, its numbers and its sentence."""

    code: str
    arm: str | None
    numbers: dict[str, Any]
    text: str


@dataclass(frozen=True, slots=True)
class FlagRow:
    """A reason to distrust the input: its code and its sentence."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class SegmentRow(SegmentAnswer):
    """The answer for one kind of traffic, and every arm that it is based on.

    metric: the metric of its speedups, in words. causes: causes of every losing arm. quality:
    losses that weaken the evidence.
    """

    name: str
    reasons: list[ReasonRow]
    arms: list[ArmRow]
    causes: list[LossCauses] = field(default_factory=list)
    metric: str = ""
    flags: list[FlagRow] = field(default_factory=list)
    tradeoffs: list[TradeoffRow] = field(default_factory=list)
    quality: Quality = field(default_factory=Quality)
