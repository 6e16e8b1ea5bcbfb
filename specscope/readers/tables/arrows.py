"""Cells that go from one arm to another: `24 -> 41 tok/s`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from specscope.readers.tables import headers
from specscope.readers.tables.cells import quantity, ratio_of, steps
from specscope.readers.tables.names import OFF, ON, WORD, is_drafter, named
from specscope.readers.tables.schema import resolve
from specscope.readers.tables.sentences import switched_in
from specscope.readers.tables.table import Table
from specscope.readers.tables.units import unit_of_cells

_FIGURE = re.compile(r"\d\s?(?:s|ms|tok\S*|t/s|tps)\b|\d\.\d")
"""A figure, which is no name of an arm."""

_VERSUS = re.compile(r"^\W*(.{3,60}?)\s(?:vs\.?|versus|over|against)\s(.{3,80})$", re.IGNORECASE)
AGREES = 0.02
"""A change is printed in whole percents."""


def arrow_columns(table: Table) -> dict[str, str]:
    """The measure of each column whose cells go from one arm to another, by column."""
    found = {}
    for name in table.names:
        cells = [row[name] for row in table.rows if row.get(name)]
        pairs = [
            cell for cell in cells if len(steps(cell)) == 2 and all(map(quantity, steps(cell)))
        ]
        metric = headers.metric_of(name)
        if metric is None and pairs and all(unit_of_cells(steps(cell)) for cell in pairs):
            metric = "throughput_tok_s"
        if metric and pairs and len(pairs) * 2 > len(cells):
            found[name] = headers.MEASURES[metric][0]
    return found


def by_arrow(
    table: Table, row: Mapping[str, str], arrows: Mapping[str, str]
) -> Iterator[dict[str, str]]:
    """One row per side of the arrows, named by what stands above them."""
    shared = {n: c for n, c in row.items() if n not in arrows and len(steps(c)) < 2}
    own = {c for places in resolve(list(shared)).metrics.values() for c, _ in places}
    shared = {n: c for n, c in shared.items() if n not in own}
    texts = [table.said(name) for name in arrows] + list(table.context)
    arrowed = [found for text in texts if len(found := steps(text)) == 2]
    sides = next((found for found in arrowed if not any(map(_FIGURE.search, found))), None)
    pairs = [*map(switched_in, [*texts, table.caption]), _compared(texts, table, arrows)]
    switched = (pair for pair in pairs if pair)
    sides = sides or list(next(switched, ("before", "after")))
    for side in (0, 1):
        said = re.sub(
            r"(?i)\b(?:tok(?:en)?s?\s?/\s?s(?:ec)?|tps|ms|tpot|throughput)\b", " ", sides[side]
        )
        one = {n: steps(row[n])[side] for n in arrows if len(steps(row.get(n))) == 2}
        yield {
            **shared,
            "arm": " ".join(said.split())[-60:] or f"side {side + 1}",
            **{arrows[n]: c for n, c in one.items()},
        }


def _compared(
    texts: Sequence[str], table: Table, arrows: Mapping[str, str]
) -> tuple[str, str] | None:
    """(baseline, arm) of a heading `MTP vs base`, if every cell states its change with a sign: the
    change is the arm's against its baseline, so the arrow ends at the arm."""
    cells = [row[name] for row in table.rows for name in arrows if row.get(name)]
    for text in texts:
        pair = _VERSUS.match(text)
        if pair is None:
            continue
        arm, base = pair.group(1).strip(), re.split(r"[:(]", pair.group(2))[0].strip()
        states = named(arm).state, named(pair.group(2)).state
        more = set(re.findall(r"\w+", arm.lower())) - set(re.findall(r"\w+", base.lower()))
        told = states[0] == ON and states[1] in (OFF, WORD) and all(map(is_drafter, more))
        versioned = named(arm).versioned or named(base).versioned
        return (base, arm) if told and not versioned and all(map(_states_change, cells)) else None
    return None


def _states_change(cell: str) -> bool:
    """Whether a step gives its own change (`7.6 -> 16.2 t/s (+112%)`)."""
    sides = steps(cell)
    before, after = (quantity(side) for side in (sides[0], sides[-1]))
    said = ratio_of(" ".join(re.findall(r"\(([^()]*)\)", cell)))
    signed = bool(re.search(r"\([+−–-]\s?\d", cell))
    if not (signed and said and before and after and before.value > 0):
        return False
    return abs(after.value / before.value / said - 1) < AGREES
