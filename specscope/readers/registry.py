"""Choose the reader of a file by its content."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Protocol

from specscope.readers.logs.clickhouse_errors import ClickHouseErrors
from specscope.readers.logs.text import TextReader
from specscope.readers.records import Record
from specscope.readers.results.answers_json import AnswersJson
from specscope.readers.results.bench_json import BenchJson
from specscope.readers.results.engine_bench import EngineBench
from specscope.readers.results.json_file import looks_like_json
from specscope.readers.results.request_json import RequestJson
from specscope.readers.results.rows_json import RowsJson
from specscope.readers.results.steps_json import StepsJson
from specscope.readers.results.trtllm_json import TrtllmJson
from specscope.readers.scrapes.nvidia_smi import NvidiaSmi
from specscope.readers.scrapes.prometheus_json import PrometheusJson
from specscope.readers.source import Source
from specscope.readers.tables.bench_table import BenchTable, is_header
from specscope.readers.tables.csv_file import header
from specscope.readers.traces.cost_model import CostModel
from specscope.readers.traces.kineto import KinetoTrace
from specscope.readers.traces.nsys_csv import NsysCsv
from specscope.readers.traces.nsys_sqlite import NsysSqlite
from specscope.readers.traces.trace_summary import TraceSummary


class Reader(Protocol):
    """One format. `sniff` gets the first 256 KiB and returns 0..1; the reader with the highest
    value gets the file."""

    format: str

    def sniff(self, head: bytes) -> float: ...

    def read(self, source: Source) -> Iterator[Record]: ...


def readers() -> tuple[Reader, ...]:
    """All readers. With equal values, the first one wins."""
    return (
        KinetoTrace(),
        NsysSqlite(),
        TrtllmJson(),
        CostModel(),
        ClickHouseErrors(),
        PrometheusJson(),
        EngineBench(),
        AnswersJson(),
        BenchJson(),
        RequestJson(),
        StepsJson(),
        RowsJson(),
        TraceSummary(),
        NvidiaSmi(),
        NsysCsv(),
        BenchTable(),
        TextReader(),
    )


def reader_for(head: bytes) -> Reader | None:
    """The best reader, or None if all return 0 (binary files)."""
    sureness = [(reader.sniff(head), reader) for reader in readers()]
    surest, reader = max(sureness, key=operator.itemgetter(0))
    return reader if surest > 0 else None


_PACKED = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
    b"\xfd7zXZ\x00": "xz",
    b"BZh": "bzip2",
}
"""Packed in ways that are not seen through."""


def is_text(head: bytes) -> bool:
    """Whether a file is non-empty text."""
    return bool(head) and not head.startswith(tuple(_PACKED)) and b"\0" not in head[:4096]


def shape(head: bytes) -> str:
    """The appearance of an unrecognised file, in words."""
    if not head:
        return "an empty file"
    for magic, name in _PACKED.items():
        if head.startswith(magic):
            return f"a {name} archive: unpack it first"
    if b"\0" in head[:4096]:
        return "a binary file"
    if looks_like_json(head) and b'"' in head[:4096]:
        return "JSON without a known key"
    columns = header(head)
    if len(columns) > 2 and is_header(columns):
        return f"a table without a known arm or measure ({', '.join(columns)[:80]})"
    speaks = any(word in head.lower() for word in (b"accept", b"draft", b"speculat", b"mtp"))
    return "text without a known line" + (
        "; it speaks of speculation in words only: give the engine's own lines or figures, a table "
        "with a column for what ran and one for its tok/s, or a /metrics scrape"
        if speaks
        else ""
    )
