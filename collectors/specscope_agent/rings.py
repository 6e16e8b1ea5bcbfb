"""The rings in a directory: found, opened, and removed once all of one is safe."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from specscope_agent.loss import rows_table
from specscope_agent.origin import Origin
from specscope_agent.source import Source
from specscope_hook.errors import RingError
from specscope_hook.ring import RingReader

log = logging.getLogger("specscope.agent")

RETRY_S = 60.0  # before a file that is no ring is looked at again


@dataclass(slots=True)
class OpenRing:
    """A ring being drained."""

    reader: RingReader
    source: Source
    origin: Origin
    quiet: int = 0
    """Pulls in a row that brought nothing although the writer was already gone."""

    @property
    def path(self) -> Path:
        return self.reader.path


class Rings:
    """The rings of one directory, by path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: dict[Path, OpenRing] = {}
        self._refused: dict[Path, tuple[str, float]] = {}

    @property
    def refused(self) -> int:
        """Files that end in `.ring` and cannot be drained."""
        return len(self._refused)

    @property
    def open(self) -> list[OpenRing]:
        """Rings being drained, in the order in which they were made."""
        return list(self._open.values())

    def refresh(self) -> None:
        """Open what is new; a file that is no ring is said once and tried again later."""
        found = {path: _made_at(path) for path in self.folder.glob("*.ring")}
        for path in sorted(found, key=found.__getitem__):
            _, retry_at = self._refused.get(path, ("", 0.0))
            if path not in self._open and time.monotonic() >= retry_at:
                self._try(path)
        self._refused = {path: why for path, why in self._refused.items() if path in found}

    def _try(self, path: Path) -> None:
        try:
            reader = RingReader.open(path)
        except RingError as error:
            self._refuse(path, f"not drained: {error}")
            return
        try:
            rows_table("boot", [dict(reader.boot)])  # what no table takes would stop all rings
            self._open[path] = OpenRing(reader, Source.of(reader.boot), Origin.of(reader))
            self._refused.pop(path, None)
        except (KeyError, ValueError, TypeError, OverflowError, pa.ArrowException) as error:
            reader.close()
            self._refuse(path, f"not drained: the boot record of {path}: {error!r}")

    def _refuse(self, path: Path, reason: str) -> None:
        if self._refused.get(path, ("", 0.0))[0] != reason:
            log.warning("%s", reason)
        self._refused[path] = (reason, time.monotonic() + RETRY_S)

    def remove(self, ring: OpenRing) -> None:
        """Delete a ring whose records the store has."""
        self._open.pop(ring.path, None)
        ring.reader.close()
        try:
            ring.path.unlink(missing_ok=True)
        except OSError as error:
            self._refuse(ring.path, f"{ring.path} cannot be removed: {error.strerror}")

    def close(self) -> None:
        for ring in self._open.values():
            ring.reader.close()
        self._open.clear()


def _made_at(path: Path) -> float:
    try:
        return path.stat().st_ctime
    except OSError:
        return 0.0  # gone in between
