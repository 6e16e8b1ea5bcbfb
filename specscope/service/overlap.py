"""Losses of rounds that the store has: the rows stand, and the losses are cut to the rest.

A service that ends between its inserts leaves rows that no batch of the ledger names. The sidecar
sends that batch again. When its disk has damaged the batch meanwhile, it sends a loss in its place.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from specscope.service.intake import Admitted, Met
from specscope.store.connection import Store
from specscope.store.ledger import Source
from specscope_agent.schemas import schema

MOST_SEQ = (1 << 64) - 1

# Runs of adjacent numbers among a boot's rounds, each with its earliest and its latest start.
RUNS = """
SELECT min(seq) AS first, max(seq) + 1 AS after,
    toUnixTimestamp64Nano(min(began)) AS first_at, toUnixTimestamp64Nano(max(began)) AS last_at
FROM (
    SELECT seq, began, toInt64(seq) - row_number() OVER (ORDER BY seq) AS run
    FROM (
        SELECT seq, any(started_at) AS began FROM round
        WHERE replica = {replica:String} AND boot = {boot:String}
            AND seq >= {first:UInt64} AND seq < {after:UInt64}
        GROUP BY seq
    )
)
GROUP BY run
ORDER BY first"""

Row = dict[str, Any]


def cut_to_the_missing(store: Store, batches: Sequence[Admitted]) -> None:
    """Take the rounds that the store has out of the losses of these batches.

    A batch that meets such rounds accounts for them: its row of the ledger counts them and covers
    their times. Raises StoreError.
    """
    for batch in batches:
        losses = batch.tables.get("loss")
        if losses is None:
            continue
        damaged = _damaged(losses)
        doubtful = losses.filter(damaged).to_pylist()
        runs = _runs(store, batch.source, doubtful) if doubtful else []
        if not runs:
            continue
        left = []
        for loss in doubtful:
            left += _without(loss, runs, batch)
        rows = [losses.filter(pc.invert(damaged)), pa.Table.from_pylist(left, schema("loss"))]
        batch.tables["loss"] = pa.concat_tables(rows)
        if not batch.tables["loss"].num_rows:
            del batch.tables["loss"]


def _damaged(losses: pa.Table) -> Any:
    """Which losses are of records that the sidecar may have sent before damage took them."""
    corrupt = pc.and_(pc.equal(losses["table"], "ring"), pc.equal(losses["reason"], "corrupt"))
    return pc.and_(corrupt, pc.and_(losses["first_seq"].is_valid(), losses["count"].is_valid()))


def _runs(store: Store, source: Source, losses: Sequence[Row]) -> list[Row]:
    between = {
        "first": min(loss["first_seq"] for loss in losses),
        "after": max(_after(loss) for loss in losses),
    }
    return store.rows(RUNS, {**source._asdict(), **between})


def _without(loss: Mapping[str, Any], runs: Sequence[Row], batch: Admitted) -> list[Row]:
    """The pieces of a loss between the runs, which ascend; the batch meets the runs in it."""
    pieces: list[Row] = []
    begin, after = loss["first_seq"], _after(loss)
    for run in runs[bisect_right(runs, begin, key=itemgetter("after")) :]:
        if run["first"] >= after:
            break
        if begin < run["first"]:
            pieces.append({**loss, "first_seq": begin, "count": run["first"] - begin})
        first, begin = max(begin, run["first"]), min(run["after"], after)
        met = Met(begin - first, run["first_at"], run["last_at"])
        batch.met = batch.met.joined(met) if batch.met else met
    if begin < after:
        pieces.append({**loss, "first_seq": begin, "count": after - begin})
    return pieces


def _after(loss: Mapping[str, Any]) -> int:
    return min(int(loss["first_seq"]) + int(loss["count"]), MOST_SEQ)
