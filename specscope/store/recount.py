"""Find rows that the ledger counts but the store no longer has, and write them as losses.

If the engine cannot read a part at its start, it sets the part aside and continues without its
rows. A power loss may remove whole parts. The ledger notices neither, so a start compares rows with
the ledger: batches of the last hour always, all batches if a part was set aside.
"""

from __future__ import annotations

import contextlib
import logging
import time
from pathlib import Path
from typing import Any

from specscope.store.connection import Store
from specscope.store.ledger import Source
from specscope.store.metadata import broken_parts
from specscope.store.tables import LAYOUTS

log = logging.getLogger(__name__)

HOUR_NS = 3600 * 10**9
DAY_NS = 24 * HOUR_NS
# Of each table that a batch's rows can be counted in: the ledger's column, what tells rows
# apart, and the record number that says which batch a row came in.
COUNTED = {
    "round": ("rounds", "seq", "seq"),
    "request_part": ("request_parts", "(request, first_seq)", "first_seq"),
}
NEWEST = "SELECT toUnixTimestamp64Nano(max(stored_at)) AS newest FROM batch"


KNOWN = """
SELECT replica, boot, table, first_seq, count FROM loss FINAL WHERE reason = 'store'"""


def _missing(table: str) -> str:
    """Batches with fewer rows than in the ledger. {since}, {kept_from}: ns."""
    said, key, number = COUNTED[table]
    ledger = f"""
        SELECT replica, boot, number, first_seq, next_seq, {said} AS said, first_at, last_at
        FROM batch FINAL
        WHERE {said} > 0 AND stored_at >= fromUnixTimestamp64Nano({{since:Int64}}, 'UTC')
            AND first_at >= fromUnixTimestamp64Nano({{kept_from:Int64}}, 'UTC')"""
    return f"""
        SELECT l.replica AS replica, l.boot AS boot, l.number AS number, l.first_seq AS first_seq,
            l.said - ifNull(h.held, 0) AS count
        FROM ({ledger}) AS l
        LEFT JOIN (
            SELECT replica, boot, number, uniqExact(key) AS held
            FROM (
                SELECT t.replica AS replica, t.boot AS boot, b.number AS number, t.key AS key
                FROM (
                    SELECT replica, boot, {number} AS seq, {key} AS key FROM {table}
                    WHERE started_at >= (SELECT min(first_at) FROM ({ledger}))
                        AND started_at <= (SELECT max(last_at) FROM ({ledger}))
                ) AS t
                ASOF INNER JOIN ({ledger}) AS b
                    ON t.replica = b.replica AND t.boot = b.boot AND t.seq >= b.first_seq
                WHERE t.seq < b.next_seq
            )
            GROUP BY replica, boot, number
        ) AS h ON l.replica = h.replica AND l.boot = h.boot AND l.number = h.number
        WHERE count > 0
        ORDER BY replica, boot, first_seq"""


def account(store: Store) -> int:
    """Write a loss for every batch with missing rows, and for other parts that were set aside.

    It is for embedded stores only, because a server's replicas may lag behind each other. It is
    idempotent: a counted part is renamed, and stays for inspection. Returns the number of newly
    lost rows, if known. Raises StoreError.
    """
    if not store.embedded:
        return 0
    broken = broken_parts(store.path)
    newest = store.rows(NEWEST)[0]["newest"]
    params = {
        "since": 0 if broken else newest - HOUR_NS,
        # A day before they are due to go, so that none that aged out counts as lost.
        "kept_from": time.time_ns() - (LAYOUTS["round"].days - 1) * DAY_NS,
    }
    losses = [
        _loss(Source(row["replica"], row["boot"]), table, row["first_seq"], row["count"])
        | {"number": row["number"]}
        for table in COUNTED
        for row in store.rows(_missing(table), params)
    ]
    known = {
        (row["replica"], row["boot"], row["table"], row["first_seq"], row["count"])
        for row in store.rows(KNOWN)
    }
    losses = [loss for loss in losses if _key(loss) not in known]
    losses += [loss for part in broken if (loss := _of_part(store, part))]
    lost = sum(loss["count"] or 0 for loss in losses)
    if losses:
        store.add("loss", losses)
        log.error("%d rows are no longer in the store: recorded as losses of reason `store`", lost)
    for part in broken:
        part.rename(part.with_name(f"counted-{part.name}"))
    return lost


def _loss(
    source: Source, table: str, first_seq: int | None, count: int | None, detail: str = ""
) -> dict[str, Any]:
    return {
        **source._asdict(),
        "lost_at": time.time_ns(),
        "table": table,
        "reason": "store",
        "first_seq": first_seq,
        "count": count,
        "detail": detail,
    }


def _key(loss: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(loss[name] for name in ("replica", "boot", "table", "first_seq", "count"))


def _of_part(store: Store, part: Path) -> dict[str, Any] | None:
    """A loss for a part of a table without batch numbers; None for other tables.

    Rollups are computed again from rows. The loss has the part's own time, so a repeat is equal.
    """
    table = table_of(store, part)
    if table not in ("request", "device", "boot", "loss", "policy"):
        return None
    count = None
    with contextlib.suppress(OSError, ValueError):
        count = int((part / "count.txt").read_text())
    loss = _loss(Source("", ""), table, None, count, f"the store could not read {part.name}")
    return loss | {"lost_at": part.stat().st_mtime_ns}


def table_of(store: Store, part: Path) -> str:
    """The table of a part, set aside or not; "" if unknown."""
    tables = store.path / "data" / store.database
    folder = part.parent.parent.name
    for link in tables.iterdir() if tables.is_dir() else ():
        if link.is_symlink() and link.readlink().name == folder:
            return link.name
    return ""
