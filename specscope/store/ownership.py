"""Ownership of an embedded store by one process.

The owner locks a file beside the engine's files; the system releases the lock at the end of the
process. The file names the owner and its read endpoint.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from specscope.errors import StoreBusy, StoreError

FILE = "specscope-owner.json"
RESERVED = 512  # bytes of it, so that an owner is named on a full disk too
NOBODYS = {"lost+found"}  # what a fresh volume holds


@dataclass(slots=True)
class Owner:
    """A held lock."""

    descriptor: int

    @classmethod
    def take(cls, path: Path) -> Self:
        """Own the store in a folder, which is created if missing.

        Raises StoreBusy, which names the owner and its read endpoint, and StoreError if the folder
        is not usable or holds other files.
        """
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            names = {entry.name for entry in path.iterdir()}
            if FILE not in names and names - NOBODYS:
                raise StoreError(f"{path} is no store; it contains {min(names - NOBODYS)}")
            descriptor = os.open(path / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held = _read(descriptor)
            os.close(descriptor)
            raise StoreBusy(f"{path} is owned by process {_described(held)}") from None
        owner = cls(descriptor)
        owner.publish("")
        return owner

    def publish(self, endpoint: str) -> None:
        """Publish the read endpoint for others; "" for none."""
        text = json.dumps({"pid": os.getpid(), "endpoint": endpoint}).encode()
        # In this order, so that a full disk has room for what replaces as much.
        os.pwrite(self.descriptor, text.ljust(RESERVED), 0)
        os.ftruncate(self.descriptor, RESERVED)

    def release(self) -> None:
        """Release the ownership."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def _read(descriptor: int) -> dict[str, object]:
    try:
        held = json.loads(os.pread(descriptor, 4096, 0))
    except ValueError:  # between truncation and writing, or never written
        return {}
    return held if isinstance(held, dict) else {}


def _described(held: dict[str, object]) -> str:
    pid, endpoint = held.get("pid", "?"), held.get("endpoint")
    return f"{pid}; read it through {endpoint}" if endpoint else f"{pid}"
