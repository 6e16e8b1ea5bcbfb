"""Lines and columns of a terminal page."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator, Sequence

from specscope.readers.source import SEPARATOR

WIDTH = 80
LONGEST_NAME = 44


def table(
    rows: list[tuple[str, ...]], widths: tuple[int, ...], right: bool = False
) -> Iterator[str]:
    """Columns of the necessary width; if they do not fit, at most the given widths.

    The first column is left-aligned.
    """
    fitted = [max(len(row[i]) for row in rows) for i in range(len(widths))]
    if 2 + sum(fitted) + len(fitted) - 1 > WIDTH:
        fitted = list(map(min, fitted, widths))
    for row in rows:
        cells = []
        for i, (cell, width) in enumerate(zip(row, fitted, strict=True)):
            cut = cell if len(cell) <= width else cell[: width - 1] + "~"
            cells.append(cut.rjust(width) if right and i else cut.ljust(width))
        yield ("  " + " ".join(cells)).rstrip()[:WIDTH]


def wrapped(text: str, first: str, rest: str | None = None) -> list[str]:
    """Lines of at most `WIDTH` columns. No option such as `--spec-type` breaks at a hyphen."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=first if rest is None else rest,
        break_on_hyphens=False,
    )


def printable(text: str) -> str:
    """Strip terminal control sequences from labels, which come from files."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """Short names: the distinct part of each path."""
    shared = os.path.commonpath(list(map(os.path.dirname, paths))) if _local(paths) else ""
    names = {path: os.path.relpath(path, shared) if shared else path for path in paths}
    if len({path.partition(SEPARATOR)[0] for path in paths}) == 1 < len(paths):
        names = {path: path.partition(SEPARATOR)[2] or name for path, name in names.items()}
    return {
        p: n if len(n) <= LONGEST_NAME else "..." + n[3 - LONGEST_NAME :] for p, n in names.items()
    }


def _local(paths: Sequence[str]) -> bool:
    absolute = {os.path.isabs(path) for path in paths}
    return len(absolute) == 1 and all(os.path.dirname(path) for path in paths)
