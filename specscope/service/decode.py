"""Arrow streams from peers: what they claim is counted first, then they are decoded.

A few hundred bytes of Arrow can claim gigabytes: a dictionary cast to its values, run-end
encoding, a column of nulls, a compressed buffer that names its size. So the stream's headers
are read before any buffer is: they hold the number of rows, and the size of every buffer,
decompressed. Only the plain types of our own tables are decoded at all.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa

from specscope_agent.schemas import ARROW_TYPES, schema

MAX_ROWS = 1_000_000  # of one table in a batch; a sidecar's largest has some 20 000
MAX_BYTES = 64 << 20  # decoded, of one batch; a sidecar's largest takes some 16 MiB
MAX_COLUMNS = 512  # of one table; the widest of ours has some 60
MAX_TABLES = 32  # of one batch; we have 6 kinds

PLAIN = frozenset(ARROW_TYPES.values()) | {pa.list_(kind) for kind in ARROW_TYPES.values()}


@dataclass(frozen=True, slots=True)
class Claim:
    """What one table's stream says it holds, before anything of it is decoded."""

    name: str
    arrow: bytes
    rows: int = 0
    size: int = 0
    """Bytes once decoded."""
    known: tuple[int, ...] = ()
    """Places of the columns that its table has."""
    unknown: int = 0
    """Columns that its table has not."""
    whole: bool = False
    """It has precisely the columns of its table, and no NULL where its table has none."""
    fault: str = ""
    """Why it is not decoded; empty if it may be."""


def claims(tables: Iterable[Any]) -> list[Claim]:
    """The claim of each table of a wire Batch, in order; together at most MAX_BYTES.

    Never raises: a stream that cannot be read, or claims too much, has a fault and size 0. What
    follows MAX_TABLES is one claim with a fault.
    """
    read: list[Claim] = []
    left = MAX_BYTES
    for table in tables:
        if len(read) == MAX_TABLES:
            read.append(Claim("", b"", fault=f"more than {MAX_TABLES} tables in one batch"))
            break
        claim = _claim(table.name, table.arrow, left)
        left -= claim.size
        read.append(claim)
    return read


def decoded(claim: Claim) -> pa.Table:
    """The columns that its table has of a claim, with the types that they have there.

    Raises ValueError for a claim with a fault, pa.ArrowException or OSError for bytes that are
    not what their headers say.
    """
    if claim.fault:
        raise ValueError(claim.fault)
    options = pa.ipc.IpcReadOptions(included_fields=list(claim.known), use_threads=False)
    rows: pa.Table = pa.ipc.open_stream(claim.arrow, options=options).read_all()
    # Offsets that point outside would be read as they stand.
    rows.validate(full=True)
    return rows


def _claim(name: str, arrow: bytes, left: int) -> Claim:
    rows = size = unknown = 0
    try:
        messages: Any = pa.ipc.MessageReader.open_stream(arrow)
        columns = _columns(name, _schema(messages))
        for part in _parts(messages, columns.required):
            rows, size = rows + part.rows, size + part.size + part.rows * columns.missing
            unknown += part.unknown
            if rows > MAX_ROWS or size > left:
                raise ValueError(f"{rows} rows of {size} bytes: more than a batch may hold")
    except (pa.ArrowException, OSError, ValueError, KeyError, struct.error) as error:
        return Claim(name, b"", fault=str(error)[:200] or type(error).__name__)
    whole = columns.required is not None and not unknown
    return Claim(name, arrow, rows, size, columns.known, columns.unknown, whole)


def _schema(messages: Any) -> bytes:
    try:
        first = messages.read_next_message()
    except StopIteration:
        raise ValueError("an empty stream") from None
    if first.type != "schema":
        raise ValueError(f"begins with a {first.type}, not with a schema")
    encoded: bytes = first.serialize().to_pybytes()
    return encoded


class _Part(NamedTuple):
    """A record batch by its header."""

    rows: int
    size: int
    """Bytes once decoded."""
    unknown: int
    """NULLs in columns that have none; Arrow reads no other than the header says."""


def _parts(messages: Any, required: Sequence[bool] | None) -> Iterator[_Part]:
    """The record batches that follow the schema."""
    while True:
        try:
            message = messages.read_next_message()
        except StopIteration:
            return
        if message.type != "record batch":
            raise ValueError(f"a {message.type} among the rows")
        yield _record_batch(bytes(message.metadata), message.body, required)


class _Columns(NamedTuple):
    known: tuple[int, ...]
    unknown: int
    missing: int
    """Bytes a row of the columns that are left out, once they are filled with NULL."""
    required: tuple[bool, ...] | None
    """Whether each of a record batch's arrays, children too, may have no NULL; None if the columns
    are not precisely those of the table."""


# Sidecars of one version send the same few schemas with every batch.
@lru_cache(maxsize=64)
def _columns(name: str, encoded: bytes) -> _Columns:
    wanted = {field.name: field.type for field in schema(name)}
    columns = pa.ipc.read_schema(pa.py_buffer(encoded))
    if len(columns) > MAX_COLUMNS or len(set(columns.names)) < len(columns):
        raise ValueError(f"{len(columns)} columns, of which {len(set(columns.names))} differ")
    for field in columns:
        if field.type not in PLAIN or field.type != wanted.get(field.name, field.type):
            kind = f"column {field.name[:64]} is of type {str(field.type)[:64]}"
            raise ValueError(f"{kind}, not of that of its table")
    known = tuple(place for place, field in enumerate(columns) if field.name in wanted)
    if not known:  # Arrow reads an empty choice as all of them
        raise ValueError("no column of this table")
    missing = sum(_width(kind) for column, kind in wanted.items() if column not in columns.names)
    required = None
    if columns.equals(schema(name)):
        arrays = [[field] * (2 if pa.types.is_list(field.type) else 1) for field in columns]
        required = tuple(not field.nullable for some in arrays for field in some)
    return _Columns(known, len(columns) - len(known), missing, required)


def _width(kind: Any) -> int:
    """Bytes of a NULL of a type, its bit of validity rounded up."""
    return 5 if pa.types.is_string(kind) or pa.types.is_list(kind) else kind.bit_width // 8 + 1


# Places of fields in the tables that Arrow's format declares (Message.fbs, version 5).
_HEADER, _LENGTH, _NODES, _BUFFERS, _COMPRESSION = 2, 0, 1, 2, 3


def _record_batch(metadata: bytes, body: Any, required: Sequence[bool] | None) -> _Part:
    """One record batch, as it claims to be.

    metadata: a Message, as a flatbuffer that Arrow has verified; body: what follows it; required:
    see `_Columns`
    """
    view = memoryview(body) if body is not None else memoryview(b"")
    batch = _follow(metadata, _field(metadata, _follow(metadata, 0), _HEADER))
    at = _field(metadata, batch, _LENGTH)
    rows = _i64(metadata, at) if at else 0
    nodes = list(_pairs(metadata, batch, _NODES))
    lengths = [rows, *(length for length, _ in nodes)]
    if min(lengths) < 0 or max(lengths) > MAX_BYTES:
        raise ValueError(f"a column of {max(lengths, key=abs)} values")
    compressed = bool(_field(metadata, batch, _COMPRESSION))
    size = 0
    for offset, length in _pairs(metadata, batch, _BUFFERS):
        if offset < 0 or length < 0 or offset + length > len(view):
            raise ValueError("a buffer outside its message")
        claimed = length
        if compressed and length:
            (claimed,) = struct.unpack_from("<q", view, offset)
            claimed = length - 8 if claimed == -1 else claimed  # -1: left as it is
            if claimed < 0:
                raise ValueError(f"a buffer of {claimed} bytes")
        size += claimed
    unknown = sum(nulls for (_, nulls), known in zip(nodes, required or (), strict=False) if known)
    return _Part(rows, size, unknown)


def _pairs(data: bytes, table: int, field: int) -> Iterator[tuple[int, int]]:
    """A vector of structs of two 64-bit numbers; none if the field is absent."""
    at = _field(data, table, field)
    if at:
        start = _follow(data, at)
        (count,) = struct.unpack_from("<I", data, start)
        # The numbers are aligned to 8 bytes, and follow the count at once.
        yield from struct.iter_unpack("<qq", data[start + 4 : start + 4 + 16 * count])


def _field(data: bytes, table: int, field: int) -> int:
    """Where a table's field lies; 0 if it is absent."""
    (back,) = struct.unpack_from("<i", data, table)
    vtable = table - back
    (size,) = struct.unpack_from("<H", data, vtable)
    place = 4 + 2 * field
    if place + 2 > size:
        return 0
    (offset,) = struct.unpack_from("<H", data, vtable + place)
    return table + offset if offset else 0


def _follow(data: bytes, at: int) -> int:
    (offset,) = struct.unpack_from("<I", data, at)
    return at + int(offset)


def _i64(data: bytes, at: int) -> int:
    (number,) = struct.unpack_from("<q", data, at)
    return int(number)
