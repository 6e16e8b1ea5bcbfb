"""Rebuild a table whose key has changed: create a new one, exchange the names, copy the rows.

The new table takes the name before the copy, so inserts during the copy are kept. Each step may be
interrupted; the next start finds the old table under a reserved name and continues. A row that is
copied twice is stored once, by its key.
"""

from __future__ import annotations

from collections.abc import Mapping

from specscope.store.connection import Store
from specscope.store.tables import create_table, sorting_key

FORMER_KEYS: Mapping[str, tuple[str, ...]] = {
    "request": ("toStartOfHour(admitted_at), class, replica, boot, request",),
    "loss": (
        "replica, boot, reason, `table`, ifNull(first_seq, 0), "
        "if(first_seq IS NULL, lost_at, toDateTime64(0, 9, 'UTC'))",
    ),
    "hour": ("hour, epoch, class, context_bucket, ifNull(arm, ''), k",),
}
"""Keys that earlier versions gave a table. A new one holds all columns of the old one and more, so
rows that the old one told apart stay apart."""

COLUMNS = """
SELECT name, type FROM system.columns
WHERE database = {database:String} AND table = {table:String} ORDER BY position"""

COPY_SETTINGS = "max_partitions_per_insert_block = 0"


def of_former_key(table: str, key: str | None) -> bool:
    """Whether a table has a key from an earlier version."""
    return key in FORMER_KEYS.get(table, ()) and key != sorting_key(table)


def former_name(table: str) -> str:
    """Name of the old table during the copy."""
    return f"{table}__former"


def rebuild(store: Store, table: str, *, rebuilt: bool) -> list[str]:
    """Give a table the key of this version. Returns a line for each step.

    rebuilt: whether the table already has its new key, so that only rows may remain to copy.

    Raises StoreError if the engine refuses; a later call continues from there.
    """
    former, done = former_name(table), []
    if not rebuilt:
        # One that was made and never exchanged is empty.
        store.command(f"DROP TABLE IF EXISTS `{former}`")
        anew = create_table(table, embedded=store.embedded)
        store.command(anew.replace(f"`{table}`", f"`{former}`", 1))
        ours = _columns(store, former)
        for name, type_ in _columns(store, table).items():
            if name not in ours:  # of a newer version
                store.command(f"ALTER TABLE `{former}` ADD COLUMN `{name}` {type_}")
        store.command(f"EXCHANGE TABLES `{table}` AND `{former}`")
        done.append(f"EXCHANGE TABLES `{table}` AND `{former}`, for key {sorting_key(table)}")
    names = ", ".join(f"`{name}`" for name in _columns(store, former))
    store.command(
        f"INSERT INTO `{table}` ({names}) SELECT {names} FROM `{former}` SETTINGS {COPY_SETTINGS}"
    )
    store.command(f"DROP TABLE `{former}`")
    return [*done, f"INSERT INTO `{table}` FROM `{former}`"]


def _columns(store: Store, table: str) -> dict[str, str]:
    rows = store.rows(COLUMNS, {"database": store.database, "table": table})
    return {row["name"]: row["type"] for row in rows}
