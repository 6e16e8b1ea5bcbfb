"""Room on the disk of an embedded store: checked before every statement that writes.

The engine (chDB 26.9) reports success for a table definition, and for an insert, that a full
disk took with 0 bytes. So the store refuses to write while less than a floor is free.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from specscope.errors import StoreFull

# Several inserts of the largest size, the merges that follow them, and every definition.
MIN_FREE_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Room:
    """The disk that holds `path`, and the bytes that must stay free on it."""

    path: Path
    least: int = MIN_FREE_BYTES

    def free(self) -> int:
        """Free bytes for this user; of the nearest folder that exists."""
        folder = self.path
        while not folder.exists():
            folder = folder.parent
        disk = os.statvfs(folder)
        return disk.f_bavail * disk.f_frsize

    @property
    def enough(self) -> bool:
        """Whether the floor is kept."""
        return self.free() >= self.least

    def require(self, what: str) -> None:
        """Raise StoreFull if less than the floor is free."""
        free = self.free()
        if free < self.least:
            raise StoreFull(
                f"{what}: {_size(free)} free on the disk of {self.path}, and the store writes "
                f"only while {_size(self.least)} are free (SPECSCOPE_STORE_MIN_FREE_BYTES); "
                "free some room"
            )


def _size(count: int) -> str:
    return f"{count / (1 << 20):.1f} MiB" if count < 10 << 20 else f"{count >> 20} MiB"
