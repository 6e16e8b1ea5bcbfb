"""Remove records that the store has from losses.

A service that ends between two inserts leaves rows that no batch of the ledger names. Then the
sidecar sends the batch again. If its disk has damaged the batch meanwhile, it sends a loss instead.
The stored rows stay, and the loss is reduced to the other records.

Rows of request parts have no record number, and no loss counts them. They are stored before their
rounds, so a stored round always has its parts.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from specscope.service.intake import Admitted, Met
from specscope.store.connection import Store
from specscope.store.ledger import Source
from specscope_agent.schemas import schema

MOST_SEQ = (1 << 64) - 1
MOST_LOSSES = 50_000  # of a batch that are cut; a sidecar's have a record each at least
# Of losses whose records a sidecar may have sent before. What never was in the ring is not among
# them.
DAMAGES = ("corrupt", "ring_damaged")

WITHIN = """replica = {replica:String} AND boot = {boot:String}"""

# Runs of adjacent record numbers of one table, each with its earliest and its latest time. The
# end of a request replaces its admission, whose number then is in no row.
RUNS = f"""
SELECT table, min(seq) AS first, max(seq) + 1 AS after,
    toUnixTimestamp64Nano(min(at)) AS first_at, toUnixTimestamp64Nano(max(at)) AS last_at
FROM (
    SELECT table, seq, at,
        toInt64(seq) - row_number() OVER (PARTITION BY table ORDER BY seq) AS run
    FROM (
        SELECT seq, min(numbered.table) AS table, any(numbered.at) AS at
        FROM (
            SELECT 'round' AS table, seq, started_at AS at FROM round
            WHERE {WITHIN} AND seq >= {{first:UInt64}} AND seq < {{after:UInt64}}
            UNION ALL
            SELECT 'request' AS table, seq, admitted_at AS at FROM request
            WHERE {WITHIN} AND seq >= {{first:UInt64}} AND seq < {{after:UInt64}}
        ) AS numbered
        GROUP BY seq
    )
)
GROUP BY table, run
ORDER BY first"""

PARTS = f"""
SELECT first_seq AS seq, uniqExact(request) AS parts,
    toUnixTimestamp64Nano(min(started_at)) AS first_at,
    toUnixTimestamp64Nano(max(started_at)) AS last_at
FROM request_part
WHERE {WITHIN} AND first_seq >= {{first:UInt64}} AND first_seq < {{after:UInt64}}
GROUP BY seq
ORDER BY seq"""

Row = dict[str, Any]


def cut_to_the_missing(store: Store, batches: Sequence[Admitted]) -> None:
    """Remove stored records from the losses of these batches.

    The ledger's row of such a batch counts these records and covers their times. Raises StoreError.
    """
    for batch in batches:
        losses = batch.tables.get("loss")
        if losses is None or batch.met is not None:  # cut, before its insert was tried again
            continue
        damaged = _damaged(losses)
        if not 0 < (pc.sum(damaged).as_py() or 0) <= MOST_LOSSES:
            continue
        doubtful = sorted(losses.filter(damaged).to_pylist(), key=itemgetter("first_seq"))
        runs, parts = (_between(store, sql, batch.source, doubtful) for sql in (RUNS, PARTS))
        left = []
        batch.met, end = {}, 0
        for loss in doubtful:
            if loss["first_seq"] < end:  # no record is lost twice; each would meet all runs again
                left.append(loss)
                continue
            end = _after(loss)
            left += _without(loss, runs, batch.met)
            _meet_parts(loss, parts, batch.met)
        rows = [losses.filter(pc.invert(damaged)), pa.Table.from_pylist(left, schema("loss"))]
        batch.tables["loss"] = pa.concat_tables(rows)
        if not batch.tables["loss"].num_rows:
            del batch.tables["loss"]


def _damaged(losses: pa.Table) -> Any:
    """The losses of records that the sidecar may have sent before the damage."""
    damaged = pc.and_(
        pc.equal(losses["table"], "ring"), pc.is_in(losses["reason"], pa.array(DAMAGES))
    )
    return pc.and_(damaged, pc.and_(losses["first_seq"].is_valid(), losses["count"].is_valid()))


def _between(store: Store, sql: str, source: Source, losses: Sequence[Row]) -> list[Row]:
    between = {
        "first": min(loss["first_seq"] for loss in losses),
        "after": max(_after(loss) for loss in losses),
    }
    return store.rows(sql, {**source._asdict(), **between})


def _without(loss: Row, runs: Sequence[Row], met: dict[str, Met]) -> list[Row]:
    """The pieces of a loss outside the runs, which ascend; records inside are counted as met."""
    pieces: list[Row] = []
    begin, after = loss["first_seq"], _after(loss)
    for run in runs[bisect_right(runs, begin, key=itemgetter("after")) :]:
        if run["first"] >= after:
            break
        if begin < run["first"]:
            pieces.append({**loss, "first_seq": begin, "count": run["first"] - begin})
        first, begin = max(begin, run["first"]), min(run["after"], after)
        _meet(met, run["table"], Met(begin - first, run["first_at"], run["last_at"]))
    if begin < after:
        pieces.append({**loss, "first_seq": begin, "count": after - begin})
    return pieces


def _meet_parts(loss: Row, parts: Sequence[Row], met: dict[str, Met]) -> None:
    """Count the request parts that begin within a loss as met."""
    seq = itemgetter("seq")
    first, after = (bisect_left(parts, end, key=seq) for end in (loss["first_seq"], _after(loss)))
    for part in parts[first:after]:
        _meet(met, "request_part", Met(part["parts"], part["first_at"], part["last_at"]))


def _meet(met: dict[str, Met], table: str, rows: Met) -> None:
    met[table] = met[table].joined(rows) if table in met else rows


def _after(loss: Row) -> int:
    return min(int(loss["first_seq"]) + int(loss["count"]), MOST_SEQ)
