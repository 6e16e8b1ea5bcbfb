"""The figure of a row for one metric, in the metric's own unit."""

from __future__ import annotations

from collections.abc import Sequence

from specscope.readers.tables import headers
from specscope.readers.tables.cells import Cell, read
from specscope.readers.tables.schema import PER_MS, TIMES, Row


def measured(
    row: Row, places: Sequence[tuple[str, float | None]], metric: str
) -> tuple[str, Cell | None]:
    """(column, cell) of the first place that holds a number. The cell's values are in the
    metric's own unit."""
    for column, factor in places:
        cell = read(row.get(column))
        if not cell.values:
            continue
        scale = 1.0
        if metric in TIMES:
            unit = cell.unit.partition("/")[0].partition("per")[0].strip()
            stated = PER_MS.get(unit, factor)
            if stated is None:
                continue
            scale = stated
        elif (metric != "acceptance_rate" and cell.unit.startswith("%")) or (
            metric in headers.HIGHER and cell.unit in headers.OTHER_TOKENS
        ):
            continue
        elif metric == "acceptance_rate":
            counts = cell.unit.startswith(("tok", "accepted", "draft")) and max(cell.values) > 1
            unclear = counts or ("pct" in column and not cell.unit and max(cell.values) <= 1)
            several = len(cell.values) > 1 and not cell.fraction  # of runs, or of positions?
            if cell.first_position or unclear or several:  # 0.6 under percent: 0.6 % or 60 %?
                continue
            percent = cell.unit.startswith("%") or "pct" in column or 1 < max(cell.values) <= 100
            scale = 0.01 if percent else 1.0
        if scale != 1.0:
            values = tuple(value * scale for value in cell.values)
            spread = cell.spread * scale if cell.spread is not None else None
            cell = Cell(values, cell.unit, spread, cell.fraction, cell.ratio, cell.rate)
        return column, cell
    return "", None
