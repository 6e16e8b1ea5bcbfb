"""A plain benchmark table: an arm or a draft length in each row, and something measured.

Columns and aliases are in `columns.py`, names in no list in `column_rules.py`, other shapes of
tables in `table_shape.py`. A row is one arm under its conditions; a row that speaks of acceptance
is a window too.
"""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence

from specscope.readers.records import Arm, Record, Window
from specscope.readers.source import Source
from specscope.readers.tables import columns
from specscope.readers.tables.cells import bare, quantity
from specscope.readers.tables.csv_file import header, name_of, rows
from specscope.readers.tables.impossible import Impossible
from specscope.readers.tables.llama_bench import is_llama_bench, speeds
from specscope.readers.tables.names import k_of, role_of
from specscope.readers.tables.round_parts import PERCENT, modelled, round_parts
from specscope.readers.tables.schema import Row, Schema, is_blank, measured, resolve
from specscope.readers.tables.shape import Table, is_transposed, long_rows

TOGETHER = 10_000
"""Rows that are looked at together; a longer table is read in stretches of so many."""

LONGEST_DRAFT_NAMED = 256
LONGEST_NAME = 80
_VALUE = re.compile(r"[:=]\s*['\"]?\d[\d.:]{2}|: \d|\d\d:\d\d|[{}]|#\w+-req")
_AMBIGUOUS_K = {"draft_tokens", "num_draft_tokens", "steps"}
"""Names of k that also count: proposed tokens, or steps, of a whole run."""


class BenchTable:
    """A table of arms."""

    format = "bench-csv"

    def sniff(self, head: bytes) -> float:
        """0.6 for columns that name a measure and an arm, a draft length or a class."""
        printed = header(head)
        names = [name_of(column) for column in printed]
        if len(set(names)) < 2 or not is_header(printed):
            return 0.0
        first = _table(printed, itertools.islice(_rows_of(head), 50))
        return 0.6 if is_known(first) else 0.0

    def read(self, source: Source) -> Iterator[Record]:
        """One arm per row, and a window where the row speaks of acceptance."""
        impossible = Impossible()
        line = 1
        every = rows(source.stream)
        while together := list(itertools.islice(every, TOGETHER)):
            table = _table(list(together[0]), iter(together))
            yield from records(source.name, table, impossible, line)
            line += len(together)
        yield from impossible.findings()


def is_header(cells: Sequence[str]) -> bool:
    """Whether cells are names: a log line with commas has values in its own."""
    return all(len(cell) <= LONGEST_NAME and not _VALUE.search(cell) for cell in cells)


def is_known(table: Table) -> bool:
    """Whether the table names a measure, and arms or classes."""
    if is_llama_bench(table):
        return True
    schema = resolve(table.names, table.rows)
    if schema.measures and schema.arms:
        return True
    unfolded = long_rows(table)
    if not unfolded:
        return False
    if is_transposed(table):
        return resolve(list(unfolded[0])).measures
    return set(unfolded[0]) != set(table.names)


def records(
    input: str, table: Table, impossible: Impossible, first_line: int = 1
) -> Iterator[Record]:
    """Arms and windows of one table, in the order of its rows."""
    if is_llama_bench(table):
        yield from speeds(input, table)
        return
    unfolded = long_rows(table)
    names = list(dict.fromkeys(name for row in unfolded for name in row))
    schema = resolve(names, unfolded)
    read = [
        _row(input, schema, row, line, impossible)
        for line, row in enumerate(unfolded, start=first_line)
    ]
    _infer_baseline(schema, unfolded, read)
    arms = [arm for arm, _ in read]
    by_times = list(modelled(input, arms))
    yield from by_times
    stood_for = any(isinstance(record, Arm) for record in by_times)
    told = [tuple(sorted(arm.conditions.items())) for arm, _ in read]
    for place, (arm, positions) in enumerate(read):
        nameless = schema.arm is None and not schema.k and not _speaks(arm.metrics, positions)
        if not stood_for and not (nameless and told.count(told[place]) > 1):
            yield arm
        if arm.role != "target_only" and _speaks(arm.metrics, positions):
            yield _window(input, arm, positions)


def _table(printed: Sequence[str], found: Iterator[Mapping[str, str]]) -> Table:
    rows = [{name_of(name): bare(cell) for name, cell in row.items()} for row in found]
    names = list(dict.fromkeys(name_of(name) for name in printed))
    return Table(names, rows, printed={name_of(name): bare(name) for name in printed})


def _rows_of(head: bytes) -> Iterator[dict[str, str]]:
    return rows(io.BytesIO(head))


def _row(
    input: str, schema: Schema, row: Row, line: int, impossible: Impossible
) -> tuple[Arm, tuple[float, ...] | None]:
    """The arm of a row, and its acceptance by position."""
    arm = row.get(schema.arm, "") if schema.arm else ""
    metrics = _metrics(schema, row, line, impossible)
    k = _k(schema, row, metrics)
    role = role_of(arm, k)
    if role in ("unknown", "speculative") and metrics.get("drafted_delta") == 0:
        role = "k0"
    settings = {name: row[name] for name in schema.settings if row.get(name)}
    if not arm:
        drafter = settings.get("draft_model") or settings.get("drafter") or ""
        length = f"k={k}" if k is not None else ""
        arm = f"{drafter} {length}".strip() or f"row {line}"
    if metrics.get("accepted") or metrics.get("proposed") or metrics.get("mean_length", 0) > 1:
        role = "speculative"  # whatever its name says: `mtp_on_tq_off` is no baseline
    if role in ("unknown", "speculative") and k is None:
        k = k_of(arm)
    conditions = _conditions(schema, row)
    found = Arm(
        input, arm, role, None if role == "target_only" else k, conditions, metrics, settings
    )
    return found, _positions(schema, row)


def _k(schema: Schema, row: Row, metrics: dict[str, float]) -> int | None:
    for name in schema.k:
        found = quantity(row.get(name))
        if found is None or found.value < 0 or found.value != int(found.value):
            continue
        counted = name in _AMBIGUOUS_K and ("accepted" in metrics or "drafts" in metrics)
        if counted or found.value > LONGEST_DRAFT_NAMED:
            if "draft" in name:
                metrics.setdefault("proposed", found.value)
            continue
        return int(found.value)
    return None


def _conditions(schema: Schema, row: Row) -> dict[str, int | float | str]:
    found: dict[str, int | float | str] = {}
    for dimension, aliases in schema.dimensions.items():
        text = next((row[alias] for alias in aliases if row.get(alias)), None)
        if text is None:
            continue
        value = quantity(text)
        words = dimension in ("label", "engine", "version")
        if value is None or words or value.unit:
            found[dimension] = text  # `8K` is no exact size
        else:
            whole = value.value == int(value.value)
            found[dimension] = int(value.value) if whole else value.value
    labels = [row[name] for name in schema.labels if row.get(name)]
    if labels:
        found["label"] = ", ".join([*([str(found["label"])] if "label" in found else []), *labels])
    return found


def _metrics(schema: Schema, row: Row, line: int, impossible: Impossible) -> dict[str, float]:
    found: dict[str, float] = {}
    for metric, places in schema.metrics.items():
        column, value = measured(row, places, metric)
        positive = metric not in columns.OUTCOME and metric != "draft_ms"
        if value is not None and impossible.keeps(column, value, line, above_zero=positive):
            found[metric] = value
    return found


def _positions(schema: Schema, row: Row) -> tuple[float, ...] | None:
    rates: list[float] = []
    for column in schema.positions.values():
        found = quantity(row.get(column))
        if found is None:
            break
        rates.append(found.value)
    percent = any(rate > 1 for rate in rates)
    rates = [rate / PERCENT if percent else rate for rate in rates]
    return tuple(rates) if len(rates) > 1 else None


def _infer_baseline(
    schema: Schema, rows: Sequence[Row], read: list[tuple[Arm, tuple[float, ...] | None]]
) -> None:
    """Rows whose acceptance is left blank, in a table that gives it for others, drafted nothing."""
    outcomes = ("acceptance_rate", "mean_length", "accepted")
    places = [c for metric in outcomes for c, _ in schema.metrics.get(metric, [])]
    if not places or any(arm.role in ("target_only", "k0") for arm, _ in read):
        return
    blank = [all(is_blank(row.get(column)) for column in places) for row in rows]
    given = any(any(metric in arm.metrics for metric in outcomes) for arm, _ in read)
    if not given or not 0 < sum(blank) < len(read):
        return
    for place, (arm, positions) in enumerate(read):
        if blank[place] and arm.k in (None, 0):
            settings = {**arm.settings, "inferred": "no acceptance is given for it"}
            plain = Arm(
                arm.input, arm.arm, "target_only", None, arm.conditions, arm.metrics, settings
            )
            read[place] = (plain, positions)


def _speaks(metrics: Mapping[str, float], positions: tuple[float, ...] | None) -> bool:
    said = ("accepted", "mean_length", "acceptance_rate")
    return positions is not None or any(metrics.get(name) is not None for name in said)


def _window(input: str, arm: Arm, positions: tuple[float, ...] | None) -> Window:
    metrics = arm.metrics
    drafts, length = metrics.get("drafts"), metrics.get("mean_length")
    if length is None and positions is not None:
        length = 1 + sum(positions)
    parts = round_parts(arm)
    return Window(
        input,
        "unknown",
        grain="run",
        label=arm.arm,
        k=arm.k,
        drafts=round(drafts) if drafts is not None else None,
        proposed=_whole(metrics.get("proposed")),
        accepted=_count(metrics.get("accepted")),
        came_out=round(length * drafts) if length and drafts else None,
        printed_rate=metrics.get("acceptance_rate"),
        printed_length=length,
        printed_positions=positions,
        throughput_tok_s=metrics.get("throughput_tok_s"),
        round_ms=parts.round_ms,
        draft_ms=parts.draft_ms,
        # The table's own length may leave out the first token or cut the last round.
        tolerance=max(0.05, 1.5 / drafts) if drafts else 0.05,
    )


def _count(value: float | None) -> int | None:
    """A fraction is a mean of something and no count."""
    return int(value) if value is not None and value == int(value) else None


def _whole(value: float | None) -> int | None:
    return round(value) if value is not None else None
