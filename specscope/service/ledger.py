"""Where each boot's sidecar goes on: after the last batch that the store has without a gap."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from specscope.service.intake import Source
from specscope.store.connection import Store

# A ledger that begins after batch 1 was cut off by age: what it begins with follows on
# batches that were acknowledged long ago.
CONTIGUOUS = """
SELECT replica, boot, max(number) AS last, argMax(next_seq, number) AS next_seq
FROM (
    SELECT replica, boot, number, next_seq,
        number - row_number() OVER (PARTITION BY replica, boot ORDER BY number) AS before,
        min(number) OVER (PARTITION BY replica, boot) AS first
    FROM batch FINAL
    WHERE (replica, boot) IN (
        SELECT arrayJoin(arrayZip({replicas:Array(String)}, {boots:Array(String)})))
)
WHERE before = first - 1
GROUP BY replica, boot"""


class Position(NamedTuple):
    """The last batch, 0 where there is none, and the record number that follows it."""

    number: int
    next_seq: int


def positions(store: Store, sources: Iterable[Source]) -> Mapping[Source, Position]:
    """The position of every source, (0, 0) where the store has nothing of it."""
    wanted = list(dict.fromkeys(sources))
    if not wanted:
        return {}
    params = {"replicas": [s.replica for s in wanted], "boots": [s.boot for s in wanted]}
    found = {
        Source(row["replica"], row["boot"]): Position(row["last"], row["next_seq"])
        for row in store.rows(CONTIGUOUS, params)
    }
    return {source: found.get(source, Position(0, 0)) for source in wanted}
