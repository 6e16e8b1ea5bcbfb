"""The rings in a directory: found, opened, and removed once all of one is safe."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from specscope_agent.origin import Origin
from specscope_agent.source import Source
from specscope_hook.errors import RingError
from specscope_hook.ring import RingReader

log = logging.getLogger("specscope.agent")


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
        self._refused: dict[Path, float] = {}

    @property
    def refused(self) -> int:
        """Files that end in `.ring` and are none that we know."""
        return len(self._refused)

    @property
    def open(self) -> list[OpenRing]:
        """Rings being drained, oldest first."""
        return list(self._open.values())

    def refresh(self) -> None:
        """Open what is new.

        A file that is no ring is left alone and said once, again when it changes.
        """
        found = {}
        for path in self.folder.glob("*.ring"):
            try:
                found[path] = path.stat().st_mtime
            except OSError:
                continue  # gone in between
        for path, modified in sorted(found.items(), key=lambda pair: pair[1]):
            if path not in self._open and self._refused.get(path) != modified:
                self._try(path, modified)
        self._refused = {path: at for path, at in self._refused.items() if path in found}

    def _try(self, path: Path, modified: float) -> None:
        try:
            reader = RingReader.open(path)
            self._open[path] = OpenRing(reader, Source.of(reader.boot), Origin.of(reader))
        except (RingError, KeyError) as error:
            self._refused[path] = modified
            log.warning("not drained: %s", error)

    def remove(self, ring: OpenRing) -> None:
        """Delete a ring whose records the store has."""
        self._open.pop(ring.path, None)
        ring.reader.close()
        try:
            ring.path.unlink(missing_ok=True)
        except OSError as error:
            self._refused[ring.path] = 0.0
            log.warning("%s cannot be removed: %s", ring.path, error.strerror)

    def close(self) -> None:
        for ring in self._open.values():
            ring.reader.close()
        self._open.clear()
