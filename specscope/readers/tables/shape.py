"""Tables that are not one row per arm: a column per arm, a column per load, a row per metric.

Each is turned into one row per arm and class, which is all that `bench_table` reads.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from specscope.readers.tables import column_rules, columns
from specscope.readers.tables.cells import quantity
from specscope.readers.tables.csv_file import name_of
from specscope.readers.tables.names import k_of, role_of
from specscope.readers.tables.schema import TOKEN_RATES, resolve
from specscope.readers.tables.wide import arms_in, unfolded

_METRIC_HEADERS = {
    "metric",
    "metrics",
    "key",
    "item",
    "measure",
    "statistic",
    "indicator",
    "parameter",
}
_STATISTICS = re.compile(
    r"^(?:avg|mean|average|value|result|min|max|std|p\d\d|median|count|unit|total)$"
)
_MEANS = ("value", "result", "avg", "mean", "average")
_UNITS = {**dict.fromkeys(TOKEN_RATES, "tok_s"), "ms/token": "tpot_ms", "ms/tok": "tpot_ms"}
_QUANTITIES = {
    "tokens", "prefill", "prompt", "prompts", "params", "size", "memory", "vram", "gb", "gib",
    "mb", "mib", "layers", "runs", "samples", "requests", "block", "depth", "rows", "errors",
}  # fmt: skip
"""A column of one of these describes the row; it is no arm."""

AGREES = math.log(1.03)
"""A ratio and the printed speedup may be rounded apart by this much."""


@dataclass(frozen=True, slots=True)
class Table:
    """Normalised names, rows of bare cells, and the line above the table."""

    names: Sequence[str]
    rows: Sequence[Mapping[str, str]]
    caption: str = ""
    printed: Mapping[str, str] = field(default_factory=dict)
    """Normalised name to the header as printed."""


def long_rows(table: Table) -> list[dict[str, str]]:
    """One row per arm and class; the rows as they are where they are that already."""
    if is_transposed(table):
        return list(_by_column(table))
    classes = {} if arms_in(table.names) else _class_columns(table)
    if classes:
        return [one for row in table.rows for one in _by_class(row, classes)]
    arms = arms_in(table.names) or _arm_columns(table)
    if arms:
        return [one for row in _labelled(table) for one in unfolded(row, arms)]
    return [dict(row) for row in table.rows]


def _labelled(table: Table) -> list[Mapping[str, str]]:
    """The rows of a table whose arms are columns: each row is a class, told by its first cell."""
    first = table.names[0]
    schema = resolve([first])
    if "label" in table.names or schema.measures or schema.dimensions or schema.k:
        return list(table.rows)
    said = table.printed.get(first, first)

    def label(cell: str) -> str:
        return f"{said} {cell}".strip() if quantity(cell) else cell

    return [
        {"label": label(row.get(first, "")), **{n: cell for n, cell in row.items() if n != first}}
        for row in table.rows
    ]


def is_transposed(table: Table) -> bool:
    """Whether the first column names metrics and the others are arms."""
    if len(table.names) < 2 or not table.rows:
        return False
    first, *others = table.names
    cells = [name_of(row.get(first, "")) for row in table.rows]
    metrics = resolve(cells)
    measured = len(metrics.metrics)
    by_header = first in _METRIC_HEADERS and measured >= 1
    by_cells = measured >= 2 and not resolve(others).metrics and not resolve([first]).metrics
    return by_header or by_cells


def _by_column(table: Table) -> Iterator[dict[str, str]]:
    first, *others = table.names
    kept = [name for name in others if name and not column_rules.is_delta(name)]
    if kept and all(_STATISTICS.match(name) for name in kept):
        kept = [next((name for name in _MEANS if name in kept), kept[0])]
        arm = {kept[0]: ""}
    elif kept and all(column_rules.class_of(name) for name in kept):
        for name in kept:
            dimension, value = column_rules.class_of(name) or ("", 0)
            row = {name_of(cells.get(first, "")): cells.get(name, "") for cells in table.rows}
            yield {dimension: str(value), **row}
        return
    else:
        arm = {name: table.printed.get(name, name) for name in kept}
    for name in kept:
        row = {name_of(cells.get(first, "")): cells.get(name, "") for cells in table.rows}
        yield {"arm": arm[name] or table.caption, **row}


def _by_class(
    row: Mapping[str, str], classes: Mapping[str, tuple[str, int, str]]
) -> Iterator[dict[str, str]]:
    shared = {name: value for name, value in row.items() if name not in classes}
    # What is measured once a row is not known to be of one load or the other.
    schema = resolve(list(shared))
    own = {column for places in schema.metrics.values() for column, _ in places}
    shared = {name: value for name, value in shared.items() if name not in own}
    for name, (dimension, value, measure) in classes.items():
        yield {**shared, dimension: str(value), measure: row.get(name, "")}


def _class_columns(table: Table) -> dict[str, tuple[str, int, str]]:
    """Column to (dimension, value, measure), if the columns are loads and their unit is known."""
    found = {}
    for name in table.names:
        known = column_rules.class_of(name)
        measure = _unit_of(table, name) if known else None
        if known and measure:
            found[name] = (*known, measure)
    return found if len(found) > 1 else {}


def _arm_columns(table: Table) -> dict[str, tuple[str, str]]:
    """Column to (arm, measure), if columns are arms, one of them a baseline, in a known unit."""
    schema = resolve(table.names)
    used = {column for places in schema.metrics.values() for column, _ in places}
    used |= {
        *schema.k,
        *schema.settings,
        *(n for found in schema.dimensions.values() for n in found),
    }
    names = [
        n
        for n in table.names[1:]
        if n not in used and not column_rules.is_delta(n) and not set(n.split("_")) & _QUANTITIES
    ]
    printed = {n: table.printed.get(n, n) for n in names}
    numeric = [n for n in names if any(quantity(row.get(n)) for row in table.rows)]
    bases = [n for n in numeric if role_of(printed[n], k_of(printed[n])) in ("target_only", "k0")]
    if not bases or len(numeric) < 2:
        return {}
    measure = _unit_of(table, bases[0]) or _by_speedup(table, bases[0], numeric)
    if measure is None:
        return {}
    return {name: (printed[name], measure) for name in numeric}


def _unit_of(table: Table, name: str) -> str | None:
    """The measure of a column from its cells' units, or from the table's caption."""
    units = [found.unit for row in table.rows if (found := quantity(row.get(name)))]
    known = {_UNITS.get(unit) for unit in units}
    if len(known) == 1 and None not in known:
        return known.pop()
    if units and not any(units) and len(table.caption) <= 100:
        metric = column_rules.metric_of(name_of(table.caption))
        return metric if metric in {*columns.HIGHER, *columns.LOWER} else None
    return None


def _by_speedup(table: Table, base: str, numeric: Sequence[str]) -> str | None:
    """Whether higher or lower is better, from speedups that the table itself prints."""
    votes = set()
    for row in table.rows:
        theirs = quantity(row.get(base))
        printed = [_ratio(cell) for name, cell in row.items() if column_rules.is_delta(name)]
        for name in numeric:
            ours = quantity(row.get(name))
            if name == base or ours is None or theirs is None or ours.unit.startswith("%"):
                continue
            claims = [*printed, _remark(row.get(name, ""))]
            for claim in claims:
                if claim and ours.value > 0 and theirs.value > 0:
                    votes |= _vote(math.log(ours.value / theirs.value), math.log(claim))
    return {"up": "tok_s", "down": "tpot_ms"}[votes.pop()] if len(votes) == 1 else None


def _vote(ratio: float, claim: float) -> set[str]:
    if abs(ratio) < AGREES or abs(claim) < AGREES:
        return set()  # near 1 either reading fits
    if abs(ratio - claim) < AGREES:
        return {"up"}
    return {"down"} if abs(ratio + claim) < AGREES else set()


def _ratio(cell: str) -> float | None:
    """A speedup: `1.6x`, `1.6`, `+60%`."""
    found = quantity(cell)
    if found is None:
        return None
    value = 1 + found.value / 100 if found.unit.startswith("%") else found.value
    return value if value > 0 else None


def _remark(cell: str) -> float | None:
    """The speedup in brackets behind a value: `96.1 (+52%)`, `45.6 (1.47x)`."""
    match = re.search(r"\(\s*([-+]?\d[\d.]*\s*(?:%|x|×))\s*\)", cell)
    return _ratio(match.group(1)) if match else None
