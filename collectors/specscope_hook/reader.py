"""The reading end of a ring; what lies where is in `layout`.

A reader keeps nothing: a cursor goes in and comes out, and only `release` gives space
back. So a reader that died continues from the last cursor that it stored, and may pull
again what it had not released.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
from pathlib import Path
from typing import Any, Self
from zlib import crc32

from specscope_hook import layout as at
from specscope_hook.columns import SCHEMA_VERSION
from specscope_hook.errors import CorruptRing, RingError
from specscope_hook.layout import Cursor, Gap, RawRecord

_HEAD_BYTES = at.HEAD.size


class RingReader:
    """The reader of one ring file."""

    _OPENED, _MAPPED = os.O_RDWR, mmap.ACCESS_WRITE

    def __init__(self, path: Path, file: int, mapped: mmap.mmap) -> None:
        """Use `open`."""
        self.path = path
        self._file = file
        self._map = mapped
        self._words = memoryview(mapped)[: at.WORDS_BYTES].cast("Q")
        self._capacity: int = self._words[at.W_CAPACITY]
        self._suspect = -1  # position of a record that did not match at the last pull
        self._lost = "ring_full"  # why numbers are missing before the next record

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Map a ring that exists.

        Raises CorruptRing where it is not one, RingError where it cannot be opened.
        """
        path = Path(path)
        try:
            file = os.open(path, cls._OPENED | os.O_CLOEXEC)
        except OSError as error:
            raise RingError(f"cannot open the ring {path}: {error.strerror}") from error
        size = os.fstat(file).st_size
        if size < at.DATA + at.PAGE:
            os.close(file)
            raise CorruptRing(f"{path} is not a ring: {size} bytes are too few")
        reader = cls(path, file, mmap.mmap(file, size, access=cls._MAPPED))
        if reason := reader._mismatch(size):
            reader.close()
            raise CorruptRing(f"{path} is not a ring: {reason}")
        return reader

    def _mismatch(self, size: int) -> str:
        words = self._words
        if words[at.W_MAGIC] != at.MAGIC:
            return "it does not begin like one"
        if words[at.W_VERSION] != SCHEMA_VERSION:
            return f"layout {words[at.W_VERSION]}, known is {SCHEMA_VERSION}"
        if words[at.W_CAPACITY] != size - at.DATA or words[at.W_CAPACITY] % at.PAGE:
            return "its size does not match its header"
        if not words[at.W_READ] <= words[at.W_WRITE] <= words[at.W_READ] + self._capacity:
            return "its positions contradict each other"
        try:
            known = isinstance(self.boot, dict)
        except ValueError:
            known = False
        return "" if known else "its boot record cannot be read"

    def pull(self, cursor: Cursor, limit_bytes: int) -> tuple[list[RawRecord], Cursor, list[Gap]]:
        """Records from a cursor on, the cursor after them, and what is lost between them.

        limit_bytes: of records, heads included; at least one record comes if there is one.

        Nothing new gives ([], cursor, []). A record that does not match its check ends the
        pull; if it still does not at the next pull, it is a gap of reason `corrupt`.
        """
        end = self._words[at.W_WRITE]
        position, next_seq = cursor
        records: list[RawRecord] = []
        gaps: list[Gap] = []
        if position < self._words[at.W_READ]:
            position, self._lost = self._words[at.W_READ], "corrupt"
        stop = position + limit_bytes
        while position < end:
            record, after = self._record_at(position, end, next_seq)
            if record is None and after == position:
                if self._suspect != position:
                    self._suspect = position
                    break
                position, self._lost = self._resume_after(position, end, next_seq), "corrupt"
                continue
            if record is not None:
                if records and after > stop:
                    break
                if record.seq > next_seq:
                    gaps.append(Gap(next_seq, record.seq - next_seq, self._lost))
                next_seq = record.seq + 1
                self._lost = "ring_full"
                records.append(record)
            position = after
        if position >= end:
            next_seq = self._tail(position, next_seq, gaps)
        return records, Cursor(position, next_seq), gaps

    def _record_at(self, position: int, end: int, next_seq: int) -> tuple[RawRecord | None, int]:
        """The record at a position and the position after it.

        (None, later) for a filler, (None, position) where nothing there can be trusted: not
        whole, or whole but from a lap ago, or with a number that was never given.
        """
        index = position % self._capacity
        rest = self._capacity - index
        if rest < _HEAD_BYTES:
            return None, position + rest
        offset = at.DATA + index
        length, check, seq, kind, batch = at.HEAD.unpack_from(self._map, offset)
        # SEQ is published behind WRITE, so that what lies below `end` is at most at SEQ.
        if not next_seq <= seq <= self._words[at.W_SEQ]:
            return None, position
        if kind == at.FILLER and length == rest - _HEAD_BYTES:
            return None, position + rest
        after = position + at.aligned(_HEAD_BYTES + length)
        if _HEAD_BYTES + length > rest or after > end:
            return None, position
        payload = self._map[offset + _HEAD_BYTES : offset + _HEAD_BYTES + length]
        if crc32(payload, (seq ^ kind << 24 ^ batch << 8) & 0xFFFFFFFF) != check:
            return None, position
        return RawRecord(seq, kind, batch, payload), after

    def _resume_after(self, position: int, end: int, next_seq: int) -> int:
        """The first position after a bad one at which a believable record or the end lies."""
        last = self._words[at.W_SEQ]
        for later in range(position + 8, end, 8):
            record, _ = self._record_at(later, end, next_seq + 1)
            if record is not None and record.seq < last and record.kind in (1, 2):
                return later
        return end

    def _tail(self, position: int, next_seq: int, gaps: list[Gap]) -> int:
        """The next number after what was dropped, or could not be read, at the ring's tail."""
        words = self._words
        if words[at.W_SEQ] <= next_seq:
            return next_seq
        dropped_at, seq, check = words[at.W_DROP_AT], words[at.W_DROP_SEQ], words[at.W_DROP_CHECK]
        if check != at.drop_check(dropped_at, seq) or dropped_at != position:
            if self.writer_alive:  # then the note is being written, or more records are
                return next_seq
            if words[at.W_WRITE] != position:  # it wrote on after we looked, and ended: not yet
                return next_seq
            seq = words[at.W_SEQ]
        if seq > next_seq:
            gaps.append(Gap(next_seq, seq - next_seq, self._lost))
            self._lost = "ring_full"
        return max(seq, next_seq)

    def release(self, cursor: Cursor) -> None:
        """Give the writer the space up to a cursor; it can then not be pulled again.

        A cursor that lies ahead of the writer is none of this ring, and gives nothing.
        """
        if self._words[at.W_READ] < cursor.position <= self._words[at.W_WRITE]:
            self._words[at.W_READ] = cursor.position

    @property
    def boot(self) -> dict[str, Any]:
        """The Boot record as its writer put it."""
        length = min(self._words[at.W_BOOT_BYTES], at.BOOT_BYTES)
        read: dict[str, Any] = json.loads(self._map[at.BOOT : at.BOOT + length])
        return read

    def names(self, kind: int) -> dict[int, str]:
        """The dictionary of one kind: name by id."""
        found: dict[int, str] = {}
        for entry in range(min(self._words[at.W_NAMES], at.NAMES_MAX)):
            offset = at.NAMES + entry * at.NAME_ENTRY.size
            its_kind, id_, length, raw = at.NAME_ENTRY.unpack_from(self._map, offset)
            if its_kind == kind:
                found[id_] = raw[:length].decode(errors="replace")
        return found

    @property
    def writer_alive(self) -> bool:
        """Whether the process that made the ring still holds it."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._file, fcntl.LOCK_UN)
        return False

    @property
    def ended(self) -> bool:
        """Whether the writer closed the ring on purpose."""
        return bool(self._words[at.W_END])

    @property
    def fault_text(self) -> str:
        """Why the hook detached itself; empty where it did not."""
        if not self._words[at.W_FAULT]:
            return ""
        length = min(self._words[at.W_FAULT_BYTES], at.FAULT_TEXT_BYTES)
        text = self._map[at.FAULT_TEXT : at.FAULT_TEXT + length].decode(errors="replace")
        return text or "unknown"

    @property
    def dropped(self) -> int:
        """Records that the writer dropped because the ring was full."""
        return int(self._words[at.W_DROPPED])

    @property
    def next_seq(self) -> int:
        """The number of the next record that the writer will write or drop."""
        return int(self._words[at.W_SEQ])

    def control_write(self, text: str) -> None:
        """Put a policy's JSON on the control page, where the hook sees it at its next round.

        Raises RingError where it is longer than the page.
        """
        raw = text.encode()
        if len(raw) > at.CONTROL_BYTES:
            raise RingError(f"a policy of {len(raw)} bytes; the page holds {at.CONTROL_BYTES}")
        words = self._words
        version = words[at.W_CONTROL] | 1
        words[at.W_CONTROL] = version
        self._map[at.CONTROL : at.CONTROL + len(raw)] = raw
        words[at.W_CONTROL_BYTES] = len(raw)
        words[at.W_CONTROL] = version + 1

    def close(self) -> None:
        """Unmap the ring; the file stays."""
        self._words.release()
        self._map.close()
        os.close(self._file)
