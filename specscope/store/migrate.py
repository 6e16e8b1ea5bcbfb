"""Migrate a store to the tables of the records, without losing a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specscope.errors import SchemaDrift
from specscope.store.connection import Store
from specscope.store.metadata import keep
from specscope.store.rebuild import former_name, of_former_key, rebuild
from specscope.store.tables import (
    EMBEDDED_SETTINGS,
    LAYOUTS,
    RECORDS,
    column_definition,
    column_type,
    create_table,
    sorting_key,
    time_to_live,
)
from specscope_hook.columns import columns, stored_name
from specscope_hook.records import TABLES

DESCRIBED = """
SELECT table, name, type FROM system.columns WHERE database = {database:String}
ORDER BY table, position"""

KEYS = """
SELECT name, sorting_key, extract(create_table_query, ' TTL (.*) SETTINGS ') AS ttl,
    extract(create_table_query, '.* SETTINGS (.*)') AS settings
FROM system.tables WHERE database = {database:String}"""


THROUGH = """
SELECT name FROM system.tables WHERE database = {database:String}
    AND create_table_query LIKE '%fsync_after_insert = 1%'"""

# What an acknowledgement is based on survives a power loss with these; rollups can be made again.
SYNCED = {
    "fsync_after_insert": "1",
    "fsync_part_directory": "1",
    "min_rows_to_fsync_after_merge": "1",
    "min_compressed_bytes_to_fsync_after_merge": "1",
}


def migrate(store: Store, *, synced: bool | None = None) -> list[str]:
    """Create missing tables, add missing columns in declared order, rebuild tables with a former
    key.

    Returns a line for each change.

    synced: whether an embedded store syncs its raw tables to the disk; None keeps the setting

    An unknown column stays, because a newer version wrote it. Raises SchemaDrift before any change
    if a type or a key differs, StoreFull if the disk is full, StoreError if a definition is
    incomplete on disk.
    """
    database = {"database": store.database}
    found: dict[str, dict[str, str]] = {}
    for row in store.rows(DESCRIBED, database):
        found.setdefault(row["table"], {})[row["name"]] = row["type"]
    tables = {row["name"]: row for row in store.rows(KEYS, database)}
    rebuilt = {
        table for table in LAYOUTS if of_former_key(table, tables.get(table, {}).get("sorting_key"))
    }
    missing = {
        table: _changes(table, found.get(table), tables.get(table, {}), embedded=store.embedded)
        for table in LAYOUTS
    }
    changes = [change for table in LAYOUTS if table not in rebuilt for change in missing[table]]
    for change in changes:
        store.command(change)
    for table in LAYOUTS:
        if table in rebuilt or former_name(table) in found:
            changes += rebuild(store, table, rebuilt=table not in rebuilt)
    if store.embedded and synced is not None:
        changes += _sync(store, synced)
    if store.room:
        keep(store.room.path)
    return [change.partition("\n")[0] for change in changes]


def _sync(store: Store, synced: bool) -> list[str]:
    through = {row["name"] for row in store.rows(THROUGH, {"database": store.database})}
    values = SYNCED if synced else dict.fromkeys(SYNCED, "0")
    named = ", ".join(f"{name} = {value}" for name, value in values.items())
    changes = [
        f"ALTER TABLE `{table}` MODIFY SETTING {named}"
        for table in TABLES
        if (table in through) != synced
    ]
    for change in changes:
        store.command(change)
    return changes


def _changes(
    table: str, found: dict[str, str] | None, kept: Mapping[str, Any], *, embedded: bool
) -> list[str]:
    if found is None:
        return [create_table(table, embedded=embedded)]
    key = kept.get("sorting_key")
    # A distributed table has no key of its own.
    if key and key != sorting_key(table) and not of_former_key(table, key):
        raise SchemaDrift(f"{table}: ordered by {key}, must be {sorting_key(table)}")
    changes, place = [], "FIRST"
    for column in columns(RECORDS[table]):
        name, wanted = stored_name(column.name), column_type(column)
        if name not in found:
            definition = column_definition(column)
            changes.append(f"ALTER TABLE `{table}` ADD COLUMN {definition} {place}")
        elif found[name] != wanted:
            raise SchemaDrift(f"{table}.{name}: is {found[name]}, must be {wanted}")
        place = f"AFTER `{name}`"
    # Of an earlier version, which told a rollup's age by its version.
    if key and "computed_at" in LAYOUTS[table].time and "computed_at" not in kept["ttl"]:
        changes.append(
            f"ALTER TABLE `{table}` MODIFY TTL {time_to_live(table)} "
            "SETTINGS materialize_ttl_after_modify = 0"
        )
    # A value that the operator has set is left alone.
    unset = [
        f"{name} = {value}"
        for name, value in EMBEDDED_SETTINGS.items()
        if embedded and f"{name} = " not in kept["settings"]
    ]
    if unset:
        changes.append(f"ALTER TABLE `{table}` MODIFY SETTING {', '.join(unset)}")
    return changes
