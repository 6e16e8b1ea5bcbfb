"""The type of a record's column, and the enumerations of columns.

Types are written `u8 u16 u32 u64 i16 i64 f32 f64 bool`, `text`, `label` (text of few
values), `time` (int64 ns since 1970, UTC); `[]` makes an array and `?` says that the value
may be unknown. Unknown is None (on the ring NaN, or the type's largest value), never 0.
"""

from __future__ import annotations

from dataclasses import field, fields
from enum import IntEnum
from typing import Any, NamedTuple

SCHEMA_VERSION = 3
"""Of a ring's page. It rises when parts of the page move; a ring's header names its columns."""

READABLE_VERSIONS = (2, 3)
"""Versions of rings that this reader understands; in version 2 the columns were fixed."""


class End(IntEnum):
    """The end of a sequence in a round, or of a request.

    STOP_OR_ABORT: a request with stop strings ended, and the engine does not report whether a stop
    string matched or the client disconnected. UNKNOWN: the request ended normally, and the engine
    does not report the reason.
    """

    NONE = 0
    EOS = 1
    LENGTH = 2
    STOP = 3
    ABORT = 4
    PREEMPT = 5
    STOP_OR_ABORT = 6
    UNKNOWN = 7


ENDS = {
    "eos": "the model ended the text",
    "length": "the output reached its limit",
    "stop": "a stop string or token was met",
    "abort": "the client or the server cancelled the request",
    "preempt": "the engine put the request back into the queue; it goes on later",
    "stop_or_abort": "a stop string was met or the client went away; the engine does not say which",
    "unknown": "the request ended by itself; the engine does not say how",
}
"""Meaning of each end, as it is stored."""


class TimingSource(IntEnum):
    """The clock of a round's parts."""

    HOST = 0
    CUDA = 1
    ENGINE = 2


class Column(NamedTuple):
    """One column: `type` as in the module's docstring, `unit` "1" for no unit."""

    name: str
    type: str
    unit: str
    meaning: str

    @property
    def nullable(self) -> bool:
        return self.type.endswith("?")

    @property
    def base(self) -> str:
        """The type without `?` and `[]`."""
        return self.type.rstrip("?").removesuffix("[]")

    @property
    def repeated(self) -> bool:
        return self.type.rstrip("?").endswith("[]")


def column(type_: str, unit: str, meaning: str) -> Any:
    """A dataclass field with its column; if allowed, its default is unknown."""
    metadata = {"column": (type_, unit, meaning)}
    if type_.endswith("?"):
        return field(default=None, metadata=metadata)
    return field(metadata=metadata)


def columns(record: type[Any]) -> tuple[Column, ...]:
    """The columns of a record class, in declared order."""
    return tuple(Column(f.name, *f.metadata["column"]) for f in fields(record))


def stored_name(name: str) -> str:
    """A column's name in the store: `class_` becomes `class`, which only Python reserves."""
    return name.rstrip("_")
