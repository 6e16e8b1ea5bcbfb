"""Tables whose columns are classes of traffic: loads, workloads, categories.

A corner that names both sides, columns of one load each, groups of measures under one class, or a
caption that gives the measure of all columns.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from specscope.readers.tables import headers
from specscope.readers.tables.cells import quantity, read
from specscope.readers.tables.csv_file import name_of
from specscope.readers.tables.names import ON, is_total, named, words
from specscope.readers.tables.schema import resolve
from specscope.readers.tables.table import Table
from specscope.readers.tables.units import unit_of

_SUFFIXES = sorted(
    {
        *(alias for metric in headers.SPEEDS for alias in headers.MEASURES[metric]),
        *headers.MEASURES["acceptance_rate"], *headers.MEASURES["mean_length"], "acc", "decode",
        "e2e_ms",
    },
    key=lambda alias: -len(alias),
)  # fmt: skip
_CORNER = re.compile(r"(\w[\w ]{0,30}?)\s*[\\/↓×]\s*(\w[\w ]{0,30}?)\s*→?")
NO_CLASS = set(
    words(
        "mean median avg average p50 p90 p95 p99 min max std total output input gen generation "
        "decode prompt prefill aggregate per stream request user peak raw e2e wall overall "
        "number of num the accepted drafted draft verify ttft pp tg"
    )
)
"""Words before a measure that say which statistic or which tokens, not which class."""


def crossed(table: Table) -> Table:
    """The table with columns named after their load, where its corner names both sides
    (`TP \\ Concurrency`)."""
    first, *others = table.names or [""]
    corner = _CORNER.fullmatch(table.said(first))
    if not corner or not all(name.isdigit() for name in others):
        return table
    rows, columns = map(name_of, corner.groups())
    new = {first: rows, **{name: f"{columns}_{name}" for name in others}}
    if not all(headers.class_of(new[name]) for name in others):
        return table
    return replace(
        table,
        names=[new[name] for name in table.names],
        rows=[{new[name]: cell for name, cell in row.items()} for row in table.rows],
        printed={new[name]: table.said(name) if name != first else rows for name in table.names},
    )


def class_columns(table: Table) -> dict[str, tuple[str, int, str]]:
    """Column to (dimension, value, measure), if the columns are loads and their unit is known."""
    found = {}
    for name in table.names:
        known = headers.class_of(name)
        measure = unit_of(table, name) if known else None
        if known and measure:
            found[name] = (*known, measure)
    return found if len(found) > 1 else {}


def by_class(
    row: Mapping[str, str], classes: Mapping[str, tuple[str, int, str]]
) -> Iterator[dict[str, str]]:
    shared = {name: value for name, value in row.items() if name not in classes}
    # What is measured once a row is not known to be of one load or the other.
    schema = resolve(list(shared))
    own = {column for places in schema.metrics.values() for column, _ in places}
    shared = {name: value for name, value in shared.items() if name not in own}
    for name, (dimension, value, measure) in classes.items():
        yield {**shared, dimension: str(value), measure: row.get(name, "")}


def split_name(name: str) -> tuple[str, str] | None:
    """(what stands beside a measure, the measure) in a header such as `baseline_tok_s`."""
    if name in headers.KNOWN or headers.is_delta(name):
        return None
    for alias in _SUFFIXES:
        if name.endswith(f"_{alias}"):
            return name.removesuffix(f"_{alias}"), alias
        if name.startswith(f"{alias}_") and len(alias) > 3:
            return name.removeprefix(f"{alias}_"), alias
    return None


def grouped_columns(table: Table) -> dict[str, tuple[str, str]]:
    """Column to (class, measure), if several classes have the same two measures or more each."""
    found: dict[str, tuple[str, str]] = {}
    for name in table.names:
        split = split_name(name)
        if split is None or set(split[0].split("_")) <= NO_CLASS:
            continue
        rest, measure = split
        measure = "tok_s" if measure == "decode" and unit_of(table, name) == "tok_s" else measure
        measure = {"acc": "acceptance_rate", "e2e_ms": "latency_ms"}.get(measure, measure)
        if measure != "decode":
            found[name] = (rest, measure)
    measures: dict[str, set[str]] = defaultdict(set)
    for rest, measure in found.values():
        measures[rest].add(measure)
    alike = len({frozenset(own) for own in measures.values()}) == 1
    if len(measures) < 2 or not alike:
        return {}
    several = len(next(iter(measures.values()))) > 1
    return found if several or _one_speed_a_class(table, found) else {}


def category_columns(table: Table) -> dict[str, tuple[str, str]]:
    """Column to (class, measure), if the caption names an acceptance and no column does, or if
    cells of all of them give speeds and the rows name the arms."""
    speeds = [n for n in table.names[1:] if unit_of(table, n) == "tok_s"]
    if not speeds and not resolve(table.names, table.rows).metrics:  # the caption's, of classes
        speeds = [n for n in table.names[1:] if unit_of(table, n) == "throughput_tok_s"]
        if any(headers.is_delta(n) or set(n.split("_")) & NO_CLASS for n in speeds):
            speeds = []
    told = {n: (n, "tok_s") for n in speeds if not is_total(table.said(n))}
    if len(told) > 1 and _one_speed_a_class(table, told):
        return told
    said = [table.said(table.names[0]), table.caption, *table.context[:4]]
    measure = next(filter(None, map(_told_measure, said)), None)
    corner = not any(quantity(row.get(table.names[0])) for row in table.rows)
    schema = resolve(table.names[corner and bool(_told_measure(said[0])) :], table.rows)
    if measure not in ("mean_length", "acceptance_rate") or schema.metrics or schema.positions:
        return {}
    used = {*schema.k, *(name for found in schema.dimensions.values() for name in found)}
    names = [n for n in table.names[1:] if n not in used and not is_total(table.said(n))]
    if len(names) < 2 or not all(quantity(row.get(n)) for row in table.rows for n in names):
        return {}
    return {name: (name, headers.MEASURES[measure][0]) for name in names}


def _told_measure(text: str) -> str | None:
    """The acceptance that a line above names; None for any other."""
    if re.search(r"\baccept\w*[- _]len", text, re.IGNORECASE) and len(text) <= 160:
        return "mean_length"
    found = headers.metric_of(name_of(text)) if len(text) <= 60 else None
    return found if found == "acceptance_rate" else None


def _one_speed_a_class(table: Table, found: Mapping[str, tuple[str, str]]) -> bool:
    """Whether columns of one speed each are workloads: rows name the arms, and no header does."""
    schema = resolve([name for name in table.names if name not in found], table.rows)
    measure = headers.metric_of(next(iter(found.values()))[1])
    states = {named(rest.replace("_", " ")).state for rest, _ in found.values()}
    arms = {named(row.get(schema.arm, "")).state for row in table.rows} if schema.arm else set()
    return measure in headers.SPEEDS and states == {""} and (bool(schema.k) or ON in arms)


def by_group(
    row: Mapping[str, str], grouped: Mapping[str, tuple[str, str]]
) -> Iterator[dict[str, str]]:
    shared = {name: cell for name, cell in row.items() if name not in grouped}
    for group in dict.fromkeys(rest for rest, _ in grouped.values()):
        own = {
            measure: row.get(name, "") for name, (rest, measure) in grouped.items() if rest == group
        }
        if any(read(cell).values for cell in own.values()):
            # A corner that names the measure stands above the names of rows.
            side = [cell for n, cell in shared.items() if n in headers.KNOWN and not quantity(cell)]
            yield {**shared, "label": ", ".join([group.replace("_", " "), *side]), **own}
