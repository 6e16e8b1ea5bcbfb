"""One batch as a file: written whole or not at all, and checked when it is read.

    8 bytes   MAGIC
    4         CRC-32 of all that follows
    4         length of the header
    header    JSON: source, number, record numbers, cursor, what has been said, tables
    tables    Arrow IPC streams in the header's order, without padding

Integers are little-endian. The file is written under another name, synced and renamed, so
a name that ends in `.batch` is a whole batch unless the disk lost it; the CRC says so.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

from specscope_agent.source import Source
from specscope_agent.wire import Encoded
from specscope_hook.ring import Cursor

MAGIC = b"SPECBAT1"
_HEAD = struct.Struct("<II")
SUFFIX = ".batch"


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


def write(path: Path, batch: Batch, *, sync: bool = True) -> int:
    """Put a batch into its file, replacing what was there; returns the file's bytes.

    sync: wait until it would survive the machine, not only this process

    Raises OSError where the disk does not take it; what was there is then left as it was.
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
    new = path.with_suffix(".new")
    try:
        with new.open("wb") as file:
            file.writelines([MAGIC, struct.pack("<I", check), *body])
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.rename(new, path)
    except OSError:
        new.unlink(missing_ok=True)
        raise
    return 16 + len(header) + sum(len(table.arrow) for table in batch.tables)


def read(path: Path) -> Batch | None:
    """The batch in a file; None where it is torn or none at all.

    Raises OSError where it cannot be read.
    """
    raw = path.read_bytes()
    if len(raw) < 16 or raw[:8] != MAGIC:
        return None
    check, length = _HEAD.unpack_from(raw, 8)
    if zlib.crc32(memoryview(raw)[12:]) != check:
        return None
    try:
        return _parsed(raw, length)
    except (ValueError, KeyError, TypeError):  # whole, and of another version
        return None


def _parsed(raw: bytes, length: int) -> Batch:
    header = json.loads(raw[16 : 16 + length])
    tables, offset = [], 16 + length
    for name, rows, size in header["tables"]:
        tables.append(Encoded(name, rows, raw[offset : offset + size]))
        offset += size
    return Batch(
        source=Source(*header["source"]),
        number=header["number"],
        first_seq=header["first_seq"],
        cursor=Cursor(*header["cursor"]),
        said=frozenset(header["said"]),
        tables=tuple(tables),
    )
