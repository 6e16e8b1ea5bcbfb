"""Whole lines of a file that another process appends to, across rotation."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

CHUNK_BYTES = 1 << 20
LONGEST_LINE = 1 << 16
"""A longer line is no line of a server's log; it is given in pieces."""


class LogFile:
    """Reads on from where it was; one reader.

    anew: how often the file was found cut or replaced
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.anew = 0
        self.identity = (0, 0)
        """Device and inode of what is being read."""
        self.cut = False
        """Whether the file was last begun anew because it was cut, its writer living on."""
        self._file = -1
        self._offset = 0
        self._tail = b""

    def chunk(self) -> list[tuple[int, bytes]]:
        """Up to a chunk of lines, each with the offset behind it; none where nothing is new.

        Raises OSError when the file cannot be opened or read.
        """
        if self._file < 0 and not self._open():
            return []
        raw = self._read()
        if not raw and self._begun_anew():
            raw = self._read()
        at = self._offset - len(self._tail)
        self._offset += len(raw)
        lines = (self._tail + raw).split(b"\n")
        self._tail = lines.pop()
        if len(self._tail) > LONGEST_LINE:
            lines.append(self._tail)
            self._tail = b""
        ends = []
        for line in lines:
            at = min(at + len(line) + 1, self._offset)
            ends.append((at, line))
        return ends

    def written_at(self) -> int:
        """When the file was last written to, ns since 1970."""
        return os.fstat(self._file).st_mtime_ns

    def rewind(self, offset: int) -> None:
        """Read on from an offset."""
        self._offset, self._tail = offset, b""

    def _read(self) -> bytes:
        return os.pread(self._file, CHUNK_BYTES, self._offset)

    def _open(self) -> bool:
        try:
            self._file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return False  # the engine may be late
        status = os.fstat(self._file)
        self.identity = status.st_dev, status.st_ino
        self.rewind(0)
        return True

    def _begun_anew(self) -> bool:
        """Whether the file was cut, or another lies under its name; it is then read from 0."""
        if os.fstat(self._file).st_size < self._offset:
            self.cut = True
            self.rewind(0)
        else:
            try:
                status = os.stat(self.path)
            except FileNotFoundError:
                return False
            if (status.st_dev, status.st_ino) == self.identity:
                return False
            self.close()
            self.cut = False
            if not self._open():
                return False
        self.anew += 1
        return True

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def last_start(log: LogFile, starts: Callable[[bytes], bool]) -> int:
    """Offset of the last line that `starts` knows; 0 if there is none. Reads to the end."""
    last = 0
    while chunk := log.chunk():
        for at, line in chunk:
            if starts(line):
                last = at - len(line) - 1
    return max(last, 0)
