"""From a report to its pictures: which numbers each of them draws."""

from __future__ import annotations

from specscope.report import plots, plots_over_time
from specscope.report.model import ArmRow, Report


def pictures_of(report: Report) -> dict[str, str]:
    """Each picture as one `<svg>` element, by name; without those that have nothing to show."""
    found = {
        "speedups": plots.speedups(_contrasts(report)),
        "survival": plots.survival(_curves(report)),
        "time_parts": plots.time_parts(_bars(report)),
    }
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


def _curves(report: Report) -> list[plots.Curve]:
    """One a class: its longest draft shows the most positions, its busiest segment the best."""
    best: dict[str, ArmRow] = {}
    for segment in report.segments:
        for arm in segment.arms:
            rival = best.get(segment.label)
            if arm.survival and (rival is None or _evidence(arm) > _evidence(rival)):
                best[segment.label] = arm
    return [plots.Curve(f"{label} ({arm.arm})", arm.survival) for label, arm in best.items()]


def _evidence(arm: ArmRow) -> tuple[int, int]:
    return len(arm.survival), arm.at_risk[0]


def _bars(report: Report) -> list[plots.Bar]:
    return [
        plots.Bar(segment.name, arm.arm, arm.ms_per_token)
        for segment in report.segments
        for arm in segment.arms
        if arm.ms_per_token
    ]


MOST_LINES = 8  # a page has room for; kinds of traffic that were judged most often

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
    often = sorted(lines, key=lambda line: (-len(line.points), line.name))[:MOST_LINES]
    return [line for line in lines if line in often and len(line.points) > 1]


def _marks(report: Report) -> list[plots_over_time.Mark]:
    """What changed, one mark a kind and day."""
    marks = {
        (kind, event.at.date()): plots_over_time.Mark(event.at, kind)
        for event in report.events
        if (kind := "gate" if event.kind in GATE else event.kind) in plots_over_time.MARKS
    }
    return list(marks.values())
