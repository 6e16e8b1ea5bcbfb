"""The whole report and its data sources."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from specscope.report.model.actions import (
    ChangeRow,
    EventRow,
    HowRow,
    KeptReplayRow,
    PromiseRow,
    TrendRow,
)
from specscope.report.model.fleet import FleetRow, StoryRow, UntriedRow
from specscope.report.model.segments import OutputRow, SegmentRow


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """One measured boot: one start of one serving process."""

    replica: str
    engine: str
    target: str
    draft: str | None
    device: str
    started_at: datetime


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """One field over all sampled devices: its mean, and the range that holds 90 % of the samples.

    devices: number of devices with values. reason: why no device has values; empty if one does.
    """

    field: str
    unit: str
    devices: int
    mean: float | None
    low: float | None
    high: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class ThrottlingRow:
    """Share of samples in which a device was slowed down, by cause. [0..1]"""

    cause: str
    share: float
    devices: int


@dataclass(frozen=True, slots=True)
class LossRow:
    """Lost records of one replica and reason."""

    replica: str
    table: str
    reason: str
    count: int | None
    meaning: str


@dataclass(frozen=True, slots=True)
class Accounting:
    """Counts of the records that the hook numbered, that were stored and that were lost."""

    recorded: int
    stored: int
    lost: int

    @property
    def closed(self) -> bool:
        """Whether stored and lost records add up to the recorded ones."""
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
    devices: list[DeviceRow] = field(default_factory=list)
    throttling: list[ThrottlingRow] = field(default_factory=list)
    would_change: list[str] = field(default_factory=list)
    fleet: list[FleetRow] = field(default_factory=list)
    untried: list[UntriedRow] = field(default_factory=list)
    changes: list[ChangeRow] = field(default_factory=list)
    how: HowRow | None = None
    promises: list[PromiseRow] = field(default_factory=list)
    trend: list[TrendRow] = field(default_factory=list)
    kept_replays: list[KeptReplayRow] = field(default_factory=list)
    events: list[EventRow] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
