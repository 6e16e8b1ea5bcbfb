"""Pictures of one week, as SVG text for a self-contained page.

Each function takes plain numbers and returns one `<svg>` element.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from specscope.report.canvas import (
    FAINT,
    FILL,
    INK,
    LOSS,
    SERIES,
    UNCLEAR,
    WIN,
    label,
    new_figure,
    new_frames,
    patch,
    svg,
)

PARTS = {
    "draft": "#b7791f",
    "verify": "#2b6cb0",
    "sample": "#6b46c1",
    "idle": "#c8d0d8",
    "catchup": "#0987a0",
    "prefill": "#8fa3b5",
    "unseen": FILL,
}
"""Colours of a round's parts, in the order in which they are stacked."""


GAP = "\u2003"  # between names; browsers would collapse several spaces


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
    """Survival at draft positions 1, 2, …: the share of rounds that kept at least that many tokens.

    low, high: its interval; None if unknown.
    """

    name: str
    survival: Sequence[float]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()


@dataclass(frozen=True, slots=True)
class Survivals:
    """The curves of one kind of traffic, one per draft length. k: draft length in force; None if
    unknown."""

    segment: str
    curves: Sequence[Curve]
    k: int | None = None


@dataclass(frozen=True, slots=True)
class Bar:
    """Where the time of one arm of one segment goes, in milliseconds per output token."""

    segment: str
    arm: str
    parts: dict[str, float]


def speedups(contrasts: Sequence[Contrast]) -> str:
    """A line per arm, grouped by segment. Speculation loses on the left of 1 and wins on its
    right."""
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
            labels.append(f"{label(segment)}{GAP}{label(row.arm)}")
            height -= 1.0
        height -= 0.6
    axes.axvline(1.0, color=INK, lw=1)
    axes.set_yticks(ticks, labels)
    axes.set_ylim(min(ticks, default=0.0) - 0.7, 0.7)
    axes.set_xlabel("speedup, target-only = 1")
    axes.grid(axis="x", color=FAINT, lw=0.5)
    return svg(
        figure,
        "Speedup of each draft length against target-only",
        "; ".join(f"{row.segment} {row.arm} {row.value:.2f}" for row in contrasts),
    )


def survival(segments: Sequence[Survivals]) -> str:
    """Acceptance by position, a frame per kind of traffic; a dashed line at the k in force."""
    figure, frames = new_frames(len(segments))
    names = list(dict.fromkeys(curve.name for one in segments for curve in one.curves))
    colours = dict(zip(names, cycle(SERIES), strict=False))
    longest = max((len(c.survival) for one in segments for c in one.curves), default=1)
    for frame, one in zip(frames, segments, strict=True):
        for curve in one.curves:
            positions = list(range(1, len(curve.survival) + 1))
            colour = colours[curve.name]
            frame.plot(positions, curve.survival, "o-", color=colour, ms=3, lw=1.3)
            ends = zip(positions, curve.low, curve.high, strict=False)
            known = [
                (j, low, high) for j, low, high in ends if low is not None and high is not None
            ]
            if known:
                at, low, high = zip(*known, strict=True)
                frame.fill_between(at, low, high, color=colour, alpha=0.18, lw=0)
        if one.k:
            frame.axvline(one.k, color=INK, lw=1, ls="--")
        frame.set_ylim(0, 1)
        frame.set_xlim(0.7, longest + 0.3)
        frame.set_xticks(range(1, longest + 1))
        frame.set_title(label(one.segment), fontsize=9, loc="left", color=INK)
        frame.grid(color=FAINT, lw=0.5)
    figure.supxlabel("position in the draft", fontsize=9, color=INK)
    figure.supylabel("share of rounds", fontsize=9, color=INK)
    if names:
        handles = [patch(colours[name]) for name in names]
        figure.legend(handles, [label(name) for name in names], frameon=False, fontsize=9,
                      labelcolor=INK, ncols=len(names), loc="outside upper center")  # fmt: skip
    return svg(
        figure,
        "Acceptance by draft position",
        "; ".join(
            f"{one.segment} {curve.name} {', '.join(f'{share:.0%}' for share in curve.survival)}"
            for one in segments
            for curve in one.curves
        ),
    )


def time_parts(bars: Sequence[Bar]) -> str:
    """Stacked bars: the time per output token in each arm, split by the parts of a round."""
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
            labels.append(f"{label(segment)}{GAP}{label(row.arm)}")
            height -= 1.0
        height -= 0.6
    used = [part for part in PARTS if any(bar.parts.get(part) for bar in bars)]
    handles = [patch(PARTS[part]) for part in used]
    axes.legend(
        handles,
        used,
        frameon=False,
        labelcolor=INK,
        ncols=min(4, len(used)) or 1,  # seven in a row are wider than the picture
        loc="lower center",
        bbox_to_anchor=(0.45, 1.0),
    )
    axes.set_yticks(ticks, labels)
    axes.set_xlabel("milliseconds per output token")
    axes.grid(axis="x", color=FAINT, lw=0.5)
    return svg(
        figure,
        "Time of a round by part",
        "; ".join(
            f"{bar.segment} {bar.arm} {sum(bar.parts.values()):.2f} ms per token" for bar in bars
        ),
    )


def _by_segment(rows: Iterable[Any]) -> Iterable[tuple[str, list[Any]]]:
    groups: dict[str, list[Any]] = {}
    for row in rows:
        groups.setdefault(row.segment, []).append(row)
    return groups.items()


def _groups(rows: Iterable[Any]) -> int:
    return len({row.segment for row in rows})
