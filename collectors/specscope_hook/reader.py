"""The reader of a ring; `layout` describes the file.

A reader has no state: it takes and returns a cursor, and only `release` frees space. So a restarted
reader continues from its last stored cursor, and may pull unreleased records again.

It trusts no byte of the file. A truncated, overwritten or flipped file gives fewer records, and no
exception other than RingError. One pull does bounded work.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from pathlib import Path
from typing import Any, Self
from zlib import crc32

from specscope_hook import layout as at
from specscope_hook.columns import READABLE_VERSIONS
from specscope_hook.errors import CorruptRing, RingError
from specscope_hook.layout import Cursor, Gap, RawRecord

WINDOW_BYTES = 1 << 20  # read at once
SCAN_BYTES = 8 << 20  # looked through in one pull for a record behind a bad place
_HEAD_BYTES = at.HEAD.size
_ENTRY_BYTES = at.NAME_ENTRY.size
_U64_MAX = (1 << 64) - 1


class RingReader:
    """The reader of one ring file."""

    _FLAGS = os.O_RDWR

    def __init__(self, path: Path, file: int) -> None:
        """Use `open`."""
        self.path = path
        self.damage = ""
        """What is wrong with the file, as of the last pull; its writer mends it while it lives."""
        self.tail_known = True
        """Whether it says how many records there were, as of the last pull."""
        self._file = file
        self._capacity = self._word(at.W_CAPACITY)
        self._window = (0, b"")  # where it begins, and the bytes of the ring from there on
        self._suspect = -1  # position of a record that did not match at the last pull
        self._searched = (-1, -1)  # a bad position, and up to where nothing lies behind it
        self._lost = "ring_full"  # why numbers are missing before the next record

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Open a ring that exists.

        Raises CorruptRing for an invalid file, RingError if it cannot be opened.
        """
        path = Path(path)
        try:
            # A pipe or a device is not even opened: that alone may block or do something.
            if not stat.S_ISREG(os.lstat(path).st_mode):
                raise CorruptRing(f"{path} is not a ring: it is not a regular file")
            file = os.open(path, cls._FLAGS | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            raise RingError(f"cannot open the ring {path}: {error.strerror}") from error
        reader = cls(path, file)
        if reason := reader._not_a_ring():
            reader.close()
            raise CorruptRing(f"{path} is not a ring: {reason}")
        return reader

    def _not_a_ring(self) -> str:
        if reason := self._header_damage(self._words()):
            return reason
        # What a dead writer leaves is read as far as it goes; a living one mends it.
        if (reason := self._cut()) and self.writer_alive:
            return reason
        try:
            known = isinstance(self.boot, dict)
        except (ValueError, RecursionError):
            known = False
        return "" if known else "its boot record cannot be read"

    def _words(self) -> tuple[int, ...]:
        """The header, zeros if it is truncated; read until two readings agree."""
        raw = b""
        for _ in range(4):
            before, raw = raw, self._read(at.WORDS.size, 0)
            if raw == before:
                break
        return at.WORDS.unpack(raw.ljust(at.WORDS.size, b"\0"))

    def _word(self, index: int) -> int:
        return int.from_bytes(self._read(8, index * 8), "little")

    def _read(self, size: int, offset: int) -> bytes:
        """As many of these bytes as the file has. Raises RingError if it cannot be read."""
        try:
            return os.pread(self._file, size, offset)
        except OSError as error:
            raise RingError(f"cannot read the ring {self.path}: {error.strerror}") from error

    def _header_damage(self, words: tuple[int, ...]) -> str:
        if words[at.W_MAGIC] != at.MAGIC:
            return "it does not begin like one"
        if words[at.W_VERSION] not in READABLE_VERSIONS:
            return f"layout {words[at.W_VERSION]}, known are {READABLE_VERSIONS}"
        capacity = words[at.W_CAPACITY]
        if capacity != self._capacity or capacity % at.PAGE or not 0 < capacity <= at.CAPACITY_MAX:
            return f"it cannot have room for {capacity} bytes"
        return ""

    def _cut(self) -> str:
        """Whether the file's size has changed since its creation. Raises RingError."""
        try:
            size = os.fstat(self._file).st_size
        except OSError as error:
            raise RingError(f"cannot read the ring {self.path}: {error.strerror}") from error
        if size == at.DATA + self._capacity:
            return ""
        return f"its size is {size} bytes, not {at.DATA + self._capacity}"

    def _damage(self, words: tuple[int, ...], position: int) -> str:
        """The contradiction between header words; empty if they are plausible.

        position: the reader's position, a lower limit for WRITE, as READ is
        """
        write = words[at.W_WRITE]
        behind = (words[at.W_READ], position)
        if write & 7 or not any(read <= write <= read + self._capacity for read in behind):
            return "its positions contradict each other"
        return self._header_damage(words)

    def pull(self, cursor: Cursor, limit_bytes: int) -> tuple[list[RawRecord], Cursor, list[Gap]]:
        """Records from a cursor, the cursor after them, and the gaps between them.

        limit_bytes: limit of record bytes, heads included; at least one record is returned if there
        is one.

        Without new records it returns ([], cursor, []). A record with a wrong CRC ends the pull; if
        it is still wrong at the next pull, it becomes a gap of reason `corrupt`. A damaged file
        gives nothing while its writer lives, and its readable records after that.

        Raises RingError if the file cannot be read.
        """
        self._window = (0, b"")
        words = self._words()
        position, next_seq = cursor.position, max(cursor.next_seq, at.FIRST_SEQ)
        end, last_seq = words[at.W_WRITE], words[at.W_SEQ]
        damage = self._damage(words, position)
        self.damage = damage or self._cut()
        if self.damage and self.writer_alive:
            return [], cursor, []
        self.tail_known = not damage
        if damage:
            end, last_seq = position + self._capacity, _U64_MAX
        elif position < (read := words[at.W_READ]) <= end and read & 7 == 0:
            position, self._lost = read, "corrupt"
        records: list[RawRecord] = []
        gaps: list[Gap] = []
        stop = position + limit_bytes
        if position == self._searched[0]:
            position, self._lost = self._searched[1], "corrupt"
        while position < end:
            record, after = self._record_at(position, end, next_seq, last_seq)
            if record is None and after == position:
                if position not in (self._suspect, self._searched[1]):
                    self._suspect = position
                    break
                bad, self._lost = position, "corrupt"
                position, whole = self._resume_after(bad, end, next_seq, last_seq)
                if not whole:  # more than one pull may look through
                    bad = self._searched[0] if bad == self._searched[1] else bad
                    self._searched = (bad, position)
                    break
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
        if position >= end and not damage:
            next_seq = self._tail(position, next_seq, gaps)
        self._window = (0, b"")
        return records, Cursor(position, next_seq), gaps

    def _at(self, position: int, size: int) -> tuple[bytes, int]:
        """Bytes of the ring, and the offset of a position in them; fewer than `size` if cut."""
        begins, data = self._window
        offset = position - begins
        if offset >= 0 and offset + size <= len(data):
            return data, offset
        index = position % self._capacity
        wanted = min(max(size, WINDOW_BYTES), self._capacity - index)
        data = self._read(wanted, at.DATA + index)
        self._window = (position, data)
        return data, 0

    def _record_at(
        self, position: int, end: int, next_seq: int, last_seq: int
    ) -> tuple[RawRecord | None, int]:
        """The record at a position and the position after it.

        (None, later) for a filler. (None, position) for an untrusted record: incomplete, from an
        earlier lap, or with an impossible number.
        """
        rest = self._capacity - position % self._capacity
        if rest < _HEAD_BYTES:
            return None, position + rest
        data, offset = self._at(position, _HEAD_BYTES)
        if len(data) - offset < _HEAD_BYTES:
            return None, position
        length, check, seq, kind, batch = at.HEAD.unpack_from(data, offset)
        if not next_seq <= seq <= last_seq:
            return None, position
        if kind == at.FILLER and length == rest - _HEAD_BYTES:
            return None, position + rest
        size = _HEAD_BYTES + length
        after = position + at.aligned(size)
        if size > rest or after > end:
            return None, position
        data, offset = self._at(position, size)
        payload = data[offset + _HEAD_BYTES : offset + size]
        if crc32(payload, (seq ^ kind << 24 ^ batch << 8) & 0xFFFFFFFF) != check:
            return None, position
        return RawRecord(seq, kind, batch, payload), after

    def _resume_after(
        self, position: int, end: int, next_seq: int, last_seq: int
    ) -> tuple[int, bool]:
        """The first position after a bad one with a plausible record or the end.

        False with it if the search stopped without finding either.
        """
        later, stop = position + 8, min(end, position + SCAN_BYTES)
        while later < stop:
            rest = self._capacity - later % self._capacity
            if rest < _HEAD_BYTES:
                later += rest
                continue
            data, offset = self._at(later, min(rest, WINDOW_BYTES))
            looked = min(len(data) - offset, stop - later + _HEAD_BYTES, rest) // 8 * 8
            if looked < _HEAD_BYTES:
                return end, True  # the file was cut here
            if data.count(0, offset, offset + looked) == looked:
                later += looked - (_HEAD_BYTES - 8)
                continue
            numbers = memoryview(data)[offset : offset + looked].cast("Q")
            for place, seq in enumerate(numbers[1:-1]):
                if next_seq <= seq < last_seq:
                    candidate = later + 8 * place
                    record, _ = self._record_at(candidate, end, next_seq, last_seq)
                    if record is not None and record.kind in (at.ROUND, at.REQUEST):
                        return candidate, True
            later += looked - (_HEAD_BYTES - 8)
        return (end, True) if later >= end else (later, False)

    def _tail(self, position: int, next_seq: int, gaps: list[Gap]) -> int:
        """The next number after dropped or unreadable records at the ring's tail."""
        words = self._words()
        if words[at.W_SEQ] <= next_seq:
            return next_seq
        dropped_at, seq, check = words[at.W_DROP_AT], words[at.W_DROP_SEQ], words[at.W_DROP_CHECK]
        if check != at.drop_check(dropped_at, seq) or dropped_at != position:
            if self.writer_alive:  # then the note is being written, or more records are
                return next_seq
            if words[at.W_WRITE] != position:  # it wrote on after we looked, and ended: not yet
                return next_seq
            if not _believable(words):
                self.tail_known = False
                return next_seq
            seq = words[at.W_SEQ]
        if seq > next_seq:
            gaps.append(Gap(next_seq, seq - next_seq, self._lost))
            self._lost = "ring_full"
        return max(seq, next_seq)

    def release(self, cursor: Cursor) -> None:
        """Release the space up to a cursor to the writer; its records can no longer be pulled.

        A cursor ahead of the writer belongs to another ring, and releases nothing.
        """
        words = self._words()
        read, write = words[at.W_READ], words[at.W_WRITE]
        if cursor.position <= write and (read < cursor.position or read > write):
            self._write(at.W_READ * 8, cursor.position.to_bytes(8, "little"))

    def _write(self, offset: int, data: bytes) -> None:
        try:
            if not self._cut():  # a write would make it larger, and look like its writer's
                os.pwrite(self._file, data, offset)
        except OSError as error:
            raise RingError(f"cannot write to the ring {self.path}: {error.strerror}") from error

    @property
    def boot(self) -> dict[str, Any]:
        """The boot record. Raises ValueError if it is invalid."""
        length = min(self._word(at.W_BOOT_BYTES), at.BOOT_BYTES)
        text, check = self._read(length, at.BOOT), self._word(at.W_BOOT_CHECK)
        if check not in (0, at.boot_check(text)):
            raise ValueError("it does not match its check")
        boot: dict[str, Any] = json.loads(text)
        return boot

    def names(self, kind: int) -> dict[int, str]:
        """The dictionary of one kind: name by id.

        Raises RingError for a damaged entry that a living writer will repair; damaged entries of a
        dead writer are left out.
        """
        names: dict[int, str] = {}
        count = min(self._word(at.W_NAMES), at.NAMES_MAX)
        raw = self._read(at.NAMES_MAX * _ENTRY_BYTES, at.NAMES)
        entries = at.NAME_ENTRY.iter_unpack(raw[: len(raw) // _ENTRY_BYTES * _ENTRY_BYTES])
        for place, (its_kind, id_, length, check, text) in enumerate(entries):
            name = text[:length]
            whole = check == at.name_check(its_kind, id_, name) or (check == 0 and place < count)
            if place >= count and not whole:  # a count that is too low hides no name
                break
            if not whole and self.writer_alive:
                raise RingError(f"the ring {self.path} has a damaged name in its dictionary")
            if whole and its_kind == kind and length:
                names.setdefault(id_, name.decode(errors="replace"))
        return names

    @property
    def writer_alive(self) -> bool:
        """Whether the ring's writer still runs."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._file, fcntl.LOCK_UN)
        return False

    @property
    def in_place(self) -> bool:
        """Whether its file is still the one under its name."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._file))
        except OSError:
            return False

    @property
    def replaced(self) -> bool:
        """Whether the writer has recreated the file under its name."""
        try:
            return not os.path.samestat(os.stat(self.path), os.fstat(self._file))
        except OSError:
            return False

    @property
    def ended(self) -> bool:
        """Whether the writer closed the ring."""
        return self._word(at.W_END) == 1

    @property
    def fault_text(self) -> str:
        """The reason for a detached hook; empty otherwise."""
        if self._word(at.W_FAULT) != 1:
            return ""
        length = min(self._word(at.W_FAULT_BYTES), at.FAULT_TEXT_BYTES)
        return self._read(length, at.FAULT_TEXT).decode(errors="replace") or "unknown"

    @property
    def dropped(self) -> int:
        """Number of records that the writer dropped for lack of space."""
        return self._word(at.W_DROPPED)

    @property
    def next_seq(self) -> int:
        """The number of the next record that the writer will write or drop."""
        return self._word(at.W_SEQ)

    @property
    def control_text(self) -> str:
        """The JSON on the control page; empty if there is none."""
        version, length = self._word(at.W_CONTROL), self._word(at.W_CONTROL_BYTES)
        if version == 0 or version & 1:
            return ""
        return self._read(min(length, at.CONTROL_BYTES), at.CONTROL).decode(errors="replace")

    def control_write(self, text: str) -> None:
        """Write a policy's JSON to the control page, which the hook reads at its next round.

        Raises RingError if it is longer than the page, or cannot be written.
        """
        raw = text.encode()
        if len(raw) > at.CONTROL_BYTES:
            raise RingError(f"a policy of {len(raw)} bytes; the page holds {at.CONTROL_BYTES}")
        version = (self._word(at.W_CONTROL) | 1) & _U64_MAX >> 1
        self._write(at.W_CONTROL * 8, version.to_bytes(8, "little"))
        self._write(at.CONTROL, raw)
        self._write(at.W_CONTROL_BYTES * 8, len(raw).to_bytes(8, "little"))
        self._write(at.W_CONTROL * 8, (version + 1).to_bytes(8, "little"))

    def close(self) -> None:
        """Close the ring; the file stays."""
        os.close(self._file)


def _believable(words: tuple[int, ...]) -> bool:
    """Whether this number of records is possible."""
    most = words[at.W_WRITE] // _HEAD_BYTES + words[at.W_DROPPED]
    return words[at.W_SEQ] - at.FIRST_SEQ <= most
