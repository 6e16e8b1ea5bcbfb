"""Drop rows of a full or damaged spool, and record the losses."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa

from specscope_agent.batchfile import Batch
from specscope_agent.lane import BLOCK_BYTES, Entry, Lane
from specscope_agent.loss import Losses
from specscope_agent.wire import Encoded, decode, encode
from specscope_hook.ring import Cursor

DROP_ORDER = (("request_part", "device"), ("round",), ("request",))


def droppable(lanes: Iterable[Lane], tables: Sequence[str]) -> list[tuple[Lane, Entry]]:
    """Batches that hold rows of these tables and have not been sent, oldest first."""
    found = [
        (lane, entry)
        for lane in lanes
        for entry in lane.entries.values()
        if not entry.sent
        and entry.disk_bytes > BLOCK_BYTES
        and any(name in entry.rows for name in tables)
    ]
    # Sources take turns: batches are cut at one pace, so an equal distance from the newest
    # is an equal age.
    return sorted(found, key=lambda pair: pair[1].number - pair[0].newest.number)


def without(batch: Batch, tables: Sequence[str]) -> Batch:
    """The batch without rows of these tables, and a loss for each table."""
    losses = Losses(batch.source, time.time_ns())
    for table in batch.tables:
        if (
            table.name == "device" in tables
        ):  # no record of the ring has their number: their time tells them
            sampled_at = max(decode(table.arrow).column("sampled_at").cast(pa.int64()).to_pylist())
            losses.add("device", "spool_full", None, table.rows, at=sampled_at, number=batch.number)
        elif table.name in tables:
            losses.add(table.name, "spool_full", batch.first_seq, table.rows, number=batch.number)
    kept = [table for table in batch.tables if table.name not in tables]
    return replace(batch, tables=_with(kept, losses))


def in_place_of(lane: Lane, number: int, first_seq: int | None, next_seq: int) -> Batch:
    """A batch with a loss for records that the disk lost; their number may be unknown."""
    losses = Losses(lane.source, time.time_ns())
    if first_seq is None or next_seq > first_seq:
        count = None if first_seq is None else next_seq - first_seq
        losses.add("ring", "corrupt", first_seq, count, "a batch in the spool", number=number)
    position = lane.newest.cursor.position if number == lane.newest.number else 0
    return Batch(
        source=lane.source,
        number=number,
        first_seq=next_seq if first_seq is None else first_seq,
        cursor=Cursor(position, next_seq),
        said=frozenset(),
        tables=_with([], losses),
    )


def _with(tables: Sequence[Encoded], losses: Losses) -> tuple[Encoded, ...]:
    before = [decode(table.arrow) for table in tables if table.name == "loss"]
    others = [table for table in tables if table.name != "loss"]
    return (*others, *encode({"loss": pa.concat_tables([*before, losses.table()])}))
