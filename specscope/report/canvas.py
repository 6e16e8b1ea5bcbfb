"""How the report's pictures look: the page's colours, bare axes, and SVG with words beside it."""

from __future__ import annotations

import hashlib
import io
import re
import warnings
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#1f2933"
FAINT = "#c8d0d8"
WIN, LOSS, UNCLEAR = "#1a7f5a", "#b3382c", "#5b6875"
SERIES = ("#2b6cb0", "#b7791f", "#6b46c1", "#1a7f5a", "#b3382c", "#4a5568", "#0987a0", "#97266d")
FILL = "#e4e9ee"
PAGE_COLOURS = {
    INK: "--ink", FAINT: "--line", WIN: "--win", LOSS: "--loss", UNCLEAR: "--soft", FILL: "--fill",
    "#2b6cb0": "--blue", "#b7791f": "--amber", "#6b46c1": "--violet", "#4a5568": "--slate",
    "#0987a0": "--teal", "#97266d": "--pink",
}  # fmt: skip
"""Colours that the page names, so that they change with it between light and dark."""


LONGEST_LABEL = 44  # letters that fit beside a chart


def label(name: str) -> str:
    """A name as a chart's label: shortened, without control characters or formulas."""
    plain = "".join(letter for letter in name if letter.isprintable()).replace("$", r"\$")
    return plain if len(plain) <= LONGEST_LABEL else f"{plain[: LONGEST_LABEL - 1]}…"


def new_frames(count: int) -> tuple[Figure, list[Axes]]:
    """Create small frames in two columns with a shared horizontal axis; at least one."""
    from matplotlib.figure import Figure

    count = max(1, count)
    down = -(-count // 2)
    figure = Figure(figsize=(7.6, 0.7 + 1.6 * down), layout="constrained")
    grid = figure.subplots(down, min(2, count), sharex=True, squeeze=False)
    frames = list(grid.flat)
    for unused in frames[count:]:
        unused.set_visible(False)
    for frame in frames[:count]:
        bare(frame)
    return figure, frames[:count]


def new_figure(width: float, height: float) -> tuple[Figure, Axes]:
    # The object interface draws without pyplot's global state and without a display.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    bare(axes)
    return figure, axes


def bare(axes: Axes) -> None:
    """Axes in the page's colours, without a box."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(INK)
    axes.tick_params(labelsize=9, colors=INK)
    axes.xaxis.label.set_color(INK)
    axes.yaxis.label.set_color(INK)


def patch(colour: str) -> Any:
    from matplotlib.patches import Patch

    return Patch(color=colour)


def svg(figure: Figure, title: str, text: str) -> str:
    """Render the `<svg>` element with a title and a description for screen readers.

    Its colours are the page's, so that it is readable on a dark page too.
    """
    from matplotlib import rc_context

    file = io.StringIO()
    # A letter that the measuring font lacks is still text: browsers have fonts of their own.
    with (
        warnings.catch_warnings(),
        rc_context({"svg.fonttype": "none", "font.family": "sans-serif", "svg.hashsalt": title}),
    ):
        warnings.simplefilter("ignore", UserWarning)
        figure.savefig(file, format="svg", metadata={"Date": None}, transparent=True)
    drawn = file.getvalue()[file.getvalue().index("<svg") :]
    for colour, name in PAGE_COLOURS.items():
        drawn = drawn.replace(colour, f"var({name})")
    # Identifiers of one page are unique; those of two pictures are not.
    salt = hashlib.sha256(title.encode()).hexdigest()[:8]
    drawn = re.sub(r'id="([^"]+)"', rf'id="{salt}-\1"', drawn)
    drawn = re.sub(r'(href="#|url\(#)([^")]+)', rf"\g<1>{salt}-\g<2>", drawn)
    said = "".join(letter for letter in text if letter.isprintable())
    names = f"<title>{escape(title)}</title><desc>{escape(said)}</desc>"
    head, rest = drawn.split(">", 1)
    return f'{head} role="img" aria-label="{escape(title)}">{names}{rest}'
