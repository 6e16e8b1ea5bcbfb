"""ClickHouse tables from records: types, keys, retention and CREATE statements.

One schema serves the embedded engine, a server, and a cluster (replicated tables under a
distributed one, sharded by replica). Tables replace rows by key, so readers with FINAL see a
repeated row once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from specscope.store.literals import quoted
from specscope.store.rollups import ROLLUPS
from specscope_hook.columns import Column, columns, stored_name
from specscope_hook.records import TABLES

TYPES = {
    "u8": "UInt8",
    "u16": "UInt16",
    "u32": "UInt32",
    "u64": "UInt64",
    "i16": "Int16",
    "i64": "Int64",
    "f32": "Float32",
    "f64": "Float64",
    "bool": "Bool",
    "text": "String",
    "label": "LowCardinality(String)",
    "time": "DateTime64(9, 'UTC')",
}

# Covers a retry of an insert in flight; older repeats fall to the key.
DEDUPLICATION_WINDOW = 100

EMBEDDED_SETTINGS: dict[str, str] = {
    # One thread removes merged parts, however many there are. By default a hundred parts start 128
    # threads, and what each of them once allocated stays in its caches.
    "concurrent_part_removal_threshold": "1000000",
    # Ten parts are merged into one, and not five: rows are written again two times in three.
    "merge_selector_base": "10",
    # Each merge would count the distinct values of every column. No query here is planned by them.
    "auto_statistics_types": "''",
}
"""Of every table of the embedded engine, whose version we know; a server keeps its own."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a table; `time` is the column that defines a row's age."""

    order_by: tuple[str, ...]
    time: str = ""
    days: int = 0
    version: str = ""
    partition_by: str = ""
    shard_by: str = "cityHash64(replica)"


# A loss that names its first record, and its batch when it was lost with one, is known by them,
# and may be reported again after a crash.
LOSS_KEY = "if(first_seq IS NULL, lost_at, toDateTime64(0, 9, 'UTC'))"
BLOCK = ("epoch", "policy", "replica", "boot", "pair", "arm")
# Rows of earlier versions have no computed_at, and their version is the time.
COMPUTED_AT = "ifNull(computed_at, toDateTime64(intDiv(version, 1000000000), 9, 'UTC'))"

LAYOUTS: dict[str, Layout] = {
    "boot": Layout(("replica", "boot")),
    "round": Layout(
        ("toStartOfHour(started_at)", "replica", "boot", "seq"),
        time="started_at",
        days=3,
        partition_by="toDate(started_at)",
    ),
    "request_part": Layout(
        ("toStartOfHour(started_at)", "replica", "boot", "request", "first_seq"),
        time="started_at",
        days=3,
        partition_by="toDate(started_at)",
    ),
    "request": Layout(
        # A request id may come again within the hour: each admission is a row.
        ("toStartOfHour(admitted_at)", "class", "replica", "boot", "request", "admitted_at"),
        time="admitted_at",
        days=14,
        version="seq",
        partition_by="toDate(admitted_at)",
    ),
    "device": Layout(
        ("toStartOfHour(sampled_at)", "replica", "uuid", "field", "sampled_at"),
        time="sampled_at",
        days=14,
        partition_by="toDate(sampled_at)",
    ),
    "policy": Layout(("policy",), shard_by="policy"),
    "loss": Layout(
        (
            "replica",
            "boot",
            "reason",
            "`table`",
            "ifNull(first_seq, 0)",
            LOSS_KEY,
            "ifNull(number, 0)",
        )
    ),
    "event": Layout(
        ("at", "kind", "subject", "replica", "tenant"),
        time="at",
        days=730,
        partition_by="toYYYYMM(at)",
        shard_by="cityHash64(subject)",
    ),
    "assessment": Layout(
        (
            "assessed_at",
            "tenant",
            "epoch",
            "design",
            "class",
            "context",
            "output",
            "load",
            "ifNull(arm, '')",
        ),
        time="assessed_at",
        days=730,
        partition_by="toYYYYMM(assessed_at)",
        shard_by="cityHash64(epoch)",
    ),
    "batch": Layout(
        ("replica", "boot", "number"),
        time="stored_at",
        days=14,
        version="stored_at",
    ),
    "block_time": Layout(BLOCK, time=COMPUTED_AT, days=730, version="version"),
    "block_part": Layout(
        (*BLOCK, "class", "context_bucket", "output_bucket", "k"),
        time=COMPUTED_AT,
        days=730,
        version="version",
    ),
    "block_class": Layout((*BLOCK, "class"), time=COMPUTED_AT, days=730, version="version"),
    "minute": Layout(
        ("minute", "replica", "class", "k"),
        time="minute",
        days=7,
        version="version",
        partition_by="toDate(minute)",
    ),
    "minute_time": Layout(
        ("minute", "replica", "ifNull(arm, '')", "k"),
        time="minute",
        days=7,
        version="version",
        partition_by="toDate(minute)",
    ),
    "hour": Layout(
        ("hour", "tenant", "epoch", "class", "context_bucket", "ifNull(arm, '')", "k"),
        time="hour",
        days=730,
        version="version",
        partition_by="toYYYYMM(hour)",
        shard_by="cityHash64(epoch)",
    ),
    "position": Layout(("replica", "boot", "of"), version="number"),
}
"""Of every table; the raw ones first, then the rollups."""

RECORDS: dict[str, type[Any]] = {**TABLES, **ROLLUPS}


def column_type(column: Column) -> str:
    """The ClickHouse type of a column."""
    base = TYPES[column.base]
    if column.repeated:
        return f"Array({base})"  # an array cannot be NULL there; unknown is the empty one
    if not column.nullable:
        return base
    if column.base == "label":
        return "LowCardinality(Nullable(String))"
    return f"Nullable({base})"


def column_definition(column: Column) -> str:
    """Name, type and comment, as in CREATE TABLE and ALTER TABLE."""
    comment = quoted(f"{column.meaning} [{column.unit}]")
    return f"`{stored_name(column.name)}` {column_type(column)} COMMENT {comment}"


def create_table(table: str, *, embedded: bool) -> str:
    """CREATE statement for the current database of the embedded engine or of one server."""
    layout = LAYOUTS[table]
    engine = f"ReplacingMergeTree({layout.version})"
    settings = [f"non_replicated_deduplication_window = {DEDUPLICATION_WINDOW}"]
    if embedded:
        settings += [f"{name} = {value}" for name, value in EMBEDDED_SETTINGS.items()]
    return f"CREATE TABLE IF NOT EXISTS `{table}`\n{_body(table, engine, settings)}"


def create_on_cluster(table: str, cluster: str, database: str) -> tuple[str, str]:
    """CREATE statements for the replicated table of each shard, and for the distributed table."""
    layout = LAYOUTS[table]
    where = f"ON CLUSTER `{cluster}`"
    path = f"/clickhouse/tables/{{shard}}/{database}/{table}"
    arguments = ", ".join(filter(None, [f"'{path}'", "'{replica}'", layout.version]))
    local = f"`{database}`.`{table}_local`"
    replicated = _body(table, f"ReplicatedReplacingMergeTree({arguments})")
    return (
        f"CREATE TABLE IF NOT EXISTS {local} {where}\n{replicated}",
        f"CREATE TABLE IF NOT EXISTS `{database}`.`{table}` {where} AS {local}\n"
        f"ENGINE = Distributed(`{cluster}`, `{database}`, `{table}_local`, {layout.shard_by})",
    )


def sorting_key(table: str) -> str:
    """The replacement key, in the engine's spelling."""
    return ", ".join(LAYOUTS[table].order_by)


def time_to_live(table: str) -> str:
    """The TTL expression of a table with a limited age."""
    layout = LAYOUTS[table]
    return f"toDateTime({layout.time}) + INTERVAL {layout.days} DAY"


def _body(table: str, engine: str, own_settings: Iterable[str] = ()) -> str:
    record, layout = RECORDS[table], LAYOUTS[table]
    key = sorting_key(table) if len(layout.order_by) == 1 else f"({sorting_key(table)})"
    definitions = [column_definition(column) for column in columns(record)]
    if layout.time in {stored_name(column.name) for column in columns(record)}:
        definitions.append(f"INDEX by_time `{layout.time}` TYPE minmax GRANULARITY 1")
    settings = ["ttl_only_drop_parts = 1"] if layout.days else []
    settings += own_settings
    if any(column.nullable for column in columns(record)):
        settings.append("allow_nullable_key = 1")
    clauses = [
        "(\n    " + ",\n    ".join(definitions) + "\n)",
        f"ENGINE = {engine}",
        f"PARTITION BY {layout.partition_by}" if layout.partition_by else "",
        f"ORDER BY {key}",
        f"TTL {time_to_live(table)}" if layout.days else "",
        f"SETTINGS {', '.join(settings)}" if settings else "",
        f"COMMENT {quoted(summary(record))}",
    ]
    return "\n".join(filter(None, clauses))


def summary(record: type[Any]) -> str:
    """The first line of a record's docstring, without its period."""
    return (record.__doc__ or "").strip().split("\n")[0].rstrip(".")
