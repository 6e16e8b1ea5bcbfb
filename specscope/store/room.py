"""Check the free space of an embedded store's disk before every write.

The engine (chDB 26.9) reports success even if a full disk stored 0 bytes of a table definition or
of an insert. So the store refuses writes if less than a minimum is free.
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
    """The disk of `path`, and its minimum of free bytes."""

    path: Path
    least: int = MIN_FREE_BYTES

    def free(self) -> int:
        """Free bytes for this user, at the nearest existing folder."""
        folder = self.path
        while not folder.exists():
            folder = folder.parent
        disk = os.statvfs(folder)
        return disk.f_bavail * disk.f_frsize

    @property
    def enough(self) -> bool:
        """Whether the minimum is free."""
        return self.free() >= self.least

    def require(self, what: str) -> None:
        """Raise StoreFull if less than the minimum is free."""
        free = self.free()
        if free < self.least:
            raise StoreFull(
                f"{what}: {_size(free)} free on the disk of {self.path}, and the store writes "
                f"only if {_size(self.least)} are free (SPECSCOPE_STORE_MIN_FREE_BYTES); "
                "free some room"
            )


def _size(count: int) -> str:
    return f"{count / (1 << 20):.1f} MiB" if count < 10 << 20 else f"{count >> 20} MiB"
