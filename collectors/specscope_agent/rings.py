"""The rings of a directory: find, open, and remove each after all of its records are stored."""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import struct
import time
from dataclasses import dataclass
from pathlib import Path

from specscope_agent.loss import rows_table
from specscope_agent.origin import Origin
from specscope_agent.source import Source
from specscope_hook import layout
from specscope_hook.columns import READABLE_VERSIONS
from specscope_hook.errors import CorruptRing, RingError
from specscope_hook.ring import RingReader

log = logging.getLogger("specscope.agent")

RETRY_S = 2.0  # before a file that is no ring is looked at again: its writer may mend it
UNFINISHED_S = 60.0  # before a ring that was never finished, or is damaged, is given up
ABSENT_S = 600.0  # between two complaints that there is no such directory: the engine may be late


@dataclass(slots=True)
class OpenRing:
    """A ring being drained."""

    reader: RingReader
    source: Source
    origin: Origin
    quiet: int = 0
    """Pulls in a row that brought nothing although the writer was already gone."""
    adrift_since: float | None = None
    """Steady time when its file was first found to be gone, or another one; None before."""

    @property
    def path(self) -> Path:
        return self.reader.path


class Rings:
    """The rings of one directory, by path."""

    def __init__(self, folder: Path | None) -> None:
        """folder: None for no rings at all"""
        self.folder = folder
        self._lock_file = -1
        self._complain_at = 0.0
        self.ours = True
        """Whether no other sidecar drains the directory, as of the last look."""
        self._open: dict[Path, OpenRing] = {}
        self._refused: dict[Path, tuple[str, float]] = {}
        self._damaged_at: dict[Path, float] = {}

    @property
    def refused(self) -> int:
        """Files `*.ring` that cannot be drained."""
        return len(self._refused)

    def give_up_damaged(self) -> list[Source]:
        """Set aside, as `.damaged`, each ring that was unreadable for a minute and that no process
        holds. Returns their sources, which follow from the rings' names.
        """
        given_up = []
        now = time.monotonic()
        for path, since in list(self._damaged_at.items()):
            if path not in self._refused:
                del self._damaged_at[path]
            elif now - since >= UNFINISHED_S and _beyond_reading(path):
                del self._damaged_at[path]
                replica, _, boot = path.stem.rpartition("-")
                try:
                    path.rename(path.with_suffix(".damaged"))
                except OSError:
                    continue
                log.warning("%s cannot be read and is set aside", path)
                if replica and boot:
                    given_up.append(Source(replica, boot))
        return given_up

    @property
    def open(self) -> list[OpenRing]:
        """Open rings, in the order of their creation."""
        return list(self._open.values())

    def refresh(self) -> None:
        """Open new rings; an invalid file is logged once and retried later.

        While another sidecar drains the directory, no ring is opened. If two sidecars numbered the
        batches of one boot, the service would drop the second one's as repeats.
        """
        folder = self.folder
        if folder is None:
            return
        self.ours = self._ours(folder)
        if not self.ours:
            return
        for path in folder.glob("*.ring.new"):
            self._clear(path)
        made_at = {path: _made_at(path) for path in folder.glob("*.ring")}
        for path in sorted(made_at, key=made_at.__getitem__):
            _, retry_at = self._refused.get(path, ("", 0.0))
            if path not in self._open and time.monotonic() >= retry_at:
                self._try(path)
        self._refused = {path: why for path, why in self._refused.items() if path in made_at}

    def _ours(self, folder: Path) -> bool:
        """Lock the directory; False if another sidecar holds it."""
        try:
            if self._lock_file >= 0:
                if os.path.samestat(os.fstat(self._lock_file), folder.stat()):
                    return True
                self._unlock()  # it was made anew
            file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            if time.monotonic() >= self._complain_at:
                self._complain_at = time.monotonic() + ABSENT_S
                log.warning("no rings in %s: %s; looked for again", folder, error.strerror)
            return True  # it is not there (any more), and nobody's
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            if time.monotonic() >= self._complain_at:
                self._complain_at = time.monotonic() + RETRY_S
                log.warning("another sidecar drains %s; this one waits", folder)
            return False
        self._lock_file = file
        return True

    def _unlock(self) -> None:
        if self._lock_file >= 0:
            os.close(self._lock_file)
            self._lock_file = -1

    def _clear(self, path: Path) -> None:
        """Remove an unfinished ring without a writer, because it takes memory."""
        try:
            status = path.lstat()
            young = time.time() - status.st_ctime < UNFINISHED_S
            if young or not stat.S_ISREG(status.st_mode):  # a pipe would hold us for ever
                return
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
            log.warning("%s was never finished and is removed", path)
        except OSError:
            pass  # its writer lives, or it is not ours to remove
        finally:
            os.close(file)

    def _try(self, path: Path) -> None:
        try:
            reader = RingReader.open(path)
        except RingError as error:
            if isinstance(error, CorruptRing):
                self._damaged_at.setdefault(path, time.monotonic())
            self._refuse(path, f"not drained: {error}")
            return
        try:
            rows_table("boot", [dict(reader.boot)])  # what no table takes would stop all rings
            self._open[path] = OpenRing(reader, Source.of(reader.boot), Origin.of(reader))
            self._refused.pop(path, None)
        except Exception as error:  # whatever a boot record says, it stops no other ring
            reader.close()
            self._refuse(path, f"not drained: the boot record of {path}: {error!r}")

    def _refuse(self, path: Path, reason: str) -> None:
        if self._refused.get(path, ("", 0.0))[0] != reason:
            log.warning("%s", reason)
        self._refused[path] = (reason, time.monotonic() + RETRY_S)

    def reopen(self, ring: OpenRing) -> bool:
        """Switch to the file that the writer created to replace this one; False if there is no
        readable one yet."""
        try:
            reader = RingReader.open(ring.path)
        except RingError as error:
            self._refuse(ring.path, f"not drained: {error}")
            return False
        try:
            same = Source.of(reader.boot) == ring.source
        except (KeyError, RingError, ValueError):
            same = False
        if not same:
            reader.close()
            return False
        ring.reader.close()
        ring.reader, ring.quiet, ring.adrift_since = reader, 0, None
        self._refused.pop(ring.path, None)
        return True

    def remove(self, ring: OpenRing) -> None:
        """Delete a ring whose records the store has."""
        self._open.pop(ring.path, None)
        others = ring.reader.replaced
        ring.reader.close()
        try:
            if not others:
                ring.path.unlink(missing_ok=True)
        except OSError as error:
            self._refuse(ring.path, f"{ring.path} cannot be removed: {error.strerror}")

    def close(self) -> None:
        for ring in self._open.values():
            ring.reader.close()
        self._open.clear()
        self._unlock()


def _beyond_reading(path: Path) -> bool:
    """Whether a file is not locked by a process and is no ring of another version."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return False
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        magic, version = struct.unpack("<QQ", os.pread(file, 16, 0).ljust(16, b"\0"))
    except OSError:
        return False
    finally:
        os.close(file)
    return magic != layout.MAGIC or version in READABLE_VERSIONS


def _made_at(path: Path) -> float:
    try:
        return path.stat().st_ctime
    except OSError:
        return 0.0  # gone in between
