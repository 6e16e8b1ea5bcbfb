"""Pictures of one week, as SVG text that a page can carry inside itself.

Each takes plain numbers and returns one `<svg>` element; none knows where they came from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from specscope.report.canvas import FAINT, INK, LOSS, SERIES, UNCLEAR, WIN, new_figure, patch, svg

PARTS = {
    "draft": "#b7791f",
    "verify": "#2b6cb0",
    "sample": "#6b46c1",
    "idle": "#c8d0d8",
    "catchup": "#0987a0",
    "prefill": "#8fa3b5",
    "unseen": "#e4e9ee",
}
"""Colours of a round's parts, in the order in which they are stacked."""


@dataclass(frozen=True, slots=True)
class Contrast:
    """One arm of one segment against target-only: a ratio with its interval."""

    segment: str
    arm: str
    value: float
    low: float | None  # None where one pair alone gives no interval
    high: float | None


@dataclass(frozen=True, slots=True)
class Curve:
    """Survival of draft positions 1, 2, …: the share of rounds that kept at least so many."""

    name: str
    survival: Sequence[float]


@dataclass(frozen=True, slots=True)
class Bar:
    """Where the time of one arm of one segment goes, in milliseconds an output token."""

    segment: str
    arm: str
    parts: dict[str, float]


def speedups(contrasts: Sequence[Contrast]) -> str:
    """A line an arm, grouped by segment; left of 1 speculation loses, right of it it wins."""
    figure, axes = new_figure(7.6, 0.9 + 0.24 * len(contrasts) + 0.16 * _groups(contrasts))
    height, ticks, labels = 0.0, [], []
    for segment, rows in _by_segment(contrasts):
        for row in rows:
            colour = UNCLEAR
            if row.low is not None and row.high is not None:
                colour = WIN if row.low > 1 else LOSS if row.high < 1 else UNCLEAR
                axes.plot([row.low, row.high], [height, height], color=colour, lw=2, alpha=0.75)
            axes.plot([row.value], [height], "o", color=colour, ms=4.5)
            ticks.append(height)
            labels.append(f"{segment}   {row.arm}")
            height -= 1.0
        height -= 0.6
    axes.axvline(1.0, color=INK, lw=1)
    axes.set_yticks(ticks, labels)
    axes.set_xlabel("speedup, target-only = 1")
    axes.grid(axis="x", color=FAINT, lw=0.5)
    return svg(
        figure,
        "Speedup of each draft length against target-only",
        "; ".join(f"{row.segment} {row.arm} {row.value:.2f}" for row in contrasts),
    )


def survival(curves: Sequence[Curve]) -> str:
    """Acceptance by position, all classes in one frame."""
    figure, axes = new_figure(7.6, 3.2)
    for colour, curve in zip(SERIES, curves, strict=False):
        positions = range(1, len(curve.survival) + 1)
        axes.plot(positions, curve.survival, "o-", color=colour, ms=4, lw=1.6, label=curve.name)
    longest = max((len(curve.survival) for curve in curves), default=1)
    axes.set_xticks(range(1, longest + 1))
    axes.set_ylim(0, 1)
    axes.set_xlabel("position in the draft")
    axes.set_ylabel("share of rounds that keep it")
    axes.grid(color=FAINT, lw=0.5)
    if curves:
        axes.legend(frameon=False, labelcolor=INK, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return svg(
        figure,
        "Acceptance by draft position",
        "; ".join(
            f"{curve.name} {', '.join(f'{share:.0%}' for share in curve.survival)}"
            for curve in curves
        ),
    )


def time_parts(bars: Sequence[Bar]) -> str:
    """Stacked bars: what an output token costs in each arm, and on what it is spent."""
    figure, axes = new_figure(7.6, 0.9 + 0.26 * len(bars) + 0.16 * _groups(bars))
    height, ticks, labels = 0.0, [], []
    for segment, rows in _by_segment(bars):
        for row in rows:
            left = 0.0
            for part, colour in PARTS.items():
                width = row.parts.get(part, 0.0)
                axes.barh(height, width, left=left, color=colour, height=0.78)
                left += width
            ticks.append(height)
            labels.append(f"{segment}   {row.arm}")
            height -= 1.0
        height -= 0.6
    used = [part for part in PARTS if any(bar.parts.get(part) for bar in bars)]
    handles = [patch(PARTS[part]) for part in used]
    axes.legend(
        handles,
        used,
        frameon=False,
        labelcolor=INK,
        ncols=len(used) or 1,
        loc="lower center",
        bbox_to_anchor=(0.45, 1.0),
    )
    axes.set_yticks(ticks, labels)
    axes.set_xlabel("milliseconds an output token")
    axes.grid(axis="x", color=FAINT, lw=0.5)
    return svg(
        figure,
        "Where the time of a round goes",
        "; ".join(
            f"{bar.segment} {bar.arm} {sum(bar.parts.values()):.2f} ms a token" for bar in bars
        ),
    )


def _by_segment(rows: Iterable[Any]) -> Iterable[tuple[str, list[Any]]]:
    groups: dict[str, list[Any]] = {}
    for row in rows:
        groups.setdefault(row.segment, []).append(row)
    return groups.items()


def _groups(rows: Iterable[Any]) -> int:
    return len({row.segment for row in rows})
