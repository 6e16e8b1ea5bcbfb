"""The roles of a table's columns: arm, draft length, switch, class, measure, position."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from specscope.readers.tables import headers
from specscope.readers.tables.cells import quantity, rates
from specscope.readers.tables.names import (
    OFF,
    ON,
    SWITCHED_OFF,
    WORD,
    is_drafter,
    is_planned,
    named,
    speaks_only_of_speculation,
    words,
)

Row = Mapping[str, str]

TIMES = {*headers.LOWER, *headers.PARTS}
PER_MS = {"ms": 1.0, "s": 1e3, "sec": 1e3, "secs": 1e3, "seconds": 1e3, "us": 1e-3, "µs": 1e-3}
_UNIT_OF_NAME = re.compile(r"_(s|sec|seconds|us|ms)(?:_per_[a-z_]+)?$")
_BLANK = re.compile(r"^(?:|-+|—|–|n/?a|none|null|nan|\.+|/|no drafts?)$", re.IGNORECASE)
SWITCH = re.compile(
    r"^\W*(?:on|off|yes|no|true|false|enabled|disabled|y|n|✓|✔|✅|✗|✘|❌)?\W*(?:\(.*\)|[:=,].*)?$",
    re.IGNORECASE,
)
TOKEN_RATES = (
    "tok/s", "toks/s", "t/s", "tokens/s", "token/s", "tps", "tok/sec", "tokens/sec", "tk/s",
    "tok/s/user",
)  # fmt: skip
PER_ROUND = re.compile(r"^(?:tok|toks|tokens?)/(?:forward|round|step|pass|iter|verify|cycle)$")
_COUNTED = ("", "k", "m", "b", "tokens", "tok", "users", "requests", "gpus", "gb", "gib")
"""Units of a condition; a time, a share or a speed is a result."""

TOLD_APART_BY = 2
"""A column of words is a class if each of its values stands in so many rows at least."""

_CHANGE = re.compile(r"^\W*[+\-−–±]\s?\d+(?:\.\d+)?\s*(?:%|pp|pts?\b|x\b|×)")
_TREE = ("topk", "top_k", "eagle_topk", "speculative_eagle_topk", "p_min", "draft_p_min")

_OF_MANY = {
    "mean_length": {"batch", "agg", "aggregate", "total"},
    "throughput_tok_s": {"stream", "user", "request"},
}
"""Of two columns that could be a metric, the one of these is not it."""

_POOLED = {"weighted", "overall", "pooled"}
"""A mean over rounds, beside one over requests."""

_INDEX = set(words("run trial seed rep repeat repetition iteration iter no # id pass"))


_RESULT = set(
    words(
        "gb gib mb mib peak memory mem vram watts power temp joules util ttft tpot itl latency "
        "accept acceptance accepted rate speed duration seconds attempts attempted tries hits"
    )
)
"""Words of columns that say what a run took or gave, not under what it ran."""


@dataclass(slots=True)
class Schema:
    """Columns by role. Names are as `csv_file.name_of` writes them."""

    arm: str | None = None
    k: list[str] = field(default_factory=list)
    switches: list[str] = field(default_factory=list)
    """Columns that say of each row whether it speculates."""
    dimensions: dict[str, list[str]] = field(default_factory=dict)
    labels: list[str] = field(default_factory=list)
    """Columns of words that tell classes apart, beside the known dimensions."""
    metrics: dict[str, list[tuple[str, float | None]]] = field(default_factory=dict)
    """Metric to (column, factor); a factor of None means that the cell must state its unit."""
    positions: dict[int, str] = field(default_factory=dict)
    position_list: str | None = None
    settings: list[str] = field(default_factory=list)
    knobs: list[str] = field(default_factory=list)
    """Columns that set speculation besides the draft length: a tree's width, its tokens."""
    speedup: str | None = None
    """A column of printed speedups."""
    of_baseline: list[str] = field(default_factory=list)
    """Columns of speeds that are those of a run without speculation, beside the rows' own."""

    @property
    def measures(self) -> bool:
        """Whether anything is measured in the table."""
        return bool(self.metrics) or len(self.positions) > 1

    @property
    def arms(self) -> bool:
        """Whether the table tells arms or classes apart."""
        return bool(self.arm or self.k or self.dimensions or self.switches or self.labels)


def resolve(names: Sequence[str], rows: Sequence[Row] = ()) -> Schema:
    """The schema of a table; `rows`, where given, tell columns of classes from remarks."""
    schema = Schema()
    known = {name for name in names if not is_planned(name.replace("_", " "))}
    known -= {name for name in names if is_change(name, rows)}
    _switches(schema, names, rows)
    known -= set(schema.switches)
    schema.arm = next(
        (name for name in headers.ARM if name in known and _names_arms(name, rows)), None
    )
    schema.k = [name for name in headers.K if name in known]
    for dimension, aliases in headers.CLASS.items():
        found = [alias for alias in aliases.split() if alias in known]
        if found:
            schema.dimensions[dimension] = found
    offered = [name for name in names if name in ("qps", "rps") and _is_offered(name, names, rows)]
    if offered:
        schema.dimensions["request_rate"] = offered
        known -= set(offered)
    for metric, measures in headers.MEASURES.items():
        _add(schema, metric, [name for name in measures if name in known])
    for metric, seconds in headers.SECONDS.items():
        for alias in seconds.split():
            if alias in known:
                schema.metrics.setdefault(metric, []).append((alias, 1e3))
    schema.settings = [name for name in headers.SETTINGS if name in known]
    _positions(schema, names, rows)
    _guess(schema, [name for name in names if name in known], rows)
    _by_units(schema, [name for name in names if name in known], rows)
    _drafters(schema, names, rows)
    _names_of_speculation(schema, names, rows)
    _arms_in_labels(schema, rows)
    _labels(schema, names, rows)
    knobs = [*schema.k[1:], *(name for name in known & set(_TREE))]
    used = _used(schema)
    knobs += [name for name in names if name in known - used and _is_knob(name, rows)]
    schema.knobs = [name for name in names if name in knobs]
    planned = {name for name in names if is_planned(name.replace("_", " "))}
    ratios = [name for name in names if headers.is_speedup(name) and name not in planned]
    schema.speedup = next(iter(ratios), None)
    _speed_of_baseline(schema)
    return schema


def _speed_of_baseline(schema: Schema) -> None:
    """A column that names a run without speculation (`plain t/s`), where the rows speak of
    acceptance and no column names another, is no speed of the rows."""
    spoken = schema.positions or any(m in schema.metrics for m in ("acceptance_rate", "accepted"))
    told = {
        m: [c for c, _ in places] for m, places in schema.metrics.items() if m in headers.SPEEDS
    }
    columns = [c for found in told.values() for c in found]
    states = {named(c.replace("_", " ")).state for c in columns}
    if spoken and columns and states <= {OFF, WORD}:
        schema.metrics = {m: p for m, p in schema.metrics.items() if m not in told}
        schema.of_baseline = columns


def _is_offered(name: str, names: Sequence[str], rows: Sequence[Row]) -> bool:
    """Whether a column of requests per second is what was asked for: whole numbers beside a measure
    of something else."""
    rates = [quantity(row.get(name)) for row in rows]
    others = {headers.metric_of(n) or headers.metric_of(n.rpartition("_")[2]) for n in names}
    whole = bool(rates) and all(q and q.value == int(q.value) for q in rates)
    return whole and bool(others & (headers.SPEEDS - {"request_s"}))


def is_change(name: str, rows: Sequence[Row]) -> bool:
    """Whether a column holds changes against something else: percentages with a sign."""
    cells = [cell for row in rows if (cell := row.get(name)) and not is_blank(cell)]
    return bool(cells) and all(map(_CHANGE.match, cells))


def is_blank(cell: str | None) -> bool:
    """Whether a cell marks a missing value."""
    return cell is not None and bool(_BLANK.match(cell.strip()))


def _used(schema: Schema) -> set[str]:
    used = {
        schema.arm or "",
        *schema.k,
        *schema.settings,
        *schema.positions.values(),
        *schema.switches,
    }
    used |= {name for found in schema.dimensions.values() for name in found}
    used |= {schema.position_list or ""}
    return used | {name for places in schema.metrics.values() for name, _ in places}


def _is_knob(name: str, rows: Sequence[Row]) -> bool:
    """Whether a column in no other role counts tokens, steps or branches of a drafter."""
    found = [quantity(row.get(name)) for row in rows if row.get(name)]
    whole = [q for q in found if q and not q.unit and q.value == int(q.value)]
    return is_drafter(name) and bool(found) and len(whole) == len(found)


def _names_arms(name: str, rows: Sequence[Row]) -> bool:
    """Whether a column of arms holds names: a column `run` may count repetitions."""
    cells = [cell for row in rows if (cell := row.get(name))]
    return not cells or not all(
        re.fullmatch(r"[\d.\s]+|nan|.*\d\s*(?:tok|%).*", cell, re.IGNORECASE) for cell in cells
    )


def _switches(schema: Schema, names: Sequence[str], rows: Sequence[Row]) -> None:
    for name in names:
        cells = [row.get(name, "") for row in rows]
        if (
            not is_drafter(name)
            or not cells
            or not any(re.search(r"[^\W\d]|[✓✔✅✗✘❌]", cell) for cell in cells)
        ):
            continue
        alone = name in headers.ARM and not any(n in headers.ARM and n != name for n in names)
        if not alone and all(map(SWITCH.match, cells)):
            schema.switches.append(name)


def _add(schema: Schema, metric: str, names: Collection[str]) -> None:
    for name in names:
        factor: float | None = 1.0
        if metric in TIMES:
            unit = _UNIT_OF_NAME.search(name)
            factor = PER_MS[unit.group(1)] if unit else _factor_without_unit(metric)
        schema.metrics.setdefault(metric, []).append((name, factor))


def _factor_without_unit(metric: str) -> float | None:
    """A TPOT is in ms where nobody says otherwise; a part of a round needs its unit."""
    return 1.0 if metric in headers.LOWER else None


def _positions(schema: Schema, names: Sequence[str], rows: Sequence[Row]) -> None:
    found = {headers.position_of(name): name for name in names}
    if 0 in found:  # p50 and p99 have no p0 beside them
        place = 0
        while place in found:
            schema.positions[place] = found[place]
            place += 1
    for name in names:
        lists = [row.get(name, "") for row in rows]
        if headers.is_positions(name) and lists and all(rates(cell) for cell in lists if cell):
            schema.position_list = name


def _guess(schema: Schema, names: Sequence[str], rows: Sequence[Row]) -> None:
    """Columns in no list; a metric that several names could mean is nobody's."""
    guessed: dict[str, list[str]] = {}
    used = _used(schema)
    for name in names:
        if name in used or not name:
            continue
        metric = headers.metric_of(name)
        if metric:
            guessed.setdefault(metric, []).append(name)
        elif headers.is_draft_length(name):
            schema.k.append(name)
        elif headers.is_arm(name) and schema.arm is None and _names_arms(name, rows):
            schema.arm = name
        elif dimension := headers.dimension_of(name):
            schema.dimensions.setdefault(dimension, []).append(name)
    for metric, found in guessed.items():
        pooled = [name for name in found if set(name.split("_")) & _POOLED]
        if pooled and metric in ("mean_length", "acceptance_rate"):
            schema.metrics.pop(metric, None)  # a mean over requests stands beside it
            found = pooled
        if len(found) > 1:
            others = _OF_MANY.get(metric, set())
            found = [name for name in found if not set(name.split("_")) & others]
        if metric not in schema.metrics and len(found) == 1:
            _add(schema, metric, found)


def _by_units(schema: Schema, names: Sequence[str], rows: Sequence[Row]) -> None:
    """A measure that only its cells' units tell (`Inference Speed`: `55 tok/s`)."""
    used = _used(schema)
    found: dict[str, list[str]] = {}
    for name in names:
        units = {q.unit for row in rows if name not in used and (q := quantity(row.get(name)))}
        if units and units <= {*TOKEN_RATES, ""} and units != {""}:
            found.setdefault("throughput_tok_s", []).append(name)
        elif units and all(PER_ROUND.match(unit) for unit in units):
            found.setdefault("mean_length", []).append(name)
    for metric, places in found.items():
        spoken = not set(places[0].split("_")) & {"prefill", "prompt", "pp", "input", "total"}
        if metric not in schema.metrics and len(places) == 1 and spoken:
            _add(schema, metric, places)


def _drafters(schema: Schema, names: Sequence[str], rows: Sequence[Row]) -> None:
    """Where only the drafter tells rows apart, it is the arm, and a row without one a baseline."""
    if schema.arm or schema.k:
        return
    for name in headers.DRAFTER:
        blank = [is_blank(row.get(name)) for row in rows] if name in names else []
        if blank and not all(blank):
            schema.arm = name
            schema.settings = [other for other in schema.settings if other != name]
            return


def _names_of_speculation(schema: Schema, names: Sequence[str], rows: Sequence[Row]) -> None:
    """A column about speculation that names a drafter in some rows and none in others is the arm's
    (`spec_decode`: `none`, `eagle3`)."""
    for name in names if not schema.arm and not schema.k else ():
        cells = [row.get(name, "") for row in rows]
        states = {named(cell).state for cell in cells if not is_blank(cell)}
        apart = any(map(is_blank, cells)) or states & {OFF, SWITCHED_OFF}
        if (
            name not in _used(schema)
            and speaks_only_of_speculation(name)
            and ON in states
            and apart
        ):
            schema.arm = name
            return


def _arms_in_labels(schema: Schema, rows: Sequence[Row]) -> None:
    """A column of classes whose cells name arms (`prose, no speculation`) is that of the arms."""
    if schema.arm:
        return
    for name in schema.dimensions.get("label", []):
        states = {named(row.get(name, "")).state for row in rows}
        if {ON, OFF} <= states:
            schema.arm = name
            kept = [other for other in schema.dimensions["label"] if other != name]
            schema.dimensions = {**schema.dimensions, "label": kept}
            return


def _labels(schema: Schema, names: Sequence[str], rows: Sequence[Row]) -> None:
    if schema.arm is None and names and rows and not schema.k and not schema.switches:
        first = [row.get(names[0], "") for row in rows]
        free = names[0] in schema.settings or names[0] not in _used(schema)
        if free and "mean_length" in schema.metrics and all(map(quantity, first)):
            schema.labels.append(names[0])
        loads = [name for found in schema.dimensions.values() for name in found]
        apart = {(cell, *map(row.get, loads)) for cell, row in zip(first, rows, strict=True)}
        if free and len(apart) == len(first) and not any(map(quantity, first)):
            if any(named(cell).state for cell in first):
                schema.arm = names[0]  # a table without a word for it names its arms first
            elif names[0] not in schema.settings:
                schema.labels.append(names[0])  # or its classes, where they are no arms
    used = _used(schema) - {*headers.MACHINE} | {schema.arm or ""}
    for name in names:
        if name in used or headers.is_delta(name) or name in schema.labels:
            continue
        cells = [row.get(name, "") for row in rows]
        counts = {cell: cells.count(cell) for cell in set(cells)}
        words = name in headers.MACHINE or all(quantity(cell) is None for cell in counts if cell)
        repeated = len(counts) > 1 and min(counts.values()) >= TOLD_APART_BY
        if (words and repeated) or (not words and _is_condition_of_arms(schema, name, rows)):
            schema.labels.append(name)


def _is_condition_of_arms(schema: Schema, name: str, rows: Sequence[Row]) -> bool:
    """Whether several arms were run at the same values of a column of numbers: a condition of
    theirs."""
    if schema.arm is None or set(name.split("_")) & (_INDEX | _RESULT) or name in schema.settings:
        return False
    if any((q := quantity(row.get(name))) and q.unit not in _COUNTED for row in rows):
        return False
    by_arm: dict[str, list[str]] = {}
    for row in rows:
        by_arm.setdefault(row.get(schema.arm, ""), []).append(row.get(name, ""))
    sets = [set(cells) for cells in by_arm.values()]
    several = len(sets) > 1 and all(
        len(own) == len(cells) > 1 for own, cells in zip(sets, by_arm.values(), strict=True)
    )
    return several and len(set.intersection(*sets)) > 1
