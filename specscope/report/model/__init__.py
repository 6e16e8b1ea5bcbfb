"""The content of a report as plain values.

`report.json` holds these fields one by one; the page and the terminal are views of them.
"""

from specscope.report.model.actions import (
    ChangeRow,
    EventRow,
    HowRow,
    Interval,
    KeptReplayRow,
    PromiseRow,
    TrendPoint,
    TrendRow,
    Worth,
)
from specscope.report.model.fleet import FleetRow, RatioRow, StoryRow, UntriedRow
from specscope.report.model.report import (
    Accounting,
    DeviceRow,
    LossRow,
    ReplicaRow,
    Report,
    ThrottlingRow,
)
from specscope.report.model.segments import (
    ArmRow,
    CauseOddsRow,
    CauseRow,
    FlagRow,
    LossCauses,
    OutputRow,
    Percentile,
    Quality,
    ReasonRow,
    SegmentRow,
    TradeoffRow,
)

SCHEMA = "specscope.report/1"

__all__ = [
    "SCHEMA", "Accounting", "ArmRow", "CauseOddsRow", "CauseRow", "ChangeRow", "DeviceRow",
    "EventRow", "FlagRow", "FleetRow", "HowRow", "Interval", "KeptReplayRow", "LossCauses",
    "LossRow", "OutputRow", "Percentile", "PromiseRow", "Quality", "RatioRow", "ReasonRow",
    "ReplicaRow", "Report", "SegmentRow", "StoryRow", "ThrottlingRow", "TradeoffRow", "TrendPoint",
    "TrendRow", "UntriedRow", "Worth",
]  # fmt: skip
