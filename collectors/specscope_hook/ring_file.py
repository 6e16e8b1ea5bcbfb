"""The file of a ring on the writer's side: create, check and repair.

Anybody may truncate, replace, delete or overwrite the file at any time. The writer knows enough to
write the header again, so no damage to the file stops it.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
from pathlib import Path
from struct import Struct

from specscope_hook import layout as at
from specscope_hook.columns import SCHEMA_VERSION

log = logging.getLogger("specscope")

COMPLAINT_NS = 60_000_000_000
WORD = Struct("<Q")


class RingFile:
    """The writer's copy of the header's values."""

    def __init__(self, path: Path, file: int, capacity: int, boot: bytes) -> None:
        """capacity: bytes of the data region; boot: the Boot record as JSON"""
        self.path = path
        self._file = file
        self._capacity = capacity
        self._boot = boot
        self._limit = 0  # up to here the buffer may be filled: the reader gave as much space
        self._seq_written = at.FIRST_SEQ
        self._write = self._write_written = 0  # position of the buffer's first byte
        self._read = 0  # as last seen
        self._dropped_written = 0
        self._note = (0, 0, 0)
        self._fault = b""
        self._ids: dict[tuple[int, str], int] = {}
        self._control_seen = 0
        self._complain_at = 0

    def _make_file(self, *, allocate: bool) -> None:
        """Create and lock a new file under our name, with the known header. Raises OSError.

        allocate: allocate its space now, and fail if there is none.
        """
        new = self.path.with_name(self.path.name + ".new")
        # Private, but for a sidecar of another user that shares the folder by its group.
        shared = self.path.parent.stat().st_mode & stat.S_IWGRP
        file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(file, 0o660 if shared else 0o600)  # whatever the umask
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if allocate:
                os.posix_fallocate(file, 0, at.DATA + self._capacity)
            self._write_all(file)
            os.rename(new, self.path)
        except (OSError, OverflowError):
            os.close(file)
            os.unlink(new)
            raise
        old, self._file = self._file, file
        if old >= 0:
            os.close(old)

    def _write_all(self, file: int) -> None:
        """Write size and header, and give up all earlier records. Raises OSError."""
        self._read = self._write_written = self._write
        if self._write:  # what a reader had not read yet is missing from here on
            self._note = drop_note(self._write, self._seq_written)
        os.ftruncate(file, at.DATA + self._capacity)
        os.pwrite(file, self._pages(), at.FAULT_TEXT)
        words = list(self._words())
        words[at.W_READ] = self._read
        words[at.W_CONTROL] = self._control_seen
        os.pwrite(file, at.WORDS.pack(*words), 0)

    def _words(self) -> tuple[int, ...]:
        """The correct header, with 0 for the reader's words."""
        words = [0] * (at.W_BOOT_CHECK + 1)
        words[at.W_MAGIC], words[at.W_VERSION] = at.MAGIC, SCHEMA_VERSION
        words[at.W_CAPACITY], words[at.W_BOOT_BYTES] = self._capacity, len(self._boot)
        words[at.W_SEQ], words[at.W_WRITE] = self._seq_written, self._write_written
        words[at.W_DROPPED], words[at.W_NAMES] = self._dropped_written, len(self._ids)
        words[at.W_FAULT], words[at.W_FAULT_BYTES] = int(bool(self._fault)), len(self._fault)
        words[at.W_DROP_AT], words[at.W_DROP_SEQ], words[at.W_DROP_CHECK] = self._note
        words[at.W_BOOT_CHECK] = at.boot_check(self._boot)
        return tuple(words)

    def _pages(self) -> bytes:
        """The writer's pages after the words: fault text, boot, dictionary."""
        pages = bytearray(at.NAMES + len(self._ids) * at.NAME_ENTRY.size - at.FAULT_TEXT)
        boot = at.BOOT - at.FAULT_TEXT
        pages[: len(self._fault)] = self._fault
        pages[boot : boot + len(self._boot)] = self._boot
        for entry, ((kind, name), id_) in enumerate(self._ids.items()):
            offset = at.NAMES - at.FAULT_TEXT + entry * at.NAME_ENTRY.size
            pages[offset : offset + at.NAME_ENTRY.size] = name_entry(kind, id_, name)
        return bytes(pages)

    def _inspect(self, now: int) -> None:
        """Repair damage to the file. Raises OSError if its header cannot be written."""
        try:
            named = os.path.samestat(os.stat(self.path), os.fstat(self._file))
        except OSError:
            named = False
        if not named:
            try:
                self._make_file(allocate=False)
            except OSError as error:  # a reader that holds the old file still gets all
                self._complain(now, f"was deleted and cannot be made anew: {error.strerror}")
                return
            self._limit = 0
            self._complain(now, "was deleted or replaced, and is made anew")
            return
        ours = self._words()
        head = os.pread(self._file, at.WORDS.size, 0)
        words = at.WORDS.unpack(head.ljust(at.WORDS.size, b"\0"))
        changed = sum(words[i] != ours[i] for i in at.WRITER_WORDS)
        changed += not self._read <= words[at.W_READ] <= self._write
        if os.fstat(self._file).st_size != at.DATA + self._capacity or changed > 2:
            self._write_all(self._file)
            self._limit = 0
            self._complain(now, "was cut or overwritten, and is made anew")
            return
        pages = self._pages()
        if changed or os.pread(self._file, len(pages), at.FAULT_TEXT) != pages:
            os.pwrite(self._file, pages, at.FAULT_TEXT)
            for index in at.WRITER_WORDS:
                os.pwrite(self._file, WORD.pack(ours[index]), index * 8)
            if not self._read <= words[at.W_READ] <= self._write:
                os.pwrite(self._file, WORD.pack(self._read), at.W_READ * 8)
            self._complain(now, "had its header changed, which is mended")

    def _complain(self, now: int, what: str) -> None:
        if now >= self._complain_at:
            self._complain_at = now + COMPLAINT_NS
            log.warning("the ring %s %s", self.path, what)


def name_entry(kind: int, id_: int, name: str) -> bytes:
    """An entry of the dictionary, see `layout`."""
    raw = name.encode()
    return at.NAME_ENTRY.pack(kind, id_, len(raw), at.name_check(kind, id_, raw), raw)


def drop_note(position: int, seq: int) -> tuple[int, int, int]:
    """A drop note, see `layout`."""
    return position, seq, at.drop_check(position, seq)
