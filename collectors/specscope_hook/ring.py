"""The writer of a ring: one process, one thread; it never blocks and never grows.

`layout` describes the file, and `reader` is the other end. The file is not mapped, because access
to a truncated page would kill the process; a failed write is only an error. A buffer collects
records. It is written when it is full, at the first record 20 ms after the last write, and on
`flush`.

Once a second the writer checks its file. It repairs a changed header, and recreates a truncated,
deleted or replaced file. Positions and record numbers continue, so the reader counts lost records.

The writer holds a lock on the file for its lifetime, which shows the reader, across containers,
that it lives. After a fork the child has no ring, because a ring has one writer.
"""

from __future__ import annotations

import json
import logging
import os
import weakref
from dataclasses import asdict
from pathlib import Path
from struct import Struct
from time import monotonic_ns
from zlib import crc32

from specscope_hook import layout as at
from specscope_hook.errors import RingError
from specscope_hook.layout import (
    CLASSES_MAX,
    NAME_ADAPTER,
    NAME_ARM,
    NAME_CLASS,
    OTHER,
    REQUEST,
    ROUND,
    Cursor,
    Gap,
    RawRecord,
)
from specscope_hook.reader import RingReader
from specscope_hook.records import Boot
from specscope_hook.ring_file import WORD, RingFile, drop_note, name_entry
from specscope_hook.ring_records import LAYOUT

__all__ = [
    "NAME_ADAPTER",
    "NAME_ARM",
    "NAME_CLASS",
    "OTHER",
    "REQUEST",
    "ROUND",
    "Cursor",
    "Gap",
    "RawRecord",
    "Ring",
    "RingReader",
]

log = logging.getLogger("specscope")

FLUSH_NS = 20_000_000  # a record that comes this long after the last write is written at once
BUFFER_BYTES = 32_768
INSPECT_NS = 900_000_000  # between two looks at the file: damage is noticed within a second

_HEAD_BYTES = at.HEAD.size
_pack_head = at.HEAD.pack_into
_TWO_WORDS, _NOTE = Struct("<QQ"), Struct("<QQQ")
_living: weakref.WeakSet[Ring] = weakref.WeakSet()
_fork_seen = False


class Ring(RingFile):
    """The writer of one ring file."""

    def __init__(self, path: Path, file: int, capacity: int, boot: bytes) -> None:
        """Use `create`."""
        super().__init__(path, file, capacity, boot)
        self._buffer = bytearray(BUFFER_BYTES)
        self._used = 0  # bytes of the buffer
        self._seq = at.FIRST_SEQ
        self._dropped = 0
        self._due = self._inspect_at = 0
        self.open = True

    @classmethod
    def create(cls, path: Path | str, boot: Boot, capacity_bytes: int) -> Ring:
        """Create the file: allocate, lock and write the header before it becomes visible.

        capacity_bytes: size of the data region, rounded up to whole pages, at least one.

        Raises RingError with the reason and leaves no file behind.
        """
        path = Path(path)
        capacity = max(1, -(-capacity_bytes // at.PAGE)) * at.PAGE
        text = json.dumps(
            {**asdict(boot), "layout": LAYOUT.as_json()}, separators=(",", ":")
        ).encode()
        if len(text) > at.BOOT_BYTES:
            raise RingError(f"the boot record takes {len(text)} bytes, {at.BOOT_BYTES} are kept")
        ring = cls(path, -1, capacity, text)
        try:
            ring._make_file(allocate=True)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise RingError(
                f"cannot make a ring of {capacity} bytes in {path.parent}: {reason}"
            ) from error
        ring._inspect_at = monotonic_ns() + INSPECT_NS
        _forget_after_fork(ring)
        return ring

    # HOT PATH. Once per record. No lock, no system call but the clock and now and then a write.
    def push(self, kind: int, payload: bytes, batch: int = 0) -> bool:
        """Push one record; False if it was dropped. A dropped record still uses a number.

        It may stay in the buffer until a later `push` or `flush`.

        Only the engine's thread may call it. Raises OSError if the header cannot be written.
        """
        length = len(payload)
        used = self._used
        end = used + ((_HEAD_BYTES + length + 7) & ~7)
        if end > self._limit:
            if not self._make_room(end - used):
                return False
            end -= used
            used = 0
        seq = self._seq
        check = crc32(payload, seq ^ kind << 24 ^ batch << 8)  # which masks to 32 bits itself
        buffer = self._buffer
        _pack_head(buffer, used, length, check, seq, kind, batch)
        used += _HEAD_BYTES
        buffer[used : used + length] = payload
        self._used = end
        self._seq = seq + 1
        if (now := monotonic_ns()) >= self._due:
            self._flush(now)
        return True

    def _make_room(self, size: int) -> bool:
        """Write the buffer and read the free space of the ring; False if a record of this size has
        no space and is dropped."""
        if not self.open:
            return False
        now = monotonic_ns()
        if self._used:
            self._flush(now)
        rest = self._capacity - self._write % self._capacity
        skipped = rest if rest < size else 0
        if skipped + size > self._read + self._capacity - self._write:
            self._ask()
        free = self._read + self._capacity - self._write
        if skipped + size > free:
            self._seq += 1
            self._dropped += 1
            if now >= self._due:
                self._flush(now)
            return False
        if skipped:
            self._skip(rest)
            rest, free = self._capacity, free - skipped
        if size > len(self._buffer):
            self._buffer = bytearray(size)
        self._limit = min(len(self._buffer), rest, free)
        return True

    def _ask(self) -> None:
        """The reader's position; an impossible value is ignored."""
        raw = os.pread(self._file, 8, at.W_READ * 8)
        read = int.from_bytes(raw, "little")
        if self._read <= read <= self._write and read & 7 == 0:
            self._read = read

    def _skip(self, rest: int) -> None:
        """Continue at the start of the region; the rest before the end becomes a filler."""
        if rest >= _HEAD_BYTES:
            head = at.HEAD.pack(rest - _HEAD_BYTES, 0, self._seq, at.FILLER, 0)
            os.pwrite(self._file, head, self._offset)
        self._write += rest  # published with the record that follows

    @property
    def _offset(self) -> int:
        """Offset of the buffer's first byte in the file."""
        return at.DATA + self._write % self._capacity

    def flush(self) -> None:
        """Make all pushed records visible. Raises OSError as `push` does."""
        if self.open:
            self._flush(monotonic_ns())

    def _flush(self, now: int) -> None:
        self._due = now + FLUSH_NS
        if now >= self._inspect_at:
            self._inspect_at = now + INSPECT_NS
            self._inspect(now)
        if self._used:
            self._write_out()
        if self._dropped != self._dropped_written:
            self._write_note()
        if self._seq != self._seq_written:
            self._seq_written, self._write_written = self._seq, self._write
            # Data before words. A reader that sees them in another order finds no match, and
            # looks again.
            os.pwrite(self._file, _TWO_WORDS.pack(self._seq, self._write), at.W_SEQ * 8)

    def _write_out(self) -> None:
        """Write the buffer to the file; if the disk refuses it, its records are dropped."""
        used, self._used, self._limit = self._used, 0, self._limit - self._used
        try:
            whole = os.pwrite(self._file, memoryview(self._buffer)[:used], self._offset) == used
        except OSError:
            whole = False
        if whole:
            self._write += used
        else:
            self._dropped = self._dropped_written + self._seq - self._seq_written
            self._limit = 0

    def _write_note(self) -> None:
        self._dropped_written = self._dropped
        self._note = drop_note(self._write, self._seq)
        os.pwrite(self._file, WORD.pack(self._dropped), at.W_DROPPED * 8)
        os.pwrite(self._file, _NOTE.pack(*self._note), at.W_DROP_AT * 8)

    def name_id(self, kind: int, name: str) -> int:
        """The dictionary's id for a name, assigned on first use; 255 if it is full.

        A name is cut to 64 bytes of UTF-8.
        """
        known = self._ids.get((kind, name))
        return known if known is not None else self._add_name(kind, name)

    def _add_name(self, kind: int, name: str) -> int:
        # What a client named: half a surrogate pair is no text, and no fault either.
        text = name.encode(errors="replace")[: at.NAME_BYTES].decode(errors="ignore")
        if (known := self._ids.get((kind, text))) is not None:
            return known
        count = len(self._ids)
        taken = sum(1 for other, _ in self._ids if other == kind)
        if not self.open or count == at.NAMES_MAX or taken == _names_max(kind):
            return OTHER
        entry = name_entry(kind, taken, text)
        os.pwrite(self._file, entry, at.NAMES + count * at.NAME_ENTRY.size)
        os.pwrite(self._file, WORD.pack(count + 1), at.W_NAMES * 8)
        self._ids[kind, text] = taken
        return taken

    @property
    def control_version(self) -> int:
        """Version of the control page: changes with every write; odd during a write.

        One system call of half a microsecond.
        """
        if not self.open:
            return 0
        return int.from_bytes(os.pread(self._file, 8, at.W_CONTROL * 8), "little")

    def control(self) -> tuple[int, str] | None:
        """Version and JSON of the control page; None during a write."""
        before = self.control_version
        if before == 0 or before & 1:
            return None
        raw = os.pread(self._file, 8, at.W_CONTROL_BYTES * 8)
        length = min(int.from_bytes(raw, "little"), at.CONTROL_BYTES)
        text = os.pread(self._file, length, at.CONTROL)
        if self.control_version != before:
            return None
        self._control_seen = before
        return before, text.decode(errors="replace")

    @property
    def dropped(self) -> int:
        """Number of records dropped so far, for lack of space."""
        return self._dropped

    def fault(self, text: str) -> None:
        """Record that the hook has detached itself, with the reason; only the first fault
        counts."""
        if not self.open or self._fault:
            return
        self._fault = text.encode(errors="replace")[: at.FAULT_TEXT_BYTES] or b"unknown"
        os.pwrite(self._file, self._fault, at.FAULT_TEXT)
        os.pwrite(self._file, WORD.pack(len(self._fault)), at.W_FAULT_BYTES * 8)
        os.pwrite(self._file, WORD.pack(1), at.W_FAULT * 8)

    def close(self) -> None:
        """Close the ring, which tells the reader that its tail is complete."""
        if not self.open:
            return
        try:
            self._inspect_at = 0
            self.flush()
            os.pwrite(self._file, WORD.pack(1), at.W_END * 8)
        except OSError as error:  # then its tail is unknown
            log.warning("the ring %s cannot be written: %s", self.path, error.strerror)
        finally:
            self._release()

    def _release(self) -> None:
        self.open = False
        self._used = 0
        self._limit = -1  # what sends `push` to where `open` is looked at
        os.close(self._file)  # in a forked child the parent's lock stays with the parent


def _names_max(kind: int) -> int:
    return CLASSES_MAX if kind == NAME_CLASS else OTHER


def _forget_after_fork(ring: Ring) -> None:
    global _fork_seen
    _living.add(ring)
    if not _fork_seen:
        os.register_at_fork(after_in_child=_forget_all)
        _fork_seen = True


def _forget_all() -> None:
    for ring in list(_living):
        if ring.open:
            ring._release()
