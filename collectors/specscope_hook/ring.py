"""The writing end of a ring: one process, one thread, never blocks, never grows.

`layout` says what lies where; `reader` is the other end. The file is allocated whole
before it is mapped, since touching an unbacked page of a mapping kills the process. The
writer holds a lock on the file for life, which is how the reader sees, across containers,
whether it lives. After a fork the child has no ring: a ring has one writer.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import weakref
from dataclasses import asdict
from pathlib import Path
from zlib import crc32

from specscope_hook import layout as at
from specscope_hook.columns import SCHEMA_VERSION
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

_HEAD_BYTES = at.HEAD.size
_pack_head = at.HEAD.pack_into
_W_SEQ, _W_WRITE = at.W_SEQ, at.W_WRITE
_living: weakref.WeakSet[Ring] = weakref.WeakSet()
_fork_seen = False


class Ring:
    """The writer of one ring file."""

    def __init__(self, path: Path, file: int, capacity: int) -> None:
        """Use `create`."""
        self.path = path
        self._file = file
        self._map = mmap.mmap(file, at.DATA + capacity)
        self._words = memoryview(self._map)[: at.WORDS_BYTES].cast("Q")
        self._capacity = capacity
        # The writer's own words, kept beside the map: reading them back costs more.
        self._seq = at.FIRST_SEQ
        self._write = 0
        self._offset = at.DATA  # in the file, of the next record
        self._room = at.DATA + capacity  # up to here it needs to ask nobody
        self._ids: dict[tuple[int, str], int] = {}
        self.open = True

    @classmethod
    def create(cls, path: Path | str, boot: Boot, capacity_bytes: int) -> Ring:
        """Make the file, allocated, locked and with its header, and only then let it be seen.

        capacity_bytes: of the data region; rounded up to a whole page, at least one.

        Raises RingError with the reason where it cannot be made; nothing is left behind.
        """
        path = Path(path)
        capacity = max(1, -(-capacity_bytes // at.PAGE)) * at.PAGE
        text = json.dumps(asdict(boot), separators=(",", ":")).encode()
        if len(text) > at.BOOT_BYTES:
            raise RingError(f"the boot record takes {len(text)} bytes, {at.BOOT_BYTES} are kept")
        new = path.with_name(path.name + ".new")
        try:
            file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o660)
        except OSError as error:
            raise RingError(f"cannot make a ring in {path.parent}: {error.strerror}") from error
        try:
            os.fchmod(file, 0o660)  # whatever the umask: the sidecar may be another user
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.posix_fallocate(file, 0, at.DATA + capacity)
            ring = cls(path, file, capacity)
            ring._begin(text)
            os.rename(new, path)
        except (OSError, ValueError) as error:
            os.close(file)
            os.unlink(new)
            raise RingError(f"cannot make a ring of {capacity} bytes: {error}") from error
        _forget_after_fork(ring)
        return ring

    def _begin(self, boot: bytes) -> None:
        self._map[at.BOOT : at.BOOT + len(boot)] = boot
        words = self._words
        words[at.W_BOOT_BYTES] = len(boot)
        words[at.W_CAPACITY] = self._capacity
        words[at.W_SEQ] = at.FIRST_SEQ
        words[at.W_VERSION] = SCHEMA_VERSION
        words[at.W_MAGIC] = at.MAGIC

    # HOT PATH. Once per record. No lock, no system call, nothing that outlives the call.
    def push(self, kind: int, payload: bytes, batch: int = 0) -> bool:
        """Write one record; False where it was dropped, which spends its number too.

        Only the engine's thread may call it.
        """
        length = len(payload)
        size = (_HEAD_BYTES + length + 7) & ~7
        offset = self._offset
        if offset + size > self._room:
            offset = self._make_room(size)
            if not offset:
                return False
        data, seq = self._map, self._seq
        check = crc32(payload, (seq ^ kind << 24 ^ batch << 8) & 0xFFFFFFFF)
        _pack_head(data, offset, length, check, seq, kind, batch)
        data[offset + _HEAD_BYTES : offset + _HEAD_BYTES + length] = payload
        self._offset = offset + size
        # One store each through the cast view: pack_into could write a word byte by byte.
        words = self._words
        words[_W_WRITE] = self._write = self._write + size
        words[_W_SEQ] = self._seq = seq + 1
        return True

    def _make_room(self, size: int) -> int:
        """Where in the file a record of this size goes now; 0 where there is no space for it.

        Asks how far the reader has come, and goes back to the start where the end is too near.
        """
        if not self.open:
            return 0
        words, offset = self._words, self._offset
        rest = at.DATA + self._capacity - offset
        wraps = rest < size
        free = words[at.W_READ] + self._capacity - self._write
        if (rest if wraps else 0) + size > free:
            self._drop()
            return 0
        if wraps:
            if rest >= _HEAD_BYTES:
                length = rest - _HEAD_BYTES
                at.HEAD.pack_into(self._map, offset, length, 0, self._seq, at.FILLER, 0)
            self._write += rest  # published with the record that follows
            offset, free = at.DATA, free - rest
        self._room = min(at.DATA + self._capacity, offset + free)
        return offset

    def _drop(self) -> None:
        """Spend a number, and leave the drop note."""
        words = self._words
        self._seq = words[at.W_SEQ] = self._seq + 1
        words[at.W_DROPPED] += 1
        words[at.W_DROP_AT] = self._write
        words[at.W_DROP_SEQ] = self._seq
        words[at.W_DROP_CHECK] = at.drop_check(self._write, self._seq)

    def name_id(self, kind: int, name: str) -> int:
        """The dictionary's id for a name, given on first sight; 255 where it is full.

        A name is cut to 64 bytes of UTF-8.
        """
        known = self._ids.get((kind, name))
        return known if known is not None else self._add_name(kind, name)

    def _add_name(self, kind: int, name: str) -> int:
        # What a client named: half a surrogate pair is no text, and no fault either.
        text = name.encode(errors="replace")[: at.NAME_BYTES].decode(errors="ignore")
        if (known := self._ids.get((kind, text))) is not None:
            return known
        count = self._words[at.W_NAMES]
        taken = sum(1 for other, _ in self._ids if other == kind)
        if not self.open or count == at.NAMES_MAX or taken == _names_max(kind):
            return OTHER
        raw = text.encode()
        offset = at.NAMES + count * at.NAME_ENTRY.size
        at.NAME_ENTRY.pack_into(self._map, offset, kind, taken, len(raw), raw)
        self._words[at.W_NAMES] = count + 1
        self._ids[kind, text] = taken
        return taken

    @property
    def control_version(self) -> int:
        """Of the control page: changes with every write; odd while one is under way."""
        return self._words[at.W_CONTROL] if self.open else 0

    def control(self) -> tuple[int, str] | None:
        """Version and JSON of the control page; None while it is being written."""
        before = self.control_version
        if before == 0 or before & 1:
            return None
        length = min(self._words[at.W_CONTROL_BYTES], at.CONTROL_BYTES)
        raw = bytes(self._map[at.CONTROL : at.CONTROL + length])
        if self.control_version != before:
            return None
        return before, raw.decode(errors="replace")

    @property
    def dropped(self) -> int:
        """Records dropped so far because the ring was full."""
        return self._words[at.W_DROPPED] if self.open else 0

    def fault(self, text: str) -> None:
        """Say that the hook has detached itself, and why; the first fault is the last."""
        if not self.open or self._words[at.W_FAULT]:
            return
        raw = text.encode(errors="replace")[: at.FAULT_TEXT_BYTES]
        self._map[at.FAULT_TEXT : at.FAULT_TEXT + len(raw)] = raw
        self._words[at.W_FAULT_BYTES] = len(raw)
        self._words[at.W_FAULT] = 1

    def close(self) -> None:
        """End the ring on purpose: the reader then knows that its tail is whole."""
        if not self.open:
            return
        self._words[at.W_END] = 1
        self._release()

    def _release(self) -> None:
        self.open = False
        self._room = -1  # what sends `push` to where `open` is looked at
        self._words.release()
        self._map.close()
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
