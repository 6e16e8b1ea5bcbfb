"""Read complete lines of a growing log file, across rotation."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

CHUNK_BYTES = 1 << 20
LONGEST_LINE = 1 << 16
"""A longer line is no line of a server's log; it is given in pieces."""


class LogFile:
    """Continue from the last position; for one reader.

    anew: number of times that the file was truncated or replaced
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
        """Up to a chunk of lines, each with the offset after it; none without new lines.

        Raises OSError if the file cannot be opened or read.
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
        """Time of the last write to the file, ns since 1970."""
        return os.fstat(self._file).st_mtime_ns

    def rewind(self, offset: int) -> None:
        """Continue from an offset."""
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
        """Whether the file was truncated or replaced; then it is read from 0."""
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
    """Offset of the last line that `starts` accepts; 0 if there is none. Reads to the end."""
    last = 0
    while chunk := log.chunk():
        for at, line in chunk:
            if starts(line):
                last = at - len(line) - 1
    return max(last, 0)
