"""Small disks that can be filled."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path


class Disk:
    """A small disk, or a folder where this user may not mount."""

    def __init__(self, path: Path, size: int) -> None:
        self.path, self.filler = path, path / "filler"
        path.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
        self.small = subprocess.run(mount, capture_output=True).returncode == 0

    @property
    def full(self) -> bool:
        return self.filler.exists()

    def fill(self, leave: int) -> None:
        """Take all but so many bytes."""
        self.free()
        with contextlib.suppress(OSError):
            descriptor, size = os.open(self.filler, os.O_CREAT | os.O_WRONLY), 0
            with contextlib.suppress(OSError):
                while True:
                    size += os.write(descriptor, bytes(1 << 16))
            os.ftruncate(descriptor, max(0, size - leave))
            os.close(descriptor)

    def free(self) -> None:
        self.filler.unlink(missing_ok=True)

    def close(self) -> None:
        if self.small:
            subprocess.run(["umount", "-l", str(self.path)], check=False)
