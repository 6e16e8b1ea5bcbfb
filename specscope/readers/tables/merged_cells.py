"""Merged cells: a title row above the rows of its class, a blank that repeats the cell above, a
header of two lines."""

from __future__ import annotations

import re
from collections.abc import Sequence

from specscope.readers.tables import headers
from specscope.readers.tables.cells import bare, quantity
from specscope.readers.tables.csv_file import name_of
from specscope.readers.tables.names import OFF, ON, WORD, named

Cells = list[str]

_ACCEPTED = re.compile(r"\s*\((?:draft )?acc(?:ept\w*)?\.?(?: rate)?\)\s*$", re.IGNORECASE)
_SPREAD = re.compile(r"\s*\b(?:mean|avg|average)\s*/\s*(?:std|sd|stdev|stddev)\b", re.IGNORECASE)


def spread(header: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[Cells, list[Cells]]:
    """The table with one header line and complete rows."""
    names, cells = list(header), [list(row) for row in rows]
    if cells and _is_second_header(names, cells[0]):
        names, cells = _joined(names, cells[0]), cells[1:]
    for place, name in enumerate(names):
        if _SPREAD.search(name):  # `mean/std` above `37.4/1.5`
            names[place] = _SPREAD.sub("", name)
            cells = [[*r[:place], r[place].replace("/", " ± "), *r[place + 1 :]] for r in cells]
        elif _ACCEPTED.search(name):  # `t/s (accept)` above `246.4 (53.2%)`
            names[place] = _ACCEPTED.sub("", name)
            cells = [
                [*r[:place], r[place].replace("%)", "% accept)"), *r[place + 1 :]] for r in cells
            ]
    return _without_titles(names, _filled_down(names, _with_units(cells)))


def _with_units(rows: list[Cells]) -> list[Cells]:
    """A line that holds nothing but a unit in brackets ends the name above it."""
    found: list[Cells] = []
    for row in rows:
        unit = re.fullmatch(r"\(\S+\)", row[0].strip()) and not any(c.strip() for c in row[1:])
        if unit and found:
            found[-1] = [f"{found[-1][0]} {row[0].strip()}", *found[-1][1:]]
        else:
            found.append(row)
    return found


def _is_second_header(names: Cells, row: Cells) -> bool:
    """Whether the first row names measures below names that repeat or are left blank."""
    told = [cell for cell in row[1:] if cell.strip()]
    repeated = len({name_of(name) for name in names[1:]}) < len(names) - 1
    return repeated and len(told) >= 2 and not any(map(quantity, told))


def _joined(names: Cells, second: Cells) -> Cells:
    """`baseline | | eagle |` above `tok/s | TPOT | tok/s | TPOT` as `baseline tok/s`, ..."""
    found: Cells = []
    above = ""
    for place, (name, below) in enumerate(zip(names, second, strict=True)):
        above = name if name.strip() or not place else above
        found.append(f"{above} {below}".strip() if place else above or below)
    return found


def _filled_down(names: Cells, rows: list[Cells]) -> list[Cells]:
    """A blank in the first column repeats the cell above, except where a blank says "none"."""
    first = name_of(names[0]) if names else ""
    if not first or first in (*headers.DRAFTER, *headers.K):
        return rows
    above = ""
    for row in rows:
        if row[0].strip() or not any(map(quantity, row[1:])):
            above = row[0]
        else:
            row[0] = above
    return rows


def _without_titles(names: Cells, rows: list[Cells]) -> tuple[Cells, list[Cells]]:
    """Move a title into a column of the rows below it: their arm, or else their class."""
    titles = [bool(row[0].strip()) and not any(cell.strip() for cell in row[1:]) for row in rows]
    if len(names) < 2 or not any(titles) or titles[-1]:
        return names, rows
    arms = {named(bare(row[0])).state for row, title in zip(rows, titles, strict=True) if title}
    own = {named(bare(row[0])).state for row, title in zip(rows, titles, strict=True) if not title}
    tell = bool(arms & {ON, OFF, WORD}) and not own & {ON, OFF, WORD}
    taken = {name_of(name) for name in names}
    column = next(n for n in (("arm",) if tell else ()) + _CLASSES if n not in taken)
    found: list[Cells] = []
    above = ""
    for row, title in zip(rows, titles, strict=True):
        if title:
            above = row[0]
        else:
            found.append([*row, above])
    return [*names, column], found


_CLASSES = ("label", "scenario", "category", "title")
