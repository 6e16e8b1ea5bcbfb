"""`nsys stats --report cuda_gpu_trace --format csv`: device work in order, no host launches.

Without launches there is no coverage, so idle time stays unknown; the shares of draft and verify
still follow where kernels or graphs are named.
"""

from __future__ import annotations

from collections.abc import Iterator

from specscope.readers.logs.lines import number
from specscope.readers.records import Record
from specscope.readers.source import Source
from specscope.readers.tables.csv_file import header, name_of, rows
from specscope.readers.traces.spans import Span
from specscope.readers.traces.timeline import Timeline

_PER_US = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}


class NsysCsv:
    """The table of one device's kernels, copies and graph replays."""

    format = "nsys-csv"

    def sniff(self, head: bytes) -> float:
        """0.9 for the report's columns."""
        names = {name_of(column) for column in header(head)}
        start = any(name.startswith("start_") for name in names)
        return 0.9 if start and any(name.startswith("corrid") for name in names) else 0.0

    def read(self, source: Source) -> Iterator[Record]:
        """The time that device work takes, by phase."""
        timeline = Timeline(source.name)
        for row in rows(source.stream):
            named = {name_of(column): value for column, value in row.items()}
            start, duration = _time(named, "start_"), _time(named, "duration_")
            if start is None or duration is None:
                continue
            key = number(named.get("corrid"))
            span = Span(start, start + duration, named.get("name", ""), int(key) if key else None)
            timeline.device.append(span)
        yield from timeline.records()


def _time(row: dict[str, str], prefix: str) -> float | None:
    for column, text in row.items():
        if column.startswith(prefix):
            value = number(text.replace(",", ""))
            factor = _PER_US.get(column.removeprefix(prefix))
            return value * factor if value is not None and factor else None
    return None
