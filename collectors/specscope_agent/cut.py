"""One batch from a ring: pulled, transposed, encoded and limited in size."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from specscope_agent.loss import Losses
from specscope_agent.rings import OpenRing
from specscope_agent.source import Source
from specscope_agent.transpose import transpose
from specscope_agent.windows import Window
from specscope_agent.wire import Encoded, encode
from specscope_hook.ring import Cursor, Gap, RawRecord

LARGEST_BATCH_BYTES = 2 << 20  # of Arrow; gRPC refuses 4 MiB by default
PULL_BYTES = 2 << 20  # of the ring; its rows take less once they are compressed


@dataclass(frozen=True, slots=True)
class Cut:
    """A future batch, up to `cursor`."""

    cursor: Cursor
    tables: Mapping[str, pa.Table]
    encoded: Sequence[Encoded]
    records: Sequence[RawRecord]
    losses: Losses
    more: bool
    """Whether the ring most likely holds more already."""


def cut(
    ring: OpenRing,
    cursor: Cursor,
    windows: Sequence[Window] = (),
    *,
    pull_bytes: int = PULL_BYTES,
) -> Cut:
    """Pull once and make rows; at most LARGEST_BATCH_BYTES if there is more than one record.

    A record that gives no rows is a loss of reason `corrupt`; the records after it still count.
    """
    source, limit = ring.source, pull_bytes
    while True:
        records, after, gaps = ring.reader.pull(cursor, limit)
        # After the pull: a name is published before the record that uses it.
        ring.origin = ring.origin.refreshed(ring.reader)
        losses = Losses(source, time.time_ns())
        try:
            tables = transpose(records, gaps, ring.origin, windows=windows, losses=losses)
        except Exception as error:  # whatever a record makes fail, it alone is lost for it
            if len(records) > 1:
                limit = _bytes(records) // 2
                continue
            tables, losses = {}, _unreadable(source, records, gaps, error)
        encoded = encode(tables)
        size = sum(len(table.arrow) for table in encoded)
        if size <= LARGEST_BATCH_BYTES or len(records) == 1:
            more = _bytes(records) > limit // 2
            return Cut(after, tables, encoded, records, losses, more)
        limit = int(_bytes(records) * 0.8 * LARGEST_BATCH_BYTES / size)


def _bytes(records: Sequence[RawRecord]) -> int:
    return sum(len(record.payload) + 24 for record in records)


def _unreadable(
    source: Source, records: Sequence[RawRecord], gaps: Sequence[Gap], error: Exception
) -> Losses:
    losses = Losses(source, time.time_ns())
    for gap in gaps:
        losses.add("ring", gap.reason, gap.first_seq, gap.count)
    for record in records:
        losses.add("ring", "corrupt", record.seq, 1, str(error)[:200])
    return losses
