"""Select the numbers of a report that each picture draws."""

from __future__ import annotations

from specscope.report import plots, plots_over_time
from specscope.report.model import Report, SegmentRow

MOST_FRAMES = 12  # that a picture of small frames has room for


def pictures_of(report: Report) -> dict[str, str]:
    """Render each picture as one `<svg>` element, by name; empty pictures are left out."""
    found = {}
    if contrasts := _contrasts(report):
        found["speedups"] = plots.speedups(contrasts)
    if bars := _bars(report):
        found["time_parts"] = plots.time_parts(bars)
    if survivals := _survivals(report):
        found["survival"] = plots.survival(survivals)
    if lines := _lines(report):
        found["trend"] = plots_over_time.trend(lines, _marks(report))
    return found


def _contrasts(report: Report) -> list[plots.Contrast]:
    return [
        plots.Contrast(segment.name, arm.arm, arm.speedup, arm.low, arm.high)
        for segment in report.segments
        for arm in segment.arms
        if arm.speedup is not None
    ]


def _survivals(report: Report) -> list[plots.Survivals]:
    """Kinds of traffic with a curve, those with the most tested rounds first."""
    frames = [
        plots.Survivals(
            segment.name,
            [
                plots.Curve(arm.arm, arm.survival, arm.survival_low, arm.survival_high)
                for arm in segment.arms
                if arm.survival
            ],
            segment.current,
        )
        for segment in sorted(report.segments, key=_tested, reverse=True)
    ]
    chosen = [one for one in frames if one.curves][:MOST_FRAMES]
    order = [segment.name for segment in report.segments]
    return sorted(chosen, key=lambda one: order.index(one.segment))


def _tested(segment: SegmentRow) -> int:
    """Rounds that tested their first position."""
    return sum(arm.at_risk[0] for arm in segment.arms if arm.at_risk)


def _bars(report: Report) -> list[plots.Bar]:
    return [
        plots.Bar(segment.name, arm.arm, arm.ms_per_token)
        for segment in report.segments
        for arm in segment.arms
        if arm.ms_per_token
    ]


GATE = ("policy", "rollback", "detach")


def _lines(report: Report) -> list[plots_over_time.Line]:
    """Kinds of traffic with a speedup on two days or more."""
    lines = [
        plots_over_time.Line(
            row.segment,
            [
                plots_over_time.Point(one.at, one.speedup, one.low, one.high)
                for one in row.points
                if one.speedup is not None
            ],
        )
        for row in report.trend
    ]
    often = sorted(lines, key=lambda line: (-len(line.points), line.name))[:MOST_FRAMES]
    return [line for line in lines if line in often and len(line.points) > 1]


def _marks(report: Report) -> list[plots_over_time.Mark]:
    """Events, one mark per kind and day."""
    marks = {
        (kind, event.at.date()): plots_over_time.Mark(event.at, kind)
        for event in report.events
        if (kind := "gate" if event.kind in GATE else event.kind) in plots_over_time.MARKS
    }
    return list(marks.values())
