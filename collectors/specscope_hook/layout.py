"""The layout of a ring file, shared by writer and reader.

One file, `<SPECSCOPE_RINGS>/<replica>-<boot>.ring`, written with `pwrite` and read with
`pread`. All words are little-endian u64, each written by one side only:

    byte  0  MAGIC          "SPECRING"
          8  VERSION        layout of this page, see columns.SCHEMA_VERSION
         16  CAPACITY       bytes of the data region, a multiple of the page size
         24  SEQ            number of the next record; rises on drops too         (writer)
         32  WRITE          bytes ever written, fillers included; data index is WRITE % CAPACITY
         40  READ           bytes given back by the reader                        (reader)
         48  DROPPED        records dropped because the ring was full             (writer)
         56  FAULT          1 once the hook has detached itself; text at FAULT_TEXT
         64  END            1 once the writer has closed the ring on purpose
         72  NAMES          entries in the dictionary, published last             (writer)
         80  CONTROL        version of the control page, odd while it is written  (reader)
         88  CONTROL_BYTES  length of the control JSON
         96  BOOT_BYTES     length of the Boot JSON
        104  FAULT_BYTES    length of the fault text
        112  DROP_AT, 120 DROP_SEQ, 128 DROP_CHECK    the drop note, below
        136  BOOT_CHECK     of the Boot JSON; 0 in rings of earlier hooks
        512  fault text, UTF-8, 512 bytes
       4096  Boot JSON, 16 KiB
      20480  dictionary: 768 entries of 72 bytes: kind u8, id u8, length u8, one unused, check u32
              (0 in rings of earlier hooks), name
      77824  control JSON, 64 KiB
     143360  data

A record in the data region starts at a multiple of 8: length u32 (payload only), crc u32, seq u64,
kind u8, one unused, batch u16, four unused, payload. It never wraps: if it does not fit before the
end, a FILLER record (or, in under 24 bytes, nothing) sends the reader to the start. The CRC covers
the payload and starts from seq, kind and batch. So a torn or reordered write is a mismatch on any
processor, never a record.

The writer writes several records at once, then the words that publish them. A reader may still see
a torn or flipped word. So it accepts only possible positions, and a record only if its number and
CRC match.

The drop note means "at WRITE = DROP_AT, the next record has seq DROP_SEQ". It has its own checksum.
So a reader at DROP_AT knows the records dropped at the tail, in whatever order the words become
visible. A writer that recreates a damaged file keeps position and number. It sets READ to WRITE and
writes a drop note, so all unread records become a gap.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple
from zlib import crc32

MAGIC: Final = int.from_bytes(b"SPECRING", "little")

W_MAGIC: Final = 0
W_VERSION: Final = 1
W_CAPACITY: Final = 2
W_SEQ: Final = 3
W_WRITE: Final = 4
W_READ: Final = 5
W_DROPPED: Final = 6
W_FAULT: Final = 7
W_END: Final = 8
W_NAMES: Final = 9
W_CONTROL: Final = 10
W_CONTROL_BYTES: Final = 11
W_BOOT_BYTES: Final = 12
W_FAULT_BYTES: Final = 13
W_DROP_AT: Final = 14
W_DROP_SEQ: Final = 15
W_DROP_CHECK: Final = 16
W_BOOT_CHECK: Final = 17

WORDS: Final = struct.Struct("<18Q")
WRITER_WORDS: Final = (0, 1, 2, 3, 4, 6, 7, 8, 9, 12, 13, 14, 15, 16, 17)
FAULT_TEXT: Final = 512
FAULT_TEXT_BYTES: Final = 512
BOOT: Final = 4096
BOOT_BYTES: Final = 16384
NAMES: Final = BOOT + BOOT_BYTES
NAME_ENTRY: Final = struct.Struct("<BBBxI64s")
NAMES_MAX: Final = 768
NAMES_BYTES: Final = 57344  # 768 entries of 72 bytes, up to a whole page
CONTROL: Final = NAMES + NAMES_BYTES
CONTROL_BYTES: Final = 65536
DATA: Final = CONTROL + CONTROL_BYTES
PAGE: Final = 4096
CAPACITY_MAX: Final = 1 << 40

HEAD: Final = struct.Struct("<IIQBxH4x")
ROUND: Final = 1
REQUEST: Final = 2
FILLER: Final = 255

NAME_CLASS: Final = 0
NAME_ARM: Final = 1
NAME_ADAPTER: Final = 2
NAME_BYTES: Final = 64
OTHER: Final = 255  # id of a name that the full dictionary could not take
CLASSES_MAX: Final = 64  # per replica; the rest is `other`

FIRST_SEQ: Final = 1


class Cursor(NamedTuple):
    """A reader's position: bytes since the creation of the ring, and the next record's number."""

    position: int = 0
    next_seq: int = FIRST_SEQ


class RawRecord(NamedTuple):
    """A record on the ring; `batch` is 0 for a request."""

    seq: int
    kind: int
    batch: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Gap:
    """Lost records; `reason` is one of records.LOSS_REASONS."""

    first_seq: int
    count: int
    reason: str


def aligned(size: int) -> int:
    """The next multiple of 8, the start of a record."""
    return (size + 7) & ~7


def boot_check(text: bytes) -> int:
    """The checksum of a boot record's JSON; never 0, which means none."""
    return crc32(text) | 1 << 32


def name_check(kind: int, id_: int, name: bytes) -> int:
    """The checksum of a dictionary entry; never 0, which means none."""
    return crc32(name, kind << 8 | id_) or 1


def drop_check(position: int, seq: int) -> int:
    """The checksum of a drop note; 0, as in a new ring, never matches."""
    return crc32(struct.pack("<QQ", position, seq)) | 1 << 32
