"""Tables that are not one row per arm: a column per arm, a column per load, a row per metric, an
arrow between two arms in each cell.

Each is turned into one row per arm and class, which is all that `bench_table` reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from specscope.readers.tables import headers
from specscope.readers.tables.arrows import arrow_columns, by_arrow
from specscope.readers.tables.cells import quantity, read
from specscope.readers.tables.class_columns import (
    NO_CLASS,
    by_class,
    by_group,
    category_columns,
    class_columns,
    crossed,
    grouped_columns,
    split_name,
)
from specscope.readers.tables.command_lines import commanded
from specscope.readers.tables.csv_file import name_of
from specscope.readers.tables.names import (
    K0,
    OFF,
    ON,
    WORD,
    heads_planned,
    is_drafter,
    is_total,
    named,
    names_feature,
    speaks_only_of_speculation,
    words,
)
from specscope.readers.tables.schema import resolve
from specscope.readers.tables.table import Table
from specscope.readers.tables.units import by_speedup, is_ratio, unit_of

_METRIC_HEADERS = set(words("metric metrics key item measure statistic indicator parameter"))
_STATISTICS = re.compile(
    r"^(?:avg|mean|average|value|result|min|max|std|p\d\d|median|count|unit|total)$"
)
_MEANS = ("value", "result", "avg", "mean", "average")
_TOPIC = re.compile(
    r"^\W*(?:\[[^\]]{1,40}\]\W*)*(?:enabl|support|add(?:s|ed|ing)?\b|implement|introduc|integrat"
    r"|feature|request|bug\b|rfc\b|(?:perf|feat|fix)[(:])",
    re.IGNORECASE,
)
"""How the title of an issue begins: it names what the text is about, no run."""

_QUANTITIES = set(
    words(
        "tokens prefill prompt prompts params size memory vram gb gib mb mib layers runs "
        "samples requests block depth rows errors"
    )
)
"""A column of one of these describes the row; it is no arm."""

_MEASURE_IN_NAME = re.compile(
    r"\s*\b(?:(?:output|decode|gen(?:eration)?) )?(?:tok(?:en)?s?|t)\s*/\s*s(?:ec)?"
    r"(?:\s*/\s*\w+)?(?:\(\w+\))?"
    r"|\s*\b(?:tps|tpot)\b",
    re.IGNORECASE,
)
"""What a header measures, beside the arm that it names (`MTP tok/s/user`)."""


def long_rows(table: Table) -> list[dict[str, str]]:
    """One row per arm and class; the rows as they are where they are that already."""
    table = _turned(crossed(table))
    if measured := _metric_column(table):
        return list(_by_metric(table, measured))
    if is_transposed(table):
        return list(_by_column(table))
    arrows = arrow_columns(table)
    if arrows:
        return [one for row in _of_runs(table) for one in by_arrow(table, row, arrows)]
    arms = _named_columns(table)
    classes = {} if arms else class_columns(table)
    if classes:
        return [one for row in _of_runs(table) for one in by_class(row, classes)]
    arms = arms or _arm_columns(table)
    if arms:
        return [one for row in _labelled(table, _of_runs(table)) for one in _by_arm(row, arms)]
    grouped = grouped_columns(table) or category_columns(table)
    if grouped:
        return [one for row in _of_runs(table) for one in by_group(row, grouped)]
    return [dict(row) for row in _of_runs(table)]


def _turned(table: Table) -> Table:
    """A table whose rows are arms with their measure (`EAGLE3 (tok/s)`) and whose columns are
    classes, with classes as rows."""
    first, *others = table.names or [""]
    loads = [headers.class_of(name) for name in others]
    said = [row.get(first, "") for row in table.rows]
    names = [name_of(cell) for cell in said]
    split = [split_name(name) for name in names]
    states = {named(one[0].replace("_", " ")).state for one in split if one}
    if not (loads and all(loads) and ON in states and states & {OFF, WORD}):
        return table
    if len(set(names)) < len(names) or len({load[0] for load in loads if load}) > 1:
        return table
    rows = []
    for name, load in zip(others, loads, strict=True):
        cells = [row.get(name, "") for row in table.rows]
        rows.append({load[0]: str(load[1]), **dict(zip(names, cells, strict=True))} if load else {})
    dimension = next(load[0] for load in loads if load)
    printed = {dimension: dimension, **dict(zip(names, said, strict=True))}
    return replace(table, names=[dimension, *names], rows=rows, printed=printed)


def _metric_column(table: Table) -> str:
    """The column that says of each row what its other columns measure, between classes and arms."""
    for name in table.names[1:]:
        cells = [row.get(name, "") for row in table.rows]
        if (
            name in _METRIC_HEADERS
            and all(cells)
            and any(headers.metric_of(name_of(c)) for c in cells)
        ):
            return name
    return ""


def _by_metric(table: Table, column: str) -> Iterator[dict[str, str]]:
    place = list(table.names).index(column)
    arms = [name for name in table.names[place + 1 :] if not headers.is_delta(name)]
    for row in table.rows:
        shared = {name: row.get(name, "") for name in table.names[:place]}
        for name in arms:
            yield {**shared, "arm": table.said(name), name_of(row[column]): row.get(name, "")}


def of_subject(table: Table) -> Table:
    """The table with its column `mean`, beside percentiles, named after what the lines above
    speak of."""
    beside = any(re.match(r"p\d\d$|median$|min$|max$", name) for name in table.names)
    told = any(re.search(r"accept\w*[- _]len", text, re.IGNORECASE) for text in table.context)
    if not ("mean" in table.names and beside and told):
        return table
    rows = [{("accept_len" if n == "mean" else n): c for n, c in row.items()} for row in table.rows]
    names = ["accept_len" if name == "mean" else name for name in table.names]
    return replace(table, names=names, rows=rows)


def is_transposed(table: Table) -> bool:
    """Whether the first column names metrics and the others are arms."""
    if len(table.names) < 2 or not table.rows:
        return False
    first, *others = table.names
    measured = len(resolve([_measure(table, row) for row in table.rows]).metrics)
    headless = len(others) == 1 and not any(table.printed.values())  # names and values
    by_header = (first in _METRIC_HEADERS or headless) and measured >= 1
    by_cells = measured >= 2 and not resolve(others).metrics and not resolve([first]).metrics
    return by_header or by_cells


def _measure(table: Table, row: Mapping[str, str]) -> str:
    """The name in a row's first cell, with the unit that its other cells have in common."""
    first, *others = table.names
    name = name_of(row.get(first, ""))
    units = {q.unit for other in others if (q := quantity(row.get(other))) and q.value}
    unit = name_of(units.pop()) if len(units) == 1 else ""
    bare_name = name and unit and unit not in ("x", "pct") and not name.endswith(unit)
    return f"{name}_{unit}" if bare_name and headers.metric_of(name) is None else name


def _of_runs(table: Table) -> list[Mapping[str, str]]:
    """The rows of single runs: a mean or a sum over other rows counts them twice."""
    first = table.names[0] if table.names else ""
    kept = [row for row in table.rows if not is_total(row.get(first, ""))]
    return kept or list(table.rows)


def _by_column(table: Table) -> Iterator[dict[str, str]]:
    first, *others = table.names
    kept = [name for name in others if name and not headers.is_delta(name)]
    if kept and all(_STATISTICS.match(name) for name in kept):
        kept = [next((name for name in _MEANS if name in kept), kept[0])]
        arm = {kept[0]: arm_above(table)}
    elif kept and all(headers.class_of(name) for name in kept):
        for name in kept:
            dimension, value = headers.class_of(name) or ("", 0)
            row = {name_of(cells.get(first, "")): cells.get(name, "") for cells in table.rows}
            yield {dimension: str(value), **row}
        return
    else:
        arm = {name: table.said(name) for name in kept}
    above = arm_above(table)
    silent = not any(named(arm[name]).state for name in kept)
    classes = silent and len(kept) > 1 and named(above).state in (ON, OFF)
    for name in kept:
        row = {_measure(table, cells): cells.get(name, "") for cells in table.rows}
        own = {"arm": above, "label": arm[name]} if classes else {"arm": arm[name] or table.caption}
        yield {**own, **row}


def arm_above(table: Table) -> str:
    """The line above a table that says which arm it is of; else its caption."""
    for text in table.context:
        if named(text).state in (ON, OFF, WORD) and len(text) <= 120 and not is_topic(text):
            return text
    return table.caption or (table.context[0][:60] if table.context else "")


def is_topic(text: str) -> bool:
    """Whether a line above is the title of an issue, which names no run."""
    return bool(_TOPIC.match(text))


def _named_columns(table: Table) -> dict[str, tuple[str, str]]:
    """Column to (arm, measure), if headers name several arms with their measure, one a baseline."""
    found = {
        name: split
        for name in table.names
        if (split := split_name(name)) and split[1] not in ("decode", "acc")
    }
    found = {name: s for name, s in found.items() if not set(s[0].split("_")) <= NO_CLASS}
    arms = {arm for arm, _ in found.values()}
    states = {named(arm).state for arm in arms}
    return found if len(arms) > 1 and states & {OFF, WORD} else {}


def _arm_columns(table: Table) -> dict[str, tuple[str, str]]:
    """Column to (arm, measure), if columns are arms, one of them a baseline, in a known unit."""
    schema = resolve(table.names)
    used = {column for places in schema.metrics.values() for column, _ in places}
    used |= {
        *schema.k,
        *(n for n in schema.settings if unit_of(table, n) is None),  # `draft model` above speeds
        *(n for found in schema.dimensions.values() for n in found),
    }
    lone = (
        len(table.rows) == 1 or len({named(table.said(n)).state for n in table.names} - {ON}) == 0
    )
    pair = _with_and_without(table)
    names = [
        n
        for n in table.names[0 if lone else 1 :]
        if (n not in used and not headers.is_delta(n) and not set(n.split("_")) & _QUANTITIES
        and not n.startswith("accept")
        and named(table.said(n)).state in (ON, OFF, K0, WORD)) or n.startswith("with_")
        or n in pair or _accepts(table, n)
    ]  # fmt: skip
    numeric = [
        n
        for n in names
        if any(quantity(row.get(n)) for row in table.rows) and not is_ratio(table, n)
    ]
    states = {n: named(table.said(n)).state for n in numeric}
    bases = [n for n in numeric if states[n] in (OFF, K0, WORD) or n in pair[:1]]
    if len(numeric) < 2 or heads_planned(table.caption):
        return {}
    measure = unit_of(table, (bases or numeric)[0])
    if measure is None and bases:
        measure = by_speedup(table, bases[0], numeric)
    if measure is None:
        return {}
    if pair and set(numeric) == set(pair):
        said = {pair[0]: "without speculation", pair[1]: "with speculation"}
        return {name: (said[name], measure) for name in numeric}
    return {name: (_MEASURE_IN_NAME.sub("", table.said(name)).strip(" -_,"), measure)
            for name in numeric}  # fmt: skip


def _accepts(table: Table, name: str) -> bool:
    """Whether the cells of a column give an acceptance behind their speed."""
    cells = [read(row.get(name)) for row in table.rows]
    return 2 * sum(cell.accepts and bool(cell.values) for cell in cells) > len(cells)


_WITH_DRAFTER = re.compile(
    r"\bwith(?:\W+and\W+without|out\W+and\W+with)?\s(?:(?:an?|the|its)\s)?(?:draft\w*|specul\w*|mtp|eagle)",
    re.IGNORECASE,
)


def _with_and_without(table: Table) -> tuple[str, ...]:
    """The columns `with` and `without`, or `on` and `off`, where the lines above or all rows are
    about a drafter."""
    above = [text for text in [table.caption, *table.context[:3]] if text]
    first = [row.get(table.names[0], "") for row in table.rows]
    told = any(speaks_only_of_speculation(text) or commanded(text) for text in above)
    told = told or any(map(_WITH_DRAFTER.search, above))
    told = told or (not above and all(named(cell).state == ON for cell in first))
    if not told or any(map(names_feature, above)):
        return ()
    pairs = (("without", "with"), ("off", "on"))
    return next((pair for pair in pairs if set(pair) <= set(table.names)), ())


def _by_arm(
    row: Mapping[str, str], arms: Mapping[str, tuple[str, str]]
) -> Iterator[dict[str, str]]:
    """One row per arm, with the columns that all arms share."""
    shared = {name: value for name, value in row.items() if name not in arms}
    by_arm: dict[str, dict[str, str]] = {}
    for name, (arm, measure) in arms.items():
        cell = row.get(name, "")
        if remark := remark_of_speculation(cell):  # `32.7 (MTP n=6)` below "Baseline"
            arm = f"{arm} ({remark})"
        by_arm.setdefault(arm, {}).setdefault(measure, cell)
    speculative = [arm for arm in by_arm if named(arm).state not in (OFF, K0, WORD)]
    for arm, measures in by_arm.items():
        # What a speculating run alone has, once in the row, is that of the one arm that speculated.
        alone = arm in speculative and len(speculative) == 1
        own = shared if alone else {n: v for n, v in shared.items() if not _of_speculation(n)}
        yield {**own, "arm": arm, **measures}


def remark_of_speculation(cell: str) -> str:
    """What stands in brackets behind a figure, if it says that its run speculated."""
    for remark in re.findall(r"\(([^()]{1,60})\)", cell):
        other = re.search(r"\b(?:vs|over|than|against|with?out|no)\b|\d\s?[x×%]", remark)
        if is_drafter(remark) and named(remark).state == ON and not other:
            return str(remark)
    return ""


def _of_speculation(name: str) -> bool:
    return (
        headers.metric_of(name) in headers.OUTCOME
        or name in (*headers.K, *headers.DRAFTER)
        or headers.is_draft_length(name)
    )


def _labelled(table: Table, rows: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """The rows of a table whose arms are columns: each row is a class, told by its first cell."""
    first = table.names[0]
    schema = resolve([first])
    if (
        named(table.said(first)).state
        or "label" in table.names
        or schema.measures
        or schema.dimensions
        or schema.k
    ):
        return list(rows)

    def label(cell: str) -> str:
        return f"{table.said(first)} {cell}".strip() if quantity(cell) else cell

    return [
        {"label": label(row.get(first, "")), **{n: cell for n, cell in row.items() if n != first}}
        for row in rows
    ]
