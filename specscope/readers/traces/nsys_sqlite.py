"""Nsight Systems exports (`nsys export --type sqlite`).

With `--cuda-graph-trace=graph` replayed kernels stand in GRAPH_TRACE only, so all four activity
tables are read. Tables are created when first needed: any may be missing. Times are nanoseconds.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from specscope.errors import InputError
from specscope.readers.records import Record
from specscope.readers.source import Source, blocks
from specscope.readers.traces.spans import Span
from specscope.readers.traces.timeline import Timeline

_MAGIC = b"SQLite format 3\0"
_ACTIVITY = ("KERNEL", "GRAPH_TRACE", "MEMCPY", "MEMSET")


class NsysSqlite:
    """One report of one process tree."""

    format = "nsys-sqlite"

    def sniff(self, head: bytes) -> float:
        """0.95 for an SQLite file; whether it is nsys's shows when it is read."""
        return 0.95 if head.startswith(_MAGIC) else 0.0

    def read(self, source: Source) -> Iterator[Record]:
        """The time of a round. Raises InputError for an SQLite file without CUDA activity."""
        if source.path is not None:
            yield from _records(source.name, source.path)
            return
        with tempfile.NamedTemporaryFile(suffix=".sqlite") as copy:
            for block in blocks(source.stream):
                copy.write(block)
            copy.flush()
            yield from _records(source.name, Path(copy.name))


def _records(name: str, path: Path) -> Iterator[Record]:
    try:
        database = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            yield from _timeline(name, database).records()
        finally:
            database.close()
    except sqlite3.Error as error:
        raise InputError(f"{name}: {error}") from error


def _timeline(name: str, database: sqlite3.Connection) -> Timeline:
    tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master")}
    activity = [f"CUPTI_ACTIVITY_KIND_{kind}" for kind in _ACTIVITY]
    activity = [table for table in activity if table in tables]
    if not activity and "NVTX_EVENTS" not in tables:
        raise InputError(f"{name}: an SQLite file without CUDA activity or NVTX ranges")
    strings: dict[int, str] = {}
    if "StringIds" in tables:
        strings = dict(database.execute("SELECT id, value FROM StringIds"))
    timeline = Timeline(name)
    devices: dict[int, list[Span]] = defaultdict(list)
    for table in activity:
        columns = {row[1] for row in database.execute(f"PRAGMA table_info({table})")}
        label = next((c for c in ("shortName", "demangledName") if c in columns), "NULL")
        query = f"SELECT start, end, deviceId, correlationId, {label} FROM {table}"
        for start, end, device, key, text in database.execute(query):
            if end is not None:
                span = Span(start / 1000, end / 1000, strings.get(text, table), key)
                devices[device].append(span)
    if devices:
        timeline.device = max(devices.values(), key=len)
    if "CUPTI_ACTIVITY_KIND_RUNTIME" in tables:
        query = "SELECT start, end, correlationId, nameId FROM CUPTI_ACTIVITY_KIND_RUNTIME"
        for start, end, key, text in database.execute(query):
            called = strings.get(text, "")
            if "launch" in called.lower() and end is not None:
                timeline.launches.append(Span(start / 1000, end / 1000, called, key))
    if "NVTX_EVENTS" in tables:
        query = "SELECT start, end, text, textId FROM NVTX_EVENTS WHERE end IS NOT NULL"
        for start, end, text, identity in database.execute(query):
            called = text or strings.get(identity, "")
            timeline.annotations.append(Span(start / 1000, end / 1000, called))
    return timeline
