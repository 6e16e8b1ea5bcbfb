"""Which column of a table is what: arm, draft length, class, measure, position."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from specscope.readers.tables import column_rules, columns
from specscope.readers.tables.cells import quantity

Row = Mapping[str, str]

MEASURES = {**columns.HIGHER, **columns.LOWER, **columns.PARTS, **columns.OUTCOME}
TIMES = {*columns.LOWER, *columns.PARTS}
_PER_MS = {"ms": 1.0, "s": 1e3, "sec": 1e3, "secs": 1e3, "seconds": 1e3, "us": 1e-3, "µs": 1e-3}
_UNIT_OF_NAME = re.compile(r"_(s|sec|seconds|us|ms)(?:_per_[a-z_]+)?$")
_BLANK = re.compile(r"^(?:|-+|—|–|n/?a|none|null|nan|\.+|/|no drafts?)$", re.IGNORECASE)
TOKEN_RATES = ("tok/s", "toks/s", "t/s", "tokens/s", "token/s", "tps", "tok/sec", "tokens/sec")
TOLD_APART_BY = 2
"""A column of words is a class if each of its values stands in so many rows at least."""


@dataclass(slots=True)
class Schema:
    """Columns by role. Names are as `csv_file.name_of` writes them."""

    arm: str | None = None
    k: list[str] = field(default_factory=list)
    dimensions: dict[str, list[str]] = field(default_factory=dict)
    labels: list[str] = field(default_factory=list)
    """Columns of words that tell classes apart, beside the known dimensions."""
    metrics: dict[str, list[tuple[str, float | None]]] = field(default_factory=dict)
    """Metric to (column, factor); a factor of None means that the cell must state its unit."""
    positions: dict[int, str] = field(default_factory=dict)
    settings: list[str] = field(default_factory=list)

    @property
    def measures(self) -> bool:
        """Whether anything is measured in the table."""
        return bool(self.metrics) or len(self.positions) > 1

    @property
    def arms(self) -> bool:
        """Whether the table tells arms or classes apart."""
        return bool(self.arm or self.k or self.dimensions)


def resolve(names: Sequence[str], rows: Sequence[Row] = ()) -> Schema:
    """The schema of a table; `rows`, where given, tell columns of classes from remarks."""
    schema = Schema()
    known = set(names)
    schema.arm = next((name for name in columns.ARM if name in known), None)
    schema.k = [name for name in columns.K if name in known]
    for dimension, aliases in columns.CLASS.items():
        found = [alias for alias in aliases if alias in known]
        if found:
            schema.dimensions[dimension] = found
    for metric, aliases in MEASURES.items():
        _add(schema, metric, [alias for alias in aliases if alias in known])
    for metric, aliases in columns.SECONDS.items():
        for alias in aliases:
            if alias in known:
                schema.metrics.setdefault(metric, []).append((alias, 1e3))
    schema.settings = [name for name in columns.SETTINGS if name in known]
    _positions(schema, names)
    _guess(schema, names)
    _by_units(schema, names, rows)
    _drafters(schema, names, rows)
    _labels(schema, names, rows)
    return schema


def measured(
    row: Row, places: Sequence[tuple[str, float | None]], metric: str
) -> tuple[str, float | None]:
    """(column, value) of the first place that holds a number, in the metric's own unit."""
    for column, factor in places:
        found = quantity(row.get(column))
        if found is None:
            continue
        value = found.value
        if metric in TIMES:
            unit = found.unit.partition("/")[0].partition("per")[0].strip()
            scale = _PER_MS.get(unit, factor)
            if scale is None:
                continue
            value *= scale
        elif metric == "acceptance_rate":
            percent = found.unit.startswith("%") or "pct" in column or 1 < value <= 100
            value = value / 100 if percent else value
        return column, value
    return "", None


def is_blank(cell: str | None) -> bool:
    """Whether a cell says that there is no value."""
    return cell is not None and bool(_BLANK.match(cell.strip()))


def _used(schema: Schema) -> set[str]:
    used = {schema.arm or "", *schema.k, *schema.settings, *schema.positions.values()}
    used |= {name for found in schema.dimensions.values() for name in found}
    return used | {name for places in schema.metrics.values() for name, _ in places}


def _add(schema: Schema, metric: str, names: Collection[str]) -> None:
    for name in names:
        factor: float | None = 1.0
        if metric in TIMES:
            unit = _UNIT_OF_NAME.search(name)
            factor = _PER_MS[unit.group(1)] if unit else _factor_without_unit(metric)
        schema.metrics.setdefault(metric, []).append((name, factor))


def _factor_without_unit(metric: str) -> float | None:
    """A TPOT is in ms where nobody says otherwise; a part of a round needs its unit."""
    return 1.0 if metric in columns.LOWER else None


def _positions(schema: Schema, names: Sequence[str]) -> None:
    found = {column_rules.position_of(name): name for name in names}
    if 0 in found:  # p50 and p99 have no p0 beside them
        place = 0
        while place in found:
            schema.positions[place] = found[place]
            place += 1


def _guess(schema: Schema, names: Sequence[str]) -> None:
    """Columns in no list; a metric that several names could mean is nobody's."""
    guessed: dict[str, list[str]] = {}
    used = _used(schema)
    for name in names:
        if name in used or not name:
            continue
        metric = column_rules.metric_of(name)
        if metric:
            guessed.setdefault(metric, []).append(name)
        elif column_rules.is_draft_length(name):
            schema.k.append(name)
        elif column_rules.is_arm(name) and schema.arm is None:
            schema.arm = name
        elif dimension := column_rules.dimension_of(name):
            schema.dimensions.setdefault(dimension, []).append(name)
    for metric, found in guessed.items():
        if metric not in schema.metrics and len(found) == 1:
            _add(schema, metric, found)


def _by_units(schema: Schema, names: Sequence[str], rows: Sequence[Row]) -> None:
    """A throughput that only its cells' units tell (`Inference Speed`: `55 tok/s`)."""
    if "throughput_tok_s" in schema.metrics:
        return
    used = _used(schema)
    found = [
        name
        for name in names
        if name not in used
        and (cells := [q for row in rows if (q := quantity(row.get(name)))])
        and all(cell.unit in TOKEN_RATES for cell in cells)
    ]
    if len(found) == 1:
        _add(schema, "throughput_tok_s", found)


def _drafters(schema: Schema, names: Sequence[str], rows: Sequence[Row]) -> None:
    """Where only the drafter tells rows apart, it is the arm, and a row without one a baseline."""
    if schema.arm or schema.k:
        return
    for name in columns.DRAFTER:
        blank = [is_blank(row.get(name)) for row in rows] if name in names else []
        if any(blank) and not all(blank):
            schema.arm = name
            schema.settings = [other for other in schema.settings if other != name]
            return


def _labels(schema: Schema, names: Sequence[str], rows: Sequence[Row]) -> None:
    if schema.arm is None and names and rows and not schema.k:
        first = [row.get(names[0], "") for row in rows]
        free = names[0] in schema.settings or names[0] not in _used(schema)
        if free and len(set(first)) == len(first) and not any(map(quantity, first)):
            schema.arm = names[0]  # a table without a word for it names its arms first
    used = _used(schema) - {"model"} | {schema.arm or ""}
    for name in names:
        if name in used:
            continue
        cells = [row.get(name, "") for row in rows]
        counts = {cell: cells.count(cell) for cell in set(cells)}
        words = all(quantity(cell) is None for cell in counts if cell)
        repeated = len(counts) > 1 and min(counts.values()) >= TOLD_APART_BY
        if words and repeated:
            schema.labels.append(name)
