"""Arrow schemas of the stored tables, derived from the records."""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa

from specscope_hook.columns import Column, columns, stored_name
from specscope_hook.records import TABLES

ARROW_TYPES: dict[str, Any] = {
    "u8": pa.uint8(),
    "u16": pa.uint16(),
    "u32": pa.uint32(),
    "u64": pa.uint64(),
    "i16": pa.int16(),
    "i64": pa.int64(),
    "f32": pa.float32(),
    "f64": pa.float64(),
    "bool": pa.bool_(),
    "text": pa.string(),
    "label": pa.string(),
    "time": pa.timestamp("ns", "UTC"),
}


@cache
def schema(table: str) -> pa.Schema:
    """Schema of a stored table, its columns in declared order under their stored names.

    Each field carries its `unit` and `meaning` as metadata and is nullable exactly where
    the record says that the value may be unknown.

    Raises KeyError for a table that no record declares.
    """
    return pa.schema([_field(column) for column in columns(TABLES[table])])


def _field(column: Column) -> pa.Field:
    kind = ARROW_TYPES[column.base]
    return pa.field(
        stored_name(column.name),
        pa.list_(kind) if column.repeated else kind,
        nullable=column.nullable,
        metadata={"unit": column.unit, "meaning": column.meaning},
    )
