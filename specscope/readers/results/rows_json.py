"""Rows of a table as JSON: an array or lines of flat objects, or one object of them by arm."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from specscope.readers.records import Record
from specscope.readers.results.json_file import LARGEST, documents
from specscope.readers.source import Source
from specscope.readers.tables.bench_table import TOGETHER, is_known, records
from specscope.readers.tables.csv_file import name_of
from specscope.readers.tables.impossible import Impossible
from specscope.readers.tables.names import OFF, ON, WORD, named
from specscope.readers.tables.table import Table

MOST_KEYS = 64
_STARTS = re.compile(rb'(?:\xef\xbb\xbf)?\s*(?:\[\s*)?\{\s*"')


class RowsJson:
    """A table whose columns are the keys of objects."""

    format = "rows-json"

    def sniff(self, head: bytes) -> float:
        """0.5 if the keys of the objects name a measure, and arms or classes."""
        return 0.5 if _STARTS.match(head) and _table(io.BytesIO(head)) else 0.0

    def read(self, source: Source) -> Iterator[Record]:
        """One arm an object, and a window if it speaks of acceptance."""
        table = _table(source.stream)
        if table:
            impossible = Impossible()
            yield from records(source.name, table, impossible)
            yield from impossible.findings()


def _table(stream: BinaryIO) -> Table | None:
    """The table that a stream holds; None if its keys name no arm or no measure."""
    rows = [row for document in documents(stream) for row in _rows(document)][:TOGETHER]
    keys = list(dict.fromkeys(key for row in rows for key in row))[:MOST_KEYS]
    printed = {name_of(key): key for key in keys if name_of(key)}
    cells = [{name: _cell(row.get(key)) for name, key in printed.items()} for row in rows]
    table = Table(list(printed), cells, printed=printed)
    return table if len(rows) > 1 and is_known(table, drawn=False) else None


def _rows(document: Any) -> Iterator[dict[str, Any]]:
    if isinstance(document, list):
        yield from (row for row in document if isinstance(row, dict))
    elif isinstance(document, dict):
        arms = {key: value for key, value in document.items() if isinstance(value, dict)}
        lists = [value for value in document.values() if isinstance(value, list)]
        states = {named(key).state for key in arms}
        if ON in states and states & {OFF, WORD}:
            yield from ({"arm": key, **value} for key, value in arms.items())
        elif len(lists) == 1 and all(isinstance(row, dict) for row in lists[0]):
            yield from lists[0]
        else:
            yield document


def _cell(value: object) -> str:
    """A value as it would stand in a table; nested ones have no cell."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int | float):
        return str(value) if abs(value) < LARGEST else ""
    return value if isinstance(value, str) else ""
