"""Runs one below the other, each a heading that names its arm and lines of figures with their
names: `### With MTP`, `- Output tokens/s: 71.9`, `- Acceptance rate: 68%`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from specscope.readers.tables import headers
from specscope.readers.tables.above import HEADING, LONGEST_LINE
from specscope.readers.tables.cells import bare, quantity
from specscope.readers.tables.csv_file import name_of
from specscope.readers.tables.names import OFF, ON, WORD, named

LONGEST_HEADING = 80
MOST_BLOCKS = 64

_FIGURE = re.compile(
    r"^[\s>*•+-]{0,12}(?P<name>[^:=|]{2,60}?)\s{0,20}[:=]\s{0,40}(?P<figure>[~≈]?\d[^|=]{0,40})$"
)
_SPEED_OR_SENTENCE = re.compile(r"[.!?]\s|\d\s?(?:tok\S*/s|t/s|tps|ms)\b")


class Blocks(NamedTuple):
    """Rows of one table: the arm's heading, then its figures by name."""

    header: list[str]
    rows: list[list[str]]
    last: int
    """The number of the last line."""


def blocks_of_figures(lines: Sequence[str], place: int) -> Blocks | None:
    """The runs from a heading on; None unless one speculates, one does not, and both measure one
    thing."""
    runs: list[tuple[str, dict[str, str]]] = []
    heading, last = "", place
    for number in range(place, len(lines)):
        text = bare(lines[number][:LONGEST_LINE])
        figure = _FIGURE.match(text)
        told = figure and headers.metric_of(name_of(figure.group("name")))
        if figure and heading and not named(figure.group("name")).state:
            if not runs or runs[-1][0] != heading:
                if told is None and not runs:
                    return None  # the first line under a heading is a figure that is known
                runs.append((heading, {}))
            runs[-1][1].setdefault(figure.group("name").strip(" *"), figure.group("figure").strip())
            last = number
        elif text and named(text).state in (ON, OFF, WORD) and _is_heading(text):
            heading = HEADING.sub(r"\2", text).strip(" *:")
        elif text and not runs:
            return None
        elif text:
            break
        if len(runs) > MOST_BLOCKS:
            break
    return _table(runs, last)


def _is_heading(text: str) -> bool:
    return len(text) <= LONGEST_HEADING and not re.search(
        r"[.!?]\s|\d\s?(?:tok\S*/s|t/s|tps|ms)\b", text
    )


def _table(runs: Sequence[tuple[str, dict[str, str]]], last: int) -> Blocks | None:
    states = [named(heading).state for heading, _ in runs]
    if ON not in states or not set(states) & {OFF, WORD}:
        return None
    known = [
        {m for name, figure in figures.items() if quantity(figure)
         and (m := headers.metric_of(name_of(name))) in headers.SPEEDS}
        for _, figures in runs
    ]  # fmt: skip
    if not set.intersection(*known):
        return None
    names = list(dict.fromkeys(name for _, figures in runs for name in figures))
    rows = [[heading, *(figures.get(name, "") for name in names)] for heading, figures in runs]
    return Blocks(["arm", *names], rows, last)
