"""A plain benchmark table: CSV with an arm column, or a draft length, and something measured.

Columns and aliases are in `columns.py`. A row is one arm under its conditions; a row with counts of
accepted tokens is a window too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from specscope.readers import columns
from specscope.readers.csv_file import header, name_of, rows
from specscope.readers.lines import number
from specscope.readers.records import Arm, Finding, Record, Window
from specscope.readers.roles import k_of, role_of
from specscope.readers.source import Source
from specscope.readers.wide_table import arms_in, unfolded

_MEASURES = {**columns.HIGHER, **columns.LOWER, **columns.OUTCOME}


class BenchTable:
    """A table of arms."""

    format = "bench-csv"

    def sniff(self, head: bytes) -> float:
        """0.6 for a header with a measure and an arm, a draft length or a class."""
        names = {name_of(column) for column in header(head)}
        measures = {alias for group in _MEASURES.values() for alias in group}
        measures |= {alias for group in columns.SECONDS.values() for alias in group}
        arms = {*columns.ARM, *columns.K, *(a for group in columns.CLASS.values() for a in group)}
        return 0.6 if (names & measures and names & arms) or arms_in(names) else 0.0

    def read(self, source: Source) -> Iterator[Record]:
        """One arm per row, and a window where the row counts accepted tokens."""
        impossible = Impossible()
        for line, row in enumerate(rows(source.stream), start=1):
            named = {name_of(column): value for column, value in row.items()}
            arms = arms_in(named)
            for one in unfolded(named, arms) if arms else [named]:
                yield from _row(source.name, one, line, impossible)
        yield from impossible.findings()


class Impossible:
    """Values that cannot be, by column: left out, and said once a column."""

    def __init__(self) -> None:
        self._seen: dict[str, list[tuple[int, float]]] = {}

    def keeps(self, column: str, value: float, line: int, *, above_zero: bool) -> bool:
        """Whether the value may be; a speed or a time is above zero, a count or a rate may be 0."""
        if value > 0 or (value == 0 and not above_zero):
            return True
        self._seen.setdefault(column, []).append((line, value))
        return False

    def findings(self) -> Iterator[Finding]:
        """One for each column with such values: how many, and the first of them."""
        for column, seen in self._seen.items():
            line, value = seen[0]
            where = f"in row {line}" if len(seen) == 1 else f"in {len(seen)} rows, first in {line}"
            text = f"{column} is {value:g} {where}: not possible, stored as unknown"
            evidence = {"column": column, "rows": len(seen), "first_row": line, "value": value}
            yield Finding("IMPOSSIBLE_VALUE", text, evidence)


def _row(input: str, row: Mapping[str, str], line: int, impossible: Impossible) -> Iterator[Record]:
    arm_column = next((name for name in columns.ARM if name in row), None)
    arm = row[arm_column] if arm_column else ""
    k = _k(row)
    metrics = _metrics(row, line, impossible)
    role = role_of(arm, k)
    if role in ("unknown", "speculative") and metrics.get("drafted_delta") == 0:
        role = "k0"
    if arm_column is None:
        arm = f"k={k}" if k is not None else f"row {line}"
    conditions = _conditions(row)
    settings = {name: row[name] for name in columns.SETTINGS if row.get(name)}
    speculated = metrics.get("accepted") is not None or metrics.get("mean_length") is not None
    if metrics.get("accepted") or metrics.get("proposed") or metrics.get("mean_length", 0) > 1:
        role = "speculative"  # whatever its name says: `mtp_on_tq_off` is no baseline
    if role in ("unknown", "speculative") and k is None:
        k = k_of(arm)
    yield Arm(input, arm, role, None if role == "target_only" else k, conditions, metrics, settings)
    if speculated and role != "target_only":
        yield _window(input, arm, k, metrics)


def _k(row: Mapping[str, str]) -> int | None:
    for name in columns.K:
        value = number(row.get(name))
        if value is not None and 0 <= value <= 256 and value == int(value):
            return int(value)
    return None


def _conditions(row: Mapping[str, str]) -> dict[str, int | float | str]:
    found: dict[str, int | float | str] = {}
    for dimension, aliases in columns.CLASS.items():
        text = next((row[alias] for alias in aliases if row.get(alias)), None)
        if text is None:
            continue
        value = number(text)
        numeric = value is not None and dimension not in ("label", "engine", "version")
        found[dimension] = (
            (int(value) if value == int(value) else value)
            if numeric and value is not None
            else text
        )
    return found


def _metrics(row: Mapping[str, str], line: int, impossible: Impossible) -> dict[str, float]:
    found: dict[str, float] = {}
    for metric, aliases in _MEASURES.items():
        column, value = _first(row, aliases)
        positive = metric not in columns.OUTCOME
        if value is not None and impossible.keeps(column, value, line, above_zero=positive):
            found[metric] = value
    for metric, aliases in columns.SECONDS.items():
        column, value = _first(row, aliases)
        if metric in found or value is None:
            continue
        if impossible.keeps(column, value, line, above_zero=True):
            found[metric] = 1000 * value
    rate = found.get("acceptance_rate")
    if rate is not None and 1 < rate <= 100:
        found["acceptance_rate"] = rate / 100
    return found


def _first(row: Mapping[str, str], aliases: Sequence[str]) -> tuple[str, float | None]:
    """The first column among the aliases that holds a number, and that number."""
    values = ((alias, number(row.get(alias))) for alias in aliases)
    return next((found for found in values if found[1] is not None), ("", None))


def _window(input: str, arm: str, k: int | None, metrics: Mapping[str, float]) -> Window:
    drafts, length = metrics.get("drafts"), metrics.get("mean_length")
    tok_s = metrics.get("throughput_tok_s")
    verify, draft = metrics.get("verify_total_ms"), metrics.get("draft_total_ms")
    # A column of milliseconds beside a count of rounds is a sum over them.
    verify_ms = verify / drafts if verify is not None and drafts else None
    emitted = round(length * drafts) if length and drafts else None
    return Window(
        input,
        "unknown",
        grain="run",
        label=arm,
        k=k,
        drafts=round(drafts) if drafts is not None else None,
        proposed=_whole(metrics.get("proposed")),
        accepted=_whole(metrics.get("accepted")),
        came_out=emitted,
        printed_rate=metrics.get("acceptance_rate"),
        printed_length=length,
        throughput_tok_s=tok_s,
        round_ms=verify_ms,
        draft_ms=draft / drafts if draft is not None and drafts else None,
        # The table's own length may leave out the first token or cut the last round.
        tolerance=max(0.05, 1.5 / drafts) if drafts else 0.05,
    )


def _whole(value: float | None) -> int | None:
    return round(value) if value is not None else None
