"""What a row says of the conditions of its run, and of the acceptance at each position."""

from __future__ import annotations

import re

from specscope.readers.tables.cells import quantity, rates
from specscope.readers.tables.round_parts import PERCENT
from specscope.readers.tables.schema import SWITCH, Row, Schema

_COMMIT = re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b")


def conditions_of(schema: Schema, row: Row) -> dict[str, int | float | str]:
    """The values of a row's classes, by dimension."""
    found: dict[str, int | float | str] = {}
    for dimension, aliases in schema.dimensions.items():
        text = next((row[alias] for alias in aliases if row.get(alias)), None)
        if text is None:
            continue
        if dimension in ("engine", "label"):
            text = _COMMIT.sub("", text).replace("()", "").strip() or text
        value = quantity(text)
        words = dimension in ("label", "engine", "version")
        if value is None or words or value.unit:
            found[dimension] = text  # `8K` is no exact size
        else:
            whole = value.value == int(value.value)
            found[dimension] = int(value.value) if whole else value.value
    labels = [
        f"{name.replace('_', ' ')} {row[name]}"
        if quantity(row[name]) or SWITCH.match(row[name])
        else row[name]
        for name in schema.labels
        if row.get(name)
    ]
    if "label" in row and "label" not in schema.dimensions and row["label"]:
        labels.append(row["label"])
    if labels:
        found["label"] = ", ".join([*([str(found["label"])] if "label" in found else []), *labels])
    return found


def positions_of(schema: Schema, row: Row) -> tuple[float, ...] | None:
    """Rates by position, 0..1; None for fewer than two."""
    if schema.position_list:
        return rates(row.get(schema.position_list)) or None
    found: list[float] = []
    for column in schema.positions.values():
        value = quantity(row.get(column))
        if value is None:
            break
        found.append(value.value)
    percent = any(rate > 1 for rate in found)
    found = [rate / PERCENT if percent else rate for rate in found]
    return tuple(found) if len(found) > 1 else None
