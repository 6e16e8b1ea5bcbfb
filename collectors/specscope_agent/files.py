"""Files of the sidecar: private, replaced atomically, and read only if they are regular files."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700


def replace(path: Path, pieces: Iterable[bytes], *, sync: bool) -> None:
    """Replace a file atomically.

    sync: wait until it survives a crash of the machine

    Raises OSError if the disk refuses it; then the old file stays unchanged.
    """
    new = path.with_suffix(".new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(new, flags, PRIVATE_FILE), "wb") as file:
            file.writelines(pieces)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.rename(new, path)
        if sync:
            sync_folder(path.parent)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def overwrite(path: Path, pieces: Iterable[bytes]) -> None:
    """Overwrite the blocks of a useless file. Raises OSError."""
    with open_regular(path, os.O_WRONLY) as file:
        file.writelines(pieces)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def open_regular(path: Path, flags: int = os.O_RDONLY) -> BinaryIO:
    """Open a regular file; a pipe would block forever. Raises OSError."""
    number = os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(0, "not a regular file", str(path))
    return os.fdopen(number, "rb" if flags == os.O_RDONLY else "wb")


def make_folder(path: Path) -> None:
    """Create a private folder if it is missing. Raises OSError."""
    path.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder survive a crash of the machine. Raises OSError."""
    number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)
