"""A real small disk: a tmpfs mount of its own, filled and freed at will."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest


class Disk:
    """A mounted folder of a fixed size."""

    def __init__(self, path: Path) -> None:
        self.path, self._filler = path, path / "filler"

    def fill(self, leave: int = 0) -> None:
        """Take all room but `leave` bytes."""
        self.free()
        descriptor, size = os.open(self._filler, os.O_CREAT | os.O_WRONLY), 0
        with contextlib.suppress(OSError):
            while True:
                size += os.write(descriptor, bytes(4096))
        os.ftruncate(descriptor, max(0, size - leave))
        os.close(descriptor)

    def free(self) -> None:
        """Give all room back that `fill` took."""
        self._filler.unlink(missing_ok=True)


@contextlib.contextmanager
def small_disk(folder: Path, size: int):
    """Mount `size` bytes at a folder; the test is skipped where this user may not mount."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True
    )
    if mounted.returncode:
        shutil.rmtree(folder)
        pytest.skip("needs the right to mount a small disk")
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
