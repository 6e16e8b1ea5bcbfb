"""Rows of the store as the evaluator's records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from specscope import queries
from specscope.evaluate.experiment.blocks import BlockClass, BlockPart, BlockTime
from specscope.store.connection import Store

MOST_BLOCKS = 20_000
Row = TypeVar("Row", BlockTime, BlockPart, BlockClass)


def is_large(store: Store, where: str) -> bool:
    """Whether a condition chooses too many blocks to read them singly."""
    count = sum(int(row["blocks"]) for row in store.rows(queries.block_count(where)))
    return count > MOST_BLOCKS


def read_records(store: Store, statement: str, record: type[Row]) -> list[Row]:
    """Convert rows to records batch by batch, because plain values of all rows would not fit in
    memory."""
    found = []
    for batch in store.query(statement).to_batches(max_chunksize=1000):
        found += [record(**_known(row, record)) for row in batch.to_pylist()]
    return found


def _known(row: Mapping[str, Any], record: type[Any]) -> dict[str, Any]:
    """The columns of a row that the record has; a newer version's store has more."""
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name in record.__dataclass_fields__
        if (value := row.get(name.rstrip("_"), _MISSING)) is not _MISSING
    }


_MISSING = object()
