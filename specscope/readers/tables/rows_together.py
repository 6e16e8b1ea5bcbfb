"""Facts from all rows of a table together: baselines and repetitions."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from specscope.readers.records import Arm
from specscope.readers.tables.cells import quantity
from specscope.readers.tables.names import (
    OFF,
    ON,
    heads_planned,
    is_planned,
    is_serial,
    is_total,
    named,
)
from specscope.readers.tables.schema import Row, Schema, is_blank
from specscope.readers.tables.table import Table

SPEECH = ("accepted", "mean_length", "acceptance_rate")
"""Metrics that speak of speculation."""

_FAILED = re.compile(
    r"(?<!no )(?<!not )(?<!without )\b(?:crash(?:ed|es)?|oom|out of memory|garbage|gibberish"
    r"|segfault|hangs?|hung|wrong output|incorrect|corrupt\w*|fail(?:ed|s)?|repeats forever)\b",
    re.IGNORECASE,
)
"""What ran and did not answer, or not with the same text."""


ReadRow = tuple[Arm, tuple[float, ...] | None]
"""The arm of a row, and its acceptance by position."""


def ran(unfolded: list[dict[str, str]], table: Table) -> tuple[list[dict[str, str]], list[str]]:
    """The rows that were run, and the names of those that the table marks as projected."""
    kept, planned = [], []
    for row in unfolded:
        name = next((cell for cell in row.values() if cell), "")
        if any(is_planned(cell) or _FAILED.search(cell) for cell in row.values()):
            planned.append(name[:60])
        else:
            kept.append(row)
    if heads_planned(table.caption):
        return [], [table.caption[:60]]
    return kept, planned


def infer_baseline(schema: Schema, rows: Sequence[Row], read_rows: list[ReadRow]) -> None:
    """Rows whose acceptance is left blank, in a table that gives it for others, drafted nothing."""
    _infer_by_name(read_rows)
    _doubt_serial(read_rows)
    places = [c for metric in SPEECH for c, _ in schema.metrics.get(metric, [])]
    if not places or any(arm.role in ("target_only", "k0") for arm, _ in read_rows):
        return
    blank = [all(is_blank(row.get(column)) for column in places) for row in rows]
    given = any(any(metric in arm.metrics for metric in SPEECH) for arm, _ in read_rows)
    if not given or not 0 < sum(blank) < len(read_rows):
        return
    if len({arm.arm for place, (arm, _) in enumerate(read_rows) if blank[place]}) > 1:
        return  # of several that drafted nothing, which is the baseline?
    for place, (arm, positions) in enumerate(read_rows):
        nameless = arm.role == "unknown" and arm.k in (None, 0)
        if blank[place] and nameless and not named(arm.arm).versioned and not is_total(arm.arm):
            plain = replace(arm, role="target_only", k=None, basis="inferred")
            read_rows[place] = (plain, positions)


def _infer_by_name(read_rows: list[ReadRow]) -> None:
    """`Llama-8B` beside `Llama-8B + EAGLE`: the name without the drafter is the baseline's."""
    if any(arm.role in ("target_only", "k0") for arm, _ in read_rows):
        return
    added = [named(arm.arm) for arm, _ in read_rows if arm.role == "speculative"]
    rests = {_key(name.rest) for name in added if name.state == ON and not name.versioned}
    for place, (arm, positions) in enumerate(read_rows):
        if arm.role == "unknown" and arm.k is None and _key(arm.arm) in rests - {""}:
            plain = replace(arm, role="target_only", basis="inferred")
            read_rows[place] = (plain, positions)


def _doubt_serial(read_rows: list[ReadRow]) -> None:
    """`serial` is no baseline beside drafting or verification that is said to be parallel."""
    if not any(_AT_ONCE.search(arm.arm) for arm, _ in read_rows):
        return
    for place, (arm, positions) in enumerate(read_rows):
        if is_serial(arm.arm) and arm.basis == "word":
            read_rows[place] = (replace(arm, role="unknown", basis="stated"), positions)


_AT_ONCE = re.compile(r"parallel|async|overlap|pipelin|batched|concurrent|p-?eagle", re.IGNORECASE)


def _key(name: str) -> str:
    return " ".join(re.findall(r"[\w.]+", name.lower()))


def tell_k0_apart(schema: Schema, rows: Sequence[Row], read_rows: list[ReadRow]) -> None:
    """A draft length of 0 beside a run without speculation is a speculative engine that drafts
    nothing."""
    zero = [any(_is_zero(row.get(name)) for name in schema.k) for row in rows]
    bases = [arm.role == "target_only" for arm, _ in read_rows]
    if not any(base and not none for base, none in zip(bases, zero, strict=True)):
        return
    for place, (arm, positions) in enumerate(read_rows):
        if bases[place] and zero[place] and named(arm.arm).state != OFF:
            read_rows[place] = (replace(arm, role="k0", k=0), positions)


def _is_zero(cell: str | None) -> bool:
    found = quantity(cell)
    return found is not None and found.value == 0


def split_arms_by_knobs(schema: Schema, rows: Sequence[Row], read_rows: list[ReadRow]) -> None:
    """Rows of one name and class that differ in a knob of speculation are arms of their own."""
    by_arm: dict[str, dict[tuple[str, ...], list[int]]] = defaultdict(lambda: defaultdict(list))
    for place, (arm, _) in enumerate(read_rows):
        values = tuple(f"{name.replace('_', ' ')} {rows[place].get(name)}" for name in schema.knobs)
        by_arm[f"{arm.arm} {arm.role} {arm.k} {arm.conditions}"][values].append(place)
    for kinds in by_arm.values():
        for values, places in kinds.items() if len(kinds) > 1 else ():
            varied = [one for i, one in enumerate(values) if len({v[i] for v in kinds}) > 1]
            for place in places:
                arm, positions = read_rows[place]
                read_rows[place] = (replace(arm, arm=", ".join([arm.arm, *varied])), positions)
