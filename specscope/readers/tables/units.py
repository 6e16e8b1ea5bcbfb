"""The measure of a column of numbers, from its unit, the line above, or a speedup column."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from specscope.readers.tables import headers
from specscope.readers.tables.cells import quantity, ratio_of, read
from specscope.readers.tables.csv_file import name_of
from specscope.readers.tables.names import ON, named
from specscope.readers.tables.schema import TOKEN_RATES, Schema, is_change
from specscope.readers.tables.table import Table

_BASELINE_SAID = re.compile(
    r"(?:\b|_)(?:baseline|plain decod|plain_t|without (?:spec|mtp|draft)|no[- "
    r"_]?(?:spec|mtp|draft)|none\b|auto-?regress|vanilla"
    r"|target[- ]only|non-spec)|(?:^|_)(?:ar|none|baseline|base)(?:[_ ]|$)",
    re.IGNORECASE,
)
_NO_SPECULATION = re.compile(
    r"plain|(?:\b|_)(?:without|no)[- _]?(?:spec|mtp|draft|eagle)|(?:\b|_)none(?:\b|_)"
    r"|auto-?regress|vanilla|target[- _]only|non-spec|(?:^|_)ar(?:[_ ]|$)",
    re.IGNORECASE,
)
_SPEEDUP = re.compile(r"speed-?up|gain|boost|uplift|faster|(?:^|_)vs_", re.IGNORECASE)
_OTHER_SPEEDUP = re.compile(
    r"prefill|prompt|kernel|ttft|first token|memory|attention|training|load(?:ing)? time"
    r"|draft(?:er|ing)? (?:time|speed|forward)|theor|expected|ideal|upper bound",
    re.IGNORECASE,
)
"""Speedups of something else than the output."""

_OVER = re.compile(
    r"(?:\b|_)(?:over|vs|versus|against|(?:relative|compared) (?:to|with))(?:_|\b)", re.IGNORECASE
)


def unit_of_cells(cells: Sequence[str]) -> str | None:
    """The one measure that the units of cells are of, or None."""
    known = {_UNITS.get(found.unit) for cell in cells if (found := quantity(cell))}
    return known.pop() if len(known) == 1 else None


def unit_of(table: Table, name: str) -> str | None:
    """The measure of a column from its cells' units, or from the table's caption."""
    cells = [row.get(name, "") for row in table.rows]
    units = [found.unit for cell in cells if (found := quantity(cell))]
    known = {_UNITS.get(unit) for unit in units if unit}
    if len(known) == 1 and None not in known:
        return known.pop()
    if units and not any(units) and len(table.caption) <= 100:
        metric = headers.metric_of(name_of(table.caption))
        if metric in ("mean_length", "acceptance_rate"):
            return headers.MEASURES[metric][0]
        return metric if metric in headers.SPEEDS else None
    if units and not any(units) and _quoted(table):
        return "tok_s"
    return None


def _quoted(table: Table) -> bool:
    """Whether a line above gives the figure of some cell with a unit of tokens per second."""
    figures = [q.value for row in table.rows for cell in row.values() if (q := quantity(cell))]
    said = " ".join(table.context)[:2000]
    quotes = [float(n) for n in re.findall(r"(\d{1,6}(?:\.\d+)?)\s?(?:tok(?:en)?s?/s|t/s)", said)]
    return any(abs(q / f - 1) < QUOTED for q in quotes for f in figures if f > 0)


QUOTED = 0.02
"""A figure is quoted in a text with fewer digits than in the table."""


def is_ratio(table: Table, name: str) -> bool:
    """Whether a column holds ratios or percentages alone."""
    units = [found.unit for row in table.rows if (found := quantity(row.get(name)))]
    return bool(units) and all(unit[:1] in ("x", "×", "%") for unit in units)


def by_speedup(table: Table, base: str, numeric: Sequence[str]) -> str | None:
    """Whether higher or lower is better, from speedups that the table itself prints."""
    votes = set()
    for row in table.rows:
        theirs = quantity(row.get(base))
        printed = [
            ratio_of(cell) or _number(cell)
            for name, cell in row.items()
            if headers.is_delta(name) or is_ratio(table, name)
        ]
        for name in numeric:
            ours = quantity(row.get(name))
            if name == base or ours is None or theirs is None or ours.unit.startswith("%"):
                continue
            for claim in [*printed, read(row.get(name)).ratio]:
                if claim and ours.value > 0 and theirs.value > 0:
                    votes |= _vote(math.log(ours.value / theirs.value), math.log(claim))
    return {"up": "tok_s", "down": "tpot_ms"}[votes.pop()] if len(votes) == 1 else None


def speedup_over_baseline(schema: Schema, table: Table) -> str | None:
    """The column of speedups, if it or a line above names a run without speculation."""
    texts = [schema.speedup or "", *table.context]
    reference = " ".join([*texts, *schema.of_baseline])
    over = [_OVER.split(text, maxsplit=1)[1] for text in texts if _OVER.search(text)]
    about = [text for text in [table.caption, *texts[:2]] if _SPEEDUP.search(text)]
    other = any(map(_OTHER_SPEEDUP.search, about))
    if other or any(named(text).state == ON for text in over):  # or over another drafter
        return None
    # Of named arms, changes over a bare "baseline" may be over an older way to speculate.
    changes = schema.speedup and schema.arm and is_change(schema.speedup, table.rows)
    if changes and not _NO_SPECULATION.search(reference):
        return None
    return schema.speedup if _BASELINE_SAID.search(reference) else None


def _vote(ratio: float, claim: float) -> set[str]:
    if abs(ratio) < AGREES or abs(claim) < AGREES:
        return set()  # near 1 either reading fits
    if abs(ratio - claim) < AGREES:
        return {"up"}
    return {"down"} if abs(ratio + claim) < AGREES else set()


def _number(cell: str) -> float | None:
    found = quantity(cell)
    return found.value if found and found.value > 0 else None


_UNITS = {**dict.fromkeys(TOKEN_RATES, "tok_s"), "ms/token": "tpot_ms", "ms/tok": "tpot_ms"}


AGREES = math.log(1.03)
"""A ratio and the printed speedup may be rounded apart by this much."""
