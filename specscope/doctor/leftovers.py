"""The rings of demonstrations, and leftovers of killed ones.

A ring takes memory until it is removed. After `kill -9` the next demonstration removes it, and
`specscope doctor` reports it. Standard library only.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
PREFIX = "specscope-demo-"
HELD = "held"


def rings_folder(out: Path) -> Path:
    """Of this process: in memory where the machine has such a file system, as in a pod."""
    if SHARED_MEMORY.is_dir() and os.access(SHARED_MEMORY, os.W_OK):
        return SHARED_MEMORY / f"{PREFIX}{os.getpid()}"
    return out / "rings"


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Make a folder, mark it as in use by a lock, and remove it at the end.

    Other containers see the lock too; this process's id means nothing there. The lock is on a file
    of its own, since the sidecar locks the folder that it drains.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / HELD, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        shutil.rmtree(folder)
        os.close(lock)


def left_behind(memory: Path = SHARED_MEMORY) -> list[Path]:
    """Folders of demonstrations whose process is gone, with no lock on them or a ring in them."""
    return [
        folder
        for folder in sorted(memory.glob(f"{PREFIX}*"))
        if folder.is_dir() and not _alive(folder.name.removeprefix(PREFIX)) and _free(folder)
    ]


def sweep(memory: Path = SHARED_MEMORY) -> list[Path]:
    """Remove leftovers, as far as the system permits. Returns the removed folders."""
    removed = []
    for folder in left_behind(memory):
        with suppress(OSError):
            shutil.rmtree(folder)
            removed.append(folder)
    return removed


def size(folder: Path) -> int:
    """Bytes of memory that its files take."""
    return sum(file.stat().st_blocks * 512 for file in folder.iterdir())


def _alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except (ValueError, OSError):  # no folder of ours, or somebody else's process
        return True
    return True


def _free(folder: Path) -> bool:
    """Whether no process holds a lock on the folder or on one of its files."""
    try:
        return all(_unlocked(path) for path in (folder, *folder.iterdir()))
    except OSError:  # not ours to judge
        return False


def _unlocked(path: Path) -> bool:
    file = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(file)
    return True
