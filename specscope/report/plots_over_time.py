"""Pictures over many weeks, as SVG text for a self-contained page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from specscope.report.canvas import FAINT, INK, SERIES, label, new_frames, patch, svg

MARKS = {
    "deploy": "#6b46c1",
    "gate": "#1a7f5a",
    "guardrail": "#b3382c",
    "experiment": "#b7791f",
}
"""Colours of what changed."""


@dataclass(frozen=True, slots=True)
class Point:
    """A ratio at a time, with its interval."""

    at: datetime
    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Line:
    """Points of one kind of traffic, oldest first."""

    name: str
    points: Sequence[Point]


@dataclass(frozen=True, slots=True)
class Mark:
    """An event. kind: one of MARKS."""

    at: datetime
    kind: str


def trend(lines: Sequence[Line], marks: Sequence[Mark]) -> str:
    """Verdicts over time, a frame per kind of traffic; vertical lines mark events."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    figure, frames = new_frames(len(lines))
    for frame, line in zip(frames, lines, strict=True):
        frame.axhline(1.0, color=INK, lw=1)
        for mark in marks:
            frame.axvline(_days(mark.at), color=MARKS[mark.kind], lw=1, ls="--", alpha=0.7)
        for point in line.points:
            if point.low is not None and point.high is not None:
                ends = [point.low, point.high]
                frame.plot([_days(point.at)] * 2, ends, color=SERIES[0], lw=1.4, alpha=0.6)
        values = [point.value for point in line.points]
        frame.plot([_days(point.at) for point in line.points], values, "o-", color=SERIES[0],
                   ms=3.5, lw=1.2)  # fmt: skip
        frame.set_title(label(line.name), fontsize=9, loc="left", color=INK)
        locator = AutoDateLocator(maxticks=5)  # type: ignore[no-untyped-call]
        frame.xaxis.set_major_locator(locator)
        frame.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
        frame.grid(axis="y", color=FAINT, lw=0.5)
    kinds = [kind for kind in MARKS if any(mark.kind == kind for mark in marks)]
    if kinds:
        figure.legend(
            [patch(MARKS[kind]) for kind in kinds], kinds, frameon=False, labelcolor=INK,
            ncols=len(kinds), loc="outside lower center",
        )  # fmt: skip
    return svg(
        figure,
        "Speedup of each kind of traffic over time",
        "; ".join(
            f"{line.name} {line.points[0].value:.2f} on {line.points[0].at:%Y-%m-%d}, "
            f"{line.points[-1].value:.2f} on {line.points[-1].at:%Y-%m-%d}"
            for line in lines
        ),
    )


def _days(at: datetime) -> float:
    """A time in matplotlib's unit: days since 1970."""
    return at.timestamp() / 86_400.0
