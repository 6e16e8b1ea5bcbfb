"""What a report says, before it is drawn: plain values, ready for JSON.

`report.json` is this, field by field; the page and the terminal are views of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from specscope.assess import SegmentAnswer

SCHEMA = "specscope.report/1"


@dataclass(frozen=True, slots=True)
class Percentile:
    """A percentile with its interval; None if unknown."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class TradeoffRow:
    """One metric of an arm beside its baseline; ratio: after over before, > 1 is worse.

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
    queue_delay_ms, mean time from arrival to the first token; token_time_p95_ms, of requests.
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
    """Outputs of one arm beside target-only's of the same requests, and its own from itself.

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
    """The answer for one kind of traffic, and every arm that it rests on.

    metric: what its speedups are of, in words. causes: of every arm that loses.
    """

    name: str
    reasons: list[ReasonRow]
    arms: list[ArmRow]
    causes: list[LossCauses] = field(default_factory=list)
    metric: str = ""
    flags: list[FlagRow] = field(default_factory=list)
    tradeoffs: list[TradeoffRow] = field(default_factory=list)


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


@dataclass(frozen=True, slots=True)
class Interval:
    """A quantity with its interval; low and high are None if unknown."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Worth:
    """What a change gains, at the traffic of the report's period scaled to a week.

    metric: what the speedup is of, in words. speedup: the new arm over the old one.
    tokens_per_second: more of them, of one busy replica; None where the engine keeps up with its
    arrivals. token_time_p95_ms: 95th percentile of time per token before and after; None if
    unknown. replica_hours, gpu_hours: that a week's tokens no longer keep busy; money: their
    price, None where the engine keeps up and so pays for idle time.
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
    """A change of the gate's table that the evidence asks for, and its worth.

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
    """How the changes are made: lines of the table's difference, the command, and by engine the
    settings of those that read a table at their start."""

    diff: list[str]
    command: str
    engine_flags: dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class EventRow:
    """A change of the gate, a deploy, a guardrail or an experiment in the period."""

    at: datetime
    kind: str
    replica: str
    author: str
    note: str


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """What was measured: one boot of one serving process."""

    replica: str
    engine: str
    target: str
    draft: str | None
    device: str
    started_at: datetime


@dataclass(frozen=True, slots=True)
class LossRow:
    """Records that are gone, beside the numbers that they weaken."""

    replica: str
    table: str
    reason: str
    count: int | None
    meaning: str


@dataclass(frozen=True, slots=True)
class Accounting:
    """Record numbers handed out by the hook, and where they went."""

    recorded: int
    stored: int
    lost: int

    @property
    def closed(self) -> bool:
        """Whether nothing is unaccounted for."""
        return self.recorded == self.stored + self.lost


@dataclass(frozen=True, slots=True)
class Report:
    """The whole report."""

    title: str
    created_at: datetime
    since: datetime | None
    until: datetime | None
    headline: str
    global_action: str
    still_needed: list[str]
    segments: list[SegmentRow]
    stories: list[StoryRow]
    replicas: list[ReplicaRow]
    losses: list[LossRow]
    accounting: Accounting
    outputs_compared: int
    outputs_differing: int
    outputs_state: str | None = None  # the worst of `outputs`; None where none were compared
    outputs: list[OutputRow] = field(default_factory=list)
    would_change: list[str] = field(default_factory=list)
    fleet: list[FleetRow] = field(default_factory=list)
    untried: list[UntriedRow] = field(default_factory=list)
    changes: list[ChangeRow] = field(default_factory=list)
    how: HowRow | None = None
    events: list[EventRow] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
