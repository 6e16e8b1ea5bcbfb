"""One batch as a file: written atomically, and checked on reading.

    8 bytes   MAGIC
    4         CRC-32 of all bytes after it
    4         length of the header
    header    JSON: source, number, record numbers, cursor, notes already sent, tables
    tables    Arrow IPC streams in the header's order, without padding

Integers are little-endian. The file is written under another name, synced and renamed. So a file
`*.batch` is complete unless the disk lost data, which the CRC detects.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

from specscope_agent import files
from specscope_agent.source import Source
from specscope_agent.wire import Encoded
from specscope_hook.ring import Cursor

MAGIC = b"SPECBAT1"
_HEAD = struct.Struct("<II")
SUFFIX = ".batch"
LARGEST_BYTES = 64 << 20  # a batch is 2 MiB, and one of a single round no more than 4
PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Batch:
    """A numbered batch, and the ring's cursor after it."""

    source: Source
    number: int
    first_seq: int
    cursor: Cursor
    """Where the ring is read on; its `next_seq` follows the batch's last record."""
    said: frozenset[str]
    """What is said once a boot and has been: in this batch or in one before."""
    tables: tuple[Encoded, ...]

    def rows(self, name: str) -> int:
        return sum(table.rows for table in self.tables if table.name == name)


def write(path: Path, batch: Batch, *, sync: bool = True, over: bool = False) -> int:
    """Write a batch to its file, replacing an old one; returns the file's bytes.

    sync: wait until the file survives a crash of the machine
    over: overwrite the blocks of the old file, which is useless

    Raises OSError if the disk refuses it; without `over` the old file stays unchanged.
    """
    header = json.dumps(
        {
            "source": batch.source,
            "number": batch.number,
            "first_seq": batch.first_seq,
            "cursor": batch.cursor,
            "said": sorted(batch.said),
            "tables": [(table.name, table.rows, len(table.arrow)) for table in batch.tables],
        }
    ).encode()
    body = [struct.pack("<I", len(header)), header, *(table.arrow for table in batch.tables)]
    check = 0
    for piece in body:
        check = zlib.crc32(piece, check)
    pieces = [MAGIC, struct.pack("<I", check), *body]
    if over:
        files.overwrite(path, pieces)
    else:
        files.replace(path, pieces, sync=sync)
    return sum(map(len, pieces))


def read(path: Path) -> Batch | None:
    """Read the batch of a file; None if it is truncated or no batch.

    Raises OSError if it cannot be read.
    """
    with files.open_regular(path) as file:
        raw = file.read(LARGEST_BYTES + 1)
    if not 16 <= len(raw) <= LARGEST_BYTES or raw[:8] != MAGIC:
        return None
    check, length = _HEAD.unpack_from(raw, 8)
    if zlib.crc32(memoryview(raw)[12:]) != check:
        return None
    bare = _parsed(raw[16 : 16 + length])
    if bare is None:
        return None
    batch, sizes = bare
    tables, offset = [], 16 + length
    for table, size in zip(batch.tables, sizes, strict=True):
        tables.append(Encoded(table.name, table.rows, raw[offset : offset + size]))
        offset += size
    return replace(batch, tables=tuple(tables))


def summary(path: Path) -> tuple[Batch, int] | None:
    """Read a batch without the bytes of its tables, and its file's size; None if it is truncated.

    It reads the file in pieces, because a whole spool does not fit in memory.

    Raises OSError if it cannot be read.
    """
    with files.open_regular(path) as file:
        head = file.read(16)
        if len(head) < 16 or head[:8] != MAGIC:
            return None
        expected, length = _HEAD.unpack_from(head, 8)
        header = file.read(min(length, LARGEST_BYTES))
        check, size = zlib.crc32(header, zlib.crc32(head[12:])), 16 + len(header)
        while size <= LARGEST_BYTES and (piece := file.read(PIECE_BYTES)):
            check, size = zlib.crc32(piece, check), size + len(piece)
    if check != expected or size > LARGEST_BYTES:
        return None
    bare = _parsed(header)
    return (bare[0], size) if bare else None


def _parsed(header: bytes) -> tuple[Batch, list[int]] | None:
    """The batch of a header, with empty tables, and the bytes of each table.

    None if the header is from another version.
    """
    try:
        raw = json.loads(header)
        names = [Encoded(str(name), _count(rows), b"") for name, rows, _ in raw["tables"]]
        sizes = [_count(size) for _, _, size in raw["tables"]]
        replica, boot = raw["source"]
        position, next_seq = raw["cursor"]
        batch = Batch(
            source=Source(str(replica), str(boot)),
            number=_count(raw["number"]),
            first_seq=_count(raw["first_seq"]),
            cursor=Cursor(_count(position), _count(next_seq)),
            said=frozenset(map(str, raw["said"])),
            tables=tuple(names),
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return batch, sizes


def _count(value: object) -> int:
    if not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise ValueError(f"{value!r} is not a count")
    return value
