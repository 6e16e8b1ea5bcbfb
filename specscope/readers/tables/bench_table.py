"""A plain benchmark table: an arm or a draft length in each row, and something measured.

Headers are read by `headers.py` and `schema.py`, names by `names.py`, cells by `cells.py`, other
shapes of tables by `shape.py`. A row is one arm under its conditions, once for each of its runs. A
row with acceptance is also a window.
"""

from __future__ import annotations

import io
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from specscope.readers.records import Arm, Finding, Record
from specscope.readers.source import Source
from specscope.readers.tables import headers
from specscope.readers.tables.above import legend
from specscope.readers.tables.arm_roles import Sign, decided, subject_is_speculation
from specscope.readers.tables.cells import quantity, ratio_of, read
from specscope.readers.tables.conditions import conditions_of, positions_of
from specscope.readers.tables.csv_file import header, name_of, rows
from specscope.readers.tables.impossible import Impossible
from specscope.readers.tables.llama_bench import is_llama_bench, speeds
from specscope.readers.tables.names import (
    OFF,
    ON,
    SWITCHED_ON,
    WORD,
    k_of,
    named,
    shared_rests,
)
from specscope.readers.tables.round_parts import modelled
from specscope.readers.tables.row_window import window_of
from specscope.readers.tables.rows_together import (
    SPEECH,
    infer_baseline,
    ran,
    split_arms_by_knobs,
    tell_k0_apart,
)
from specscope.readers.tables.schema import Row, Schema, is_blank, resolve
from specscope.readers.tables.shape import (
    arm_above,
    is_topic,
    is_transposed,
    long_rows,
    remark_of_speculation,
)
from specscope.readers.tables.table import Table, made
from specscope.readers.tables.units import speedup_over_baseline
from specscope.readers.tables.values import measured

TOGETHER = 10_000
"""Rows that are looked at together; a longer table is read in stretches of so many."""

LONGEST_DRAFT_NAMED = 256
LONGEST_NAME = 80
_VALUE = re.compile(
    r"[:=]\s*['\"]?\d[\d.:]{2}|: \d|\d\d:\d\d|[{}]|#\w+-req|\d\W{0,3}(?:tok(?:en)?s?/s|t/s)\b"
)
_AMBIGUOUS_K = {"draft_tokens", "num_draft_tokens", "steps"}
"""Names of k that also count: proposed tokens, or steps, of a whole run."""

_ABOUT_DRAFTERS = re.compile(r"\b(?:drafters|draft(?:er)? models|different draft)", re.IGNORECASE)


class BenchTable:
    """A table of arms."""

    format = "bench-csv"

    def sniff(self, head: bytes) -> float:
        """0.6 for columns that name a measure and an arm, a draft length or a class."""
        printed = header(head)
        names = [name_of(column) for column in printed]
        if len(set(names)) < 2 or not is_header(printed):
            return 0.0
        first = _table(printed, itertools.islice(rows(io.BytesIO(head)), 50))
        return 0.6 if is_known(first, drawn=False) else 0.0

    def read(self, source: Source) -> Iterator[Record]:
        """One arm per row, and a window where the row speaks of acceptance."""
        impossible = Impossible()
        line = 1
        every = rows(source.stream)
        while together := list(itertools.islice(every, TOGETHER)):
            table = _table(list(together[0]), together)
            yield from records(source.name, table, impossible, line)
            line += len(together)
        yield from impossible.findings()


def is_header(cells: Sequence[str]) -> bool:
    """Whether cells are names; a log line with commas has values instead."""
    return all(len(cell) <= LONGEST_NAME and not _VALUE.search(cell) for cell in cells)


def is_known(table: Table, drawn: bool = True) -> bool:
    """Whether the table has a measure and arms or classes. A drawn table with acceptance needs no
    arms."""
    if is_llama_bench(table):
        return True
    schema = resolve(table.names, table.rows)
    if schema.measures and (schema.arms or (drawn and _speaks_at_all(schema))):
        return True
    if drawn and schema.arms and speedup_over_baseline(schema, table):
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
    unfolded, planned = ran(long_rows(table), table)
    if planned:
        yield Finding(
            "NOT_RUN",
            f"{', '.join(planned[:4])}: marked as not run or failed, left out",
            {"rows": planned},
        )
    names = list(dict.fromkeys(name for row in unfolded for name in row))
    schema = resolve(names, unfolded)
    reader = _Rows(input, table, schema, unfolded, impossible)
    read_rows = [reader.row(row, line) for line, row in enumerate(unfolded, start=first_line)]
    yield from reader.findings
    infer_baseline(schema, unfolded, read_rows)
    tell_k0_apart(schema, unfolded, read_rows)
    split_arms_by_knobs(schema, unfolded, read_rows)
    arms = [arm for arm, _ in read_rows]
    by_times = list(modelled(input, arms))
    yield from by_times
    stood_for = any(isinstance(record, Arm) for record in by_times)
    told = [tuple(sorted(arm.conditions.items())) for arm, _ in read_rows]
    labels: Counter[str | None] = Counter()
    for place, (arm, positions) in enumerate(read_rows):
        nameless = (
            not schema.arm
            and not schema.k
            and not schema.switches
            and not _speaks(arm.metrics, positions)
        )
        if not stood_for and not (nameless and told.count(told[place]) > 1):
            yield from _runs(arm, schema, unfolded[place])
        if arm.role != "target_only" and _speaks(arm.metrics, positions):
            window = window_of(input, arm, positions)
            labels[window.label] += 1
            if labels[window.label] > 1:  # rows are runs of their own, whatever they are called
                window = replace(window, label=f"{window.label} ({labels[window.label]})")
            yield window


def _table(printed: Sequence[str], found: Iterable[Row]) -> Table:
    return made(printed, [[row.get(name, "") for name in printed] for row in found], "")


class _Rows:
    """Rows of one table into arms."""

    def __init__(
        self,
        input: str,
        table: Table,
        schema: Schema,
        unfolded: Sequence[Row],
        impossible: Impossible,
    ) -> None:
        self._input, self._table, self._schema, self._impossible = input, table, schema, impossible
        self.findings: list[Finding] = []
        arms = [row.get(schema.arm, "") for row in unfolded] if schema.arm else []
        self._legend = legend(arms, table.context)
        self._classes = shared_rests([arm for arm in arms if arm]) if len(set(arms)) > 1 else {}
        head = table.said(schema.arm) if schema.arm else ""
        about = any(map(_ABOUT_DRAFTERS.search, [table.caption, *table.context[:3]]))
        bases = any(named(arm).state in (OFF, WORD) or is_blank(arm) for arm in arms)
        # Under a line about drafters, models beside a row without one are what drafted.
        added = all(arm.startswith(("+", "with ", "w/")) for arm in arms if not named(arm).state)
        models = schema.arm == "model" and about and bases and added
        self._drafters = schema.arm in headers.DRAFTER or models
        self._models_draft = models
        states = {named(arm).state for arm in arms}
        beside = ON in states and SWITCHED_ON not in states  # `off` beside `eagle` and `mtp`
        self._speculation = beside or subject_is_speculation([head, table.caption, *table.context])
        above = arm_above(table)
        self._alone = len(unfolded) == 1 and bool(table.context)
        telling = named(above).state in (ON, OFF, WORD) and len(above) <= LONGEST_NAME
        telling = telling and not is_topic(above)
        unnamed = not (schema.arm or schema.k or schema.switches)
        self._above = above if unnamed and (telling or self._alone) else ""
        self._printed = speedup_over_baseline(schema, table)
        self._drafter = _told_drafter(schema, unfolded)

    def row(self, row: Row, line: int) -> tuple[Arm, tuple[float, ...] | None]:
        """The arm of a row, and its acceptance by position."""
        schema = self._schema
        arm = row.get(schema.arm, "") if schema.arm else self._above
        arm = self._legend.get(arm, arm)
        metrics, spreads = self._metrics(row, line)
        positions = positions_of(schema, row)
        k, k_text = self._k(row, metrics)
        places = [c for metric in headers.SPEEDS for c, _ in schema.metrics.get(metric, [])]
        remarks = [remark for c in places if (remark := remark_of_speculation(row.get(c, "")))]
        told = [name for name in schema.switches if not is_blank(row.get(name))]
        switches = [f"{self._table.said(name)} {row.get(name)}" for name in told]
        settings = {name: row[name] for name in schema.settings if row.get(name)}
        drafter = next((settings[name] for name in headers.DRAFTER if settings.get(name)), "")
        if self._drafter and is_blank(row.get(self._drafter)):
            if named(arm).state != ON and not k:  # a head of the model's own needs no drafter
                switches.append("no drafter")
        elif self._drafter:
            drafter = row.get(self._drafter, "")
        counted = [name for name in ("accepted", "proposed") if metrics.get(name)]
        beside = any(read(row.get(c)).accepts for p in schema.metrics.values() for c, _ in p)
        kept = (
            beside or metrics.get("mean_length", 0) > 1 or (metrics.get("acceptance_rate") or 0) > 0
        )
        sign = Sign(
            arm,
            k,
            [*switches, k_text, *remarks],
            [drafter] if drafter and schema.arm not in headers.DRAFTER else [],
            bool(counted or kept or positions),
            metrics.get("drafted_delta") == 0,
            self._speculation,
            self._drafters,
            [row.get(name, "") for name in ("model",)],
        )
        role, basis = decided(sign)
        if self._models_draft:
            settings.pop("model", None)
            arm = f"drafter {arm.lstrip('+ ')}" if role == "speculative" else arm
        if self._above or self._alone:
            settings["scope"] = "blocks"  # one block holds one arm: the arms stand in other blocks
        if not arm:
            length = f"k={k}" if k is not None else ""
            arm = f"{drafter} {length}".strip() or k_text or ", ".join(switches) or f"row {line}"
        elif switches and named(arm).state not in ("on", "off"):
            arm = f"{arm}, {', '.join(switches)}"
        if role in ("unknown", "speculative") and k is None:
            k = k_of(arm)
        conditions = conditions_of(schema, row)
        inside = self._classes.get(row.get(schema.arm, "") if schema.arm else "")
        if inside:
            conditions["label"] = ", ".join(
                filter(None, [str(conditions.get("label", "")), inside])
            )
        if self._printed and (printed := row.get(self._printed)):
            ratio = ratio_of(printed) or (
                q.value if (q := quantity(printed)) and not q.unit else None
            )
            if ratio:
                metrics["printed_speedup"] = ratio
        drafted = None if role == "target_only" else k
        found = Arm(self._input, arm, role, drafted, conditions, metrics, settings, basis, spreads)
        return found, positions

    def _k(self, row: Row, metrics: dict[str, float]) -> tuple[int | None, str]:
        for name in self._schema.k:
            text = row.get(name, "")
            found = quantity(text)
            if found is None:
                if text and named(text).state:
                    return None, text
                continue
            if found.value < 0 or found.value != int(found.value):
                continue
            counted = name in _AMBIGUOUS_K and ("accepted" in metrics or "drafts" in metrics)
            if counted or found.value > LONGEST_DRAFT_NAMED:
                if "draft" in name:
                    metrics.setdefault("proposed", found.value)
                continue
            return int(found.value), text if re.search(r"[a-z]{2}", text, re.IGNORECASE) else ""
        return None, ""

    def _metrics(self, row: Row, line: int) -> tuple[dict[str, float], dict[str, float]]:
        found: dict[str, float] = {}
        spreads: dict[str, float] = {}
        for metric, places in self._schema.metrics.items():
            first = [column for column, _ in places if read(row.get(column)).first_position]
            if (
                metric == "acceptance_rate"
                and first
                and not any(f.code == "FIRST_POSITION_ONLY" for f in self.findings)
            ):
                self.findings.append(
                    Finding(
                        "FIRST_POSITION_ONLY",
                        f"{row[first[0]]}: one position's acceptance, no rate",
                    )
                )
            for column, _ in places:
                cell = read(row.get(column))
                if cell.fraction and metric in ("accepted", "acceptance_rate", "proposed"):
                    found["accepted"], found["proposed"] = map(float, cell.fraction)
                if cell.rate is not None:
                    found.setdefault("acceptance_rate", cell.rate)
            column, cell_ = measured(row, places, metric)
            value = cell_.value if cell_ else None
            if metric in ("accepted", "proposed") and metric in found:
                continue
            positive = metric not in headers.OUTCOME and metric != "draft_ms"
            if value is not None and self._impossible.keeps(
                column, value, line, above_zero=positive
            ):
                found[metric] = value
                if cell_ and cell_.spread is not None:
                    spreads[metric] = cell_.spread
        return _consistent(found), spreads


def _told_drafter(schema: Schema, rows: Sequence[Row]) -> str:
    """The column beside the arm's that names a drafter in some rows and none in others."""
    for name in headers.DRAFTER if schema.arm and schema.arm not in headers.DRAFTER else ():
        blank = [is_blank(row.get(name)) for row in rows]
        told = [bool(row.get(name)) for row in rows]
        if (
            name not in schema.switches
            and any(blank)
            and any(some and not none for some, none in zip(told, blank, strict=True))
        ):
            return name
    return ""


def _consistent(metrics: dict[str, float]) -> dict[str, float]:
    """Drop a row's time per token if its speed contradicts it, because the two measure different
    quantities."""
    tok_s, tpot = metrics.get("throughput_tok_s"), metrics.get("tpot_ms")
    if (
        tok_s and tpot and tok_s * tpot < 500
    ):  # a rate of one stream cannot be below half of 1 / TPOT
        return {name: value for name, value in metrics.items() if name != "tpot_ms"}
    return metrics


def _runs(arm: Arm, schema: Schema, row: Row) -> Iterator[Arm]:
    """The arm once for each run that its cells hold."""
    values: dict[str, tuple[float, ...]] = {}
    for metric, places in schema.metrics.items():
        _, cell = measured(row, places, metric)
        if cell and len(cell.values) > 1 and metric in headers.SPEEDS and metric in arm.metrics:
            values[metric] = cell.values
    if not values:
        yield arm
        return
    for run in range(max(map(len, values.values()))):
        own = {metric: found[run] for metric, found in values.items() if run < len(found)}
        yield replace(
            arm, metrics={**{m: v for m, v in arm.metrics.items() if m not in values}, **own}
        )


def _speaks(metrics: Mapping[str, float], positions: tuple[float, ...] | None) -> bool:
    return positions is not None or any(metrics.get(name) is not None for name in SPEECH)


def _speaks_at_all(schema: Schema) -> bool:
    return any(name in schema.metrics for name in SPEECH)
