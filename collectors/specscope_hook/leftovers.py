"""Limit the rings of earlier starts, which take memory of the pod.

Without a sidecar each restart of an engine would leave a whole ring behind. So the hook empties
rings of dead writers before it creates a new ring: first drained rings, then the oldest. An emptied
ring keeps its header, so a later reader counts its lost records. Rings of living writers stay.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from specscope_hook import layout as at

log = logging.getLogger("specscope")

BLOCK_BYTES = 512  # of st_blocks
UNFINISHED_S = 60.0  # before a ring that was never finished is one of a dead writer
MOST_RINGS = 8  # whole ones: ranks of one server that restart together
MOST_FILES = 256  # of dead rings; a header is 140 KiB


class _Dead(NamedTuple):
    """A ring without a writer; `file` stays open, `held_bytes` is the size of its records."""

    unread: bool
    changed_ns: int
    path: Path
    file: int
    held_bytes: int


def limit_leftovers(folder: Path, ring_bytes: int) -> None:
    """Empty dead rings, so that the folder has room for a new ring and does not fill up.

    They may use half of the file system, and at most the size of eight new rings. Never raises; the
    creation of the ring reports a missing folder.
    """
    dead: list[_Dead] = []
    try:
        if not folder.is_dir():
            return
        names = ("*.ring", "*.damaged", "*.ring.new")
        for path in (path for name in names for path in folder.glob(name)):
            if found := _dead(path):
                dead.append(found)
        disk = os.statvfs(folder)
        held = sum(one.held_bytes for one in dead)
        most = min(disk.f_blocks * disk.f_frsize // 2, MOST_RINGS * ring_bytes)
        missing = ring_bytes + at.DATA - disk.f_bavail * disk.f_frsize
        _empty(sorted(dead), max(held - most, missing))
    except OSError as error:
        log.warning("rings of earlier starts in %s: %s", folder, error.strerror)
    finally:
        for one in dead:
            os.close(one.file)


def _dead(path: Path) -> _Dead | None:
    """Open and lock a ring without a writer, without blocking; None otherwise."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return None
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None  # another's, or gone in between
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        words = at.WORDS.unpack(os.pread(file, at.WORDS.size, 0).ljust(at.WORDS.size, b"\0"))
        status = os.fstat(file)
    except OSError:
        os.close(file)
        return None
    if path.suffix == ".new" and time.time() - status.st_ctime < UNFINISHED_S:
        os.close(file)  # another process may be about to lock and finish it
        return None
    unread = words[at.W_READ] != words[at.W_WRITE]
    held_bytes = min(status.st_blocks * BLOCK_BYTES, max(0, status.st_size - at.DATA))
    return _Dead(unread, status.st_mtime_ns, path, file, held_bytes)


def _empty(dead: list[_Dead], too_many_bytes: int) -> None:
    for place, one in enumerate(dead):
        if one.path.suffix == ".new" or len(dead) - place > MOST_FILES:
            with suppress(OSError):
                one.path.unlink()
            log.warning("the ring %s of an earlier start is removed", one.path)
        elif too_many_bytes > 0 and one.held_bytes:
            os.ftruncate(one.file, at.DATA)
            if one.unread:
                log.warning("the ring %s of an earlier start was not drained: emptied", one.path)
        else:
            continue
        too_many_bytes -= one.held_bytes
