"""Remove rows and records that the store has from losses.

A service that ends between two inserts leaves rows and losses that no batch of the ledger names.
Then the sidecar sends the batch again. If its disk has damaged the batch meanwhile, it sends a loss
instead. If the service's clock was stepped, the service refuses rows that it stored before. The
stored rows stay, and losses are reduced to the other rows.

Rows of request parts have no record number, and no loss by record numbers counts them. They are
stored before their rounds, so a stored round always has its parts.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from specscope.service.intake import Admitted, Met, RefusedRows, ends_of
from specscope.store.connection import Store
from specscope.store.ledger import Source
from specscope.store.tables import LAYOUTS

MOST_SEQ = (1 << 64) - 1
MOST_LOSSES = 50_000  # of a batch that are cut; a sidecar's have a record each at least
MOST_ROWS = 20_000  # whose keys are in one question
# Of losses whose records a sidecar may have sent before. What never was in the ring is not among
# them.
DAMAGES = ("corrupt", "ring_damaged", "refused")

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

# Losses by record numbers that another batch has left.
LOST = f"""
SELECT 'loss' AS table, assumeNotNull(first_seq) AS first,
    toUInt64(least(toUInt128(first) + assumeNotNull(count), {MOST_SEQ})) AS after
FROM loss FINAL
WHERE {WITHIN} AND loss.table = 'ring' AND ifNull(number, 0) != {{number:UInt64}}
    AND isNotNull(first_seq) AND isNotNull(count)
    AND first < {{after:UInt64}} AND after > {{first:UInt64}}
ORDER BY first"""

# Losses of each boot's batches from a number on, which the ledger does not have. {replicas},
# {boots}, {numbers}: arrays, one entry a boot.
LEFT = """
SELECT * EXCEPT (of_replica, of_boot, from_number)
FROM (
    SELECT * REPLACE (toUnixTimestamp64Nano(lost_at) AS lost_at) FROM loss FINAL
    WHERE isNotNull(number) AND (replica, boot) IN (
        SELECT arrayJoin(arrayZip({replicas:Array(String)}, {boots:Array(String)})))
) AS l
INNER JOIN (
    SELECT row.1 AS of_replica, row.2 AS of_boot, row.3 AS from_number FROM (
        SELECT arrayJoin(arrayZip({replicas:Array(String)}, {boots:Array(String)},
            {numbers:Array(UInt64)})) AS row)
) AS s ON l.replica = s.of_replica AND l.boot = s.of_boot
WHERE assumeNotNull(number) >= from_number"""

# Of each table whose rows are refused by themselves: what tells its rows apart, and the one of
# these columns that its rows are looked for by.
KEYS = {
    "round": ("replica", "boot", "seq"),
    "request_part": ("replica", "boot", "first_seq", "request"),
    "request": ("replica", "boot", "request", "admitted_at"),
    "device": ("replica", "sampled_at", "uuid", "field"),
}
SOUGHT = {"round": "seq", "request_part": "first_seq", "request": "request", "device": "sampled_at"}

Row = dict[str, Any]
Key = tuple[Any, ...]


class Overlap:
    """Finds rows and losses that the store has of batches without a row of the ledger."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: set[Source] = set()
        """Boots whose unfinished batches were looked up; this service leaves none behind."""
        self._left: dict[tuple[Source, int], list[Row]] = {}
        """Losses of unfinished batches, until these batches are stored."""

    def settle(self, batches: Sequence[Admitted]) -> None:
        """Reduce the losses of batches, whose other rows are stored, to what the store lacks.

        The ledger's row of such a batch counts the stored rows and covers their times. A second
        call changes nothing. Raises StoreError.
        """
        for table in KEYS:
            self._meet_refused(table, batches)
        for batch in batches:
            self._meet_damaged(batch)
        self._ask_for_left(batches)
        for batch in batches:
            self._take_back(batch)

    def _meet_refused(self, table: str, batches: Sequence[Admitted]) -> None:
        """Remove stored rows of a table from the refused ones."""
        doubtful = [
            (batch, refused)
            for batch in batches
            for refused in batch.doubtful
            if refused.loss["table"] == table and not refused.asked
        ]
        if not doubtful:
            return
        rows = pa.concat_tables([refused.rows for _, refused in doubtful])
        stored: dict[Key, int] = {}
        for begin in range(0, rows.num_rows, MOST_ROWS):
            stored |= _stored(self._store, table, rows.slice(begin, MOST_ROWS))
        for batch, refused in doubtful:
            refused.asked = True
            if stored:
                _meet_stored(batch, refused, stored)

    def _meet_damaged(self, batch: Admitted) -> None:
        """Remove stored records from losses by record numbers."""
        losses = batch.tables.get("loss")
        if losses is None or batch.cut:
            return
        damaged = _damaged(losses)
        if not 0 < (pc.sum(damaged).as_py() or 0) <= MOST_LOSSES:
            return
        doubtful = sorted(losses.filter(damaged).to_pylist(), key=itemgetter("first_seq"))
        runs, lost, parts = (
            _between(self._store, sql, batch, doubtful) for sql in (RUNS, LOST, PARTS)
        )
        runs = _apart([*runs, *lost])
        left, end = [], 0
        for loss in doubtful:
            if loss["first_seq"] < end:  # no record is lost twice; each would meet all runs again
                left.append(loss)
                continue
            end = _after(loss)
            left += _without(loss, runs, batch.met)
            _meet_parts(loss, parts, batch.met)
        del batch.tables["loss"]
        if (others := losses.filter(pc.invert(damaged))).num_rows:
            batch.tables["loss"] = others
        if left:
            batch.add_losses(left)
        batch.cut = True

    def _ask_for_left(self, batches: Sequence[Admitted]) -> None:
        """Look up the losses that an interrupted attempt has left, once per boot."""
        first: dict[Source, int] = {}
        for batch in batches:
            if batch.source not in self._known:
                first[batch.source] = min(batch.number, first.get(batch.source, batch.number))
        if not first:
            return
        params = {
            "replicas": [source.replica for source in first],
            "boots": [source.boot for source in first],
            "numbers": list(first.values()),
        }
        for row in self._store.rows(LEFT, params):
            batch_of = Source(row["replica"], row["boot"]), row["number"]
            self._left.setdefault(batch_of, []).append(row)
        self._known |= first.keys()

    def _take_back(self, batch: Admitted) -> None:
        """Set losses to 0 that an earlier attempt has left and this batch does not have.

        The service accepts its rows now, or the sidecar's disk has lost more of it.
        """
        left = self._left.pop((batch.source, batch.number), [])
        if not left:
            return
        losses = batch.losses()
        own = set() if losses is None else set(_loss_keys(losses))
        void = [
            {**row, "count": 0, "detail": "taken back: the batch came again"}
            for row, key in zip(left, _loss_keys(pa.Table.from_pylist(left)), strict=True)
            if key not in own
            # Of rounds that are stored, parts that were given up stay lost.
            and not (row["table"] == "request_part" and "round" in batch.met)
        ]
        if void:
            batch.add_losses(void)


def _stored(store: Store, table: str, rows: pa.Table) -> dict[Key, int]:
    """The keys of these rows that the store has, each with its highest record number."""
    time, sought = LAYOUTS[table].time, SOUGHT[table]
    as_ns = {time: f"toUnixTimestamp64Nano({time})"}
    keys = {f"key_{i}": as_ns.get(key, key) for i, key in enumerate(KEYS[table])}
    kind = "Int64" if sought == time else "UInt64"
    first, last = ends_of(rows.column(time))
    held = store.rows(
        f"""
        SELECT {", ".join(f"{key} AS {name}" for name, key in keys.items())},
            max({"seq" if table == "request" else "0"}) AS newest
        FROM {table}
        WHERE {time} >= fromUnixTimestamp64Nano({{first:Int64}}, 'UTC')
            AND {time} <= fromUnixTimestamp64Nano({{last:Int64}}, 'UTC')
            AND replica IN {{replicas:Array(String)}}
            AND {as_ns.get(sought, sought)} IN {{sought:Array({kind})}}
        GROUP BY {", ".join(keys)}""",
        {
            "first": first,
            "last": last,
            "sought": pc.unique(_plain(rows.column(sought))).to_pylist(),
            "replicas": pc.unique(rows.column("replica")).to_pylist(),
        },
    )
    return {tuple(row[name] for name in keys): row["newest"] for row in held}


def _meet_stored(batch: Admitted, refused: RefusedRows, stored: Mapping[Key, int]) -> None:
    """Remove stored rows from the refused ones, and count them as met."""
    table, rows = refused.loss["table"], refused.rows
    keys = zip(*(_plain(rows.column(column)).to_pylist() for column in KEYS[table]), strict=True)
    # The end of a request takes the place of its admission.
    least = rows.column("seq").to_pylist() if table == "request" else [0] * rows.num_rows
    held = pa.array([stored.get(key, -1) >= seq for key, seq in zip(keys, least, strict=True)])
    met = rows.filter(held)
    if not met.num_rows:
        return
    refused.rows = rows.filter(pc.invert(held))
    batch.refusals[refused.loss["reason"]] -= met.num_rows
    _meet(batch.met, table, Met(met.num_rows, *ends_of(met.column(LAYOUTS[table].time))))


def _plain(column: Any) -> Any:
    """A column with times as ns since 1970."""
    return column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column


def _damaged(losses: pa.Table) -> Any:
    """The losses of records that the sidecar may have sent before the damage."""
    damaged = pc.and_(
        pc.equal(losses["table"], "ring"), pc.is_in(losses["reason"], pa.array(DAMAGES))
    )
    return pc.and_(damaged, pc.and_(losses["first_seq"].is_valid(), losses["count"].is_valid()))


def _loss_keys(losses: pa.Table) -> Iterator[Key]:
    """What each loss of one boot and batch is known by: without a record number, by its time."""
    names = ("table", "reason", "first_seq", "lost_at")
    columns = [_plain(losses[name]).to_pylist() for name in names]
    for table, reason, first_seq, lost_at in zip(*columns, strict=True):
        yield table, reason, first_seq, lost_at if first_seq is None else None


def _between(store: Store, sql: str, batch: Admitted, losses: Sequence[Row]) -> list[Row]:
    between = {
        "first": min(loss["first_seq"] for loss in losses),
        "after": max(_after(loss) for loss in losses),
        "number": batch.number,
    }
    return store.rows(sql, {**batch.source._asdict(), **between})


def _apart(runs: Sequence[Row]) -> list[Row]:
    """Runs in ascending order; none contains a number of an earlier one."""
    apart: list[Row] = []
    end = 0
    for run in sorted(runs, key=itemgetter("first")):
        if run["after"] > end:
            apart.append({**run, "first": max(run["first"], end)})
            end = run["after"]
    return apart


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
        if run["table"] != "loss":
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
