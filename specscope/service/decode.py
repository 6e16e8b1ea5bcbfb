"""Decode Arrow streams from sidecars, after a check of the memory that they claim.

A few hundred bytes of Arrow can claim gigabytes: by a dictionary, by run-end encoding, by a column
of nulls, or by a compressed buffer. So the headers are read before any buffer. They hold the number
of rows and the decompressed size of every buffer. Only the plain types of our own tables are
decoded.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress, islice
from operator import add
from typing import Any, NamedTuple

import pyarrow as pa

from specscope_agent.schemas import ARROW_TYPES, schema

MAX_ROWS = 1_000_000  # of one table in a batch; a sidecar's largest has some 20 000
MAX_BYTES = 64 << 20  # decoded, of one batch; a sidecar's largest takes some 16 MiB
MAX_COLUMNS = 512  # of one table; the widest of ours has some 60
MAX_TABLES = 32  # of one batch; we have 6 kinds
MAX_HEAD = 256 << 10  # bytes that declare the columns of a table; the widest of ours takes 7 KiB

UNREADABLE = (pa.ArrowException, OSError, EOFError, ValueError)
"""Errors of bytes that are not what their headers say."""

PLAIN = frozenset(ARROW_TYPES.values()) | {pa.list_(kind) for kind in ARROW_TYPES.values()}


@dataclass(frozen=True, slots=True)
class Claim:
    """The size that one table's stream claims, before decoding."""

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
    """It has precisely the columns of its table, and no NULL if its table has none."""
    head: bytes = b""
    """The message that declares the columns; claims of the same head may be decoded as one."""
    messages: memoryview = memoryview(b"")
    """Those of its rows, as they lie in the stream."""
    parts: int = 0
    """How many they are."""
    fault: str = ""
    """Why it is not decoded; empty if it may be."""


def claims(tables: Iterable[Any]) -> list[Claim]:
    """The claim of each table of a wire Batch, in order; together at most MAX_BYTES.

    Never raises: an unreadable or too large stream has a fault and size 0. All tables after
    MAX_TABLES form one claim with a fault.
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
    """Decode the known columns of a claim, with the types of its table.

    Raises ValueError for a claim with a fault, pa.ArrowException or OSError for bytes that
    contradict their headers.
    """
    if claim.fault:
        raise ValueError(claim.fault)
    options = pa.ipc.IpcReadOptions(included_fields=list(claim.known), use_threads=False)
    rows: pa.Table = pa.ipc.open_stream(claim.arrow, options=options).read_all()
    # Offsets that point outside would be read as they stand.
    rows.validate(full=True)
    return rows


def decoded_together(claims: Sequence[Claim]) -> list[pa.Table]:
    """The rows of claims with a common schema, one table each.

    It reads them as one stream, because opening dominates the cost of small streams. Raises
    UNREADABLE if one of them cannot be read.
    """
    stream = b"".join([claims[0].head, *(claim.messages for claim in claims), _END])
    options = pa.ipc.IpcReadOptions(use_threads=False)
    parts = list(pa.ipc.open_stream(stream, options=options))
    # Offsets that point outside would be read as they stand.
    pa.Table.from_batches(parts).validate(full=True)
    own = iter(parts)
    return [pa.Table.from_batches(islice(own, claim.parts)) for claim in claims]


def _claim(name: str, arrow: bytes, left: int) -> Claim:
    rows = size = parts = 0
    whole = True
    try:
        head = _head(arrow)
        columns = _columns(name, head)
        end = len(head)
        for message, place in _record_batches(arrow, end):
            part = _part(bytes(message.metadata), message.body, columns.required)
            rows, size = rows + part.rows, size + part.size + part.rows * columns.missing
            whole &= part.whole
            if rows > MAX_ROWS or size > left:
                raise ValueError(f"{rows} rows of {size} bytes: more than a batch may hold")
            parts, end = parts + 1, place
    except (*UNREADABLE, KeyError, struct.error) as error:
        return Claim(name, b"", fault=str(error)[:200] or type(error).__name__)
    messages = memoryview(arrow)[len(head) : end]
    # Those that follow must begin where Arrow may read their buffers as they lie.
    whole &= columns.required is not None and not len(messages) % _ALIGNED
    known, unknown, head = columns.known, columns.unknown, columns.head
    return Claim(name, arrow, rows, size, known, unknown, whole, head, messages, parts)


def _head(arrow: bytes) -> bytes:
    """The first message of a stream, which declares its columns and has no body.

    Raises ValueError for a stream of another format.
    """
    if len(arrow) < _PREFIX.size:
        raise ValueError("an empty stream")
    marker, length = _PREFIX.unpack_from(arrow)
    if marker != -1 or not 0 < length <= MAX_HEAD:
        raise ValueError(f"begins with no message, or one of {length} bytes")
    return arrow[: _PREFIX.size + length]


class _Part(NamedTuple):
    """A record batch by its header."""

    rows: int
    size: int
    """Bytes once decoded."""
    whole: bool
    """It has no NULL in a column that has none; Arrow reads no other than the header says."""


def _record_batches(arrow: bytes, begin: int) -> Iterator[tuple[Any, int]]:
    """The record batches of a stream from an offset, each with its end offset."""
    reader = pa.BufferReader(arrow)
    reader.seek(begin)
    while begin < len(arrow) and not arrow.startswith(_END, begin):
        message = pa.ipc.read_message(reader)
        if message.type != "record batch":
            raise ValueError(f"a {message.type} among the rows")
        begin = reader.tell()
        yield message, begin


class _Columns(NamedTuple):
    known: tuple[int, ...]
    unknown: int
    missing: int
    """Bytes a row of the columns that are left out, once they are filled with NULL."""
    required: tuple[bool, ...] | None
    """Whether each of a record batch's arrays, children too, may have no NULL; None if the columns
    are not precisely those of the table."""
    head: bytes
    """The schema as it was encoded: one object for all who send the same."""


# Sidecars of one version send the same few schemas with every batch.
@lru_cache(maxsize=64)
def _columns(name: str, encoded: bytes) -> _Columns:
    wanted = {field.name: field.type for field in schema(name)}
    message = pa.ipc.read_message(pa.py_buffer(encoded))
    if message.type != "schema":
        raise ValueError(f"begins with a {message.type}, not with a schema")
    columns = pa.ipc.read_schema(message)
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
    return _Columns(known, len(columns) - len(known), missing, required, encoded)


def _width(kind: Any) -> int:
    """Bytes of a NULL of a type, including its validity bit, rounded up."""
    return 5 if pa.types.is_string(kind) or pa.types.is_list(kind) else kind.bit_width // 8 + 1


_SIZE = struct.Struct("<q")
_PREFIX = struct.Struct("<ii")  # of a message: a marker, and how long its header is
_END = _PREFIX.pack(-1, 0)  # of a stream
_ALIGNED = 8  # bytes

# Places of fields in the tables that Arrow's format declares (Message.fbs, version 5).
_HEADER, _LENGTH, _NODES, _BUFFERS, _COMPRESSION = 2, 0, 1, 2, 3


def _part(metadata: bytes, body: Any, required: Sequence[bool] | None) -> _Part:
    """One record batch with its claim.

    metadata: a Message, as a flatbuffer that Arrow has verified. body: the bytes after it.
    required: see `_Columns`
    """
    view = memoryview(body) if body is not None else memoryview(b"")
    batch = _follow(metadata, _field(metadata, _follow(metadata, 0), _HEADER))
    at = _field(metadata, batch, _LENGTH)
    rows = _i64(metadata, at) if at else 0
    lengths, nulls = _pairs(metadata, batch, _NODES)
    counts = (rows, *lengths)
    if min(counts) < 0 or max(counts) > MAX_BYTES:
        raise ValueError(f"a column of {max(counts, key=abs)} values")
    offsets, sizes = _pairs(metadata, batch, _BUFFERS)
    least = min(min(offsets, default=0), min(sizes, default=0))
    if least < 0 or max(map(add, offsets, sizes), default=0) > len(view):
        raise ValueError("a buffer outside its message")
    if _field(metadata, batch, _COMPRESSION):
        sizes = _decompressed(view, offsets, sizes)
    whole = required is not None and not any(compress(nulls, required))
    return _Part(rows, sum(sizes), whole)


def _decompressed(view: memoryview, offsets: Sequence[int], sizes: Sequence[int]) -> Sequence[int]:
    """Decompressed bytes of compressed buffers; each non-empty buffer begins with its size."""
    filled = list(compress(offsets, sizes))
    claimed = [begin for offset in filled for begin in _SIZE.unpack_from(view, offset)]
    if -1 in claimed:  # left as it is
        given = compress(sizes, sizes)
        claimed = [one if one != -1 else size - 8 for one, size in zip(claimed, given, strict=True)]
    if min(claimed, default=0) < 0:
        raise ValueError(f"a buffer of {min(claimed)} bytes")
    return claimed


def _pairs(data: bytes, table: int, field: int) -> tuple[Sequence[int], Sequence[int]]:
    """A vector of structs of two 64-bit numbers, as two columns; empty if the field is absent."""
    at = _field(data, table, field)
    if not at:
        return (), ()
    start = _follow(data, at)
    (count,) = struct.unpack_from("<I", data, start)
    if count > len(data):
        raise ValueError(f"a vector of {count} pairs in {len(data)} bytes")
    # The numbers are aligned to 8 bytes, and follow the count at once.
    numbers = struct.unpack_from(f"<{2 * count}q", data, start + 4)
    return numbers[::2], numbers[1::2]


def _field(data: bytes, table: int, field: int) -> int:
    """Offset of a table's field; 0 if it is absent."""
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
