"""The finished parts of a replay, in a file beside its result, so that a replay can resume.

The file has JSON lines: the settings of the replay, then one line per part. A truncated line is
ignored.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from specscope.errors import InputError
from specscope.replay.client import Outcome
from specscope.replay.counters import read_counted
from specscope.replay.play import PlayedPart
from specscope.replay.result import without_nan

SCHEMA = "specscope.replay.parts/1"


class Journal:
    """One replay's parts. Without a path, nothing is stored."""

    def __init__(self, path: Path | None, replay: Mapping[str, Any]) -> None:
        """Read an existing journal.

        replay: trace, endpoints and settings, as JSON. Raises InputError if the file belongs to
        another replay, OSError if it cannot be read or written.
        """
        self._path = path
        self.parts: list[PlayedPart] = []
        header = json.dumps({"schema": SCHEMA, **replay}, sort_keys=True)
        if path is None:
            return
        # A torn end is written over.
        lines = [line for line in _text(path).splitlines(keepends=True) if line.endswith("\n")]
        if lines and lines[0].rstrip("\n") != header:
            raise InputError(
                f"{path} holds parts of a replay with another trace, endpoint or setting: "
                "remove it, or name another --out"
            )
        try:
            self.parts = [_part(json.loads(line)) for line in lines[1:]]
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(f"{path} holds no parts of a replay: {error}") from error
        path.write_text("".join(lines) or header + "\n")

    def add(self, part: PlayedPart) -> None:
        """Store a part. Raises OSError."""
        self.parts.append(part)
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(without_nan(asdict(part)), allow_nan=False) + "\n")

    def remove(self) -> None:
        """Delete the file after the result is written. Raises OSError."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def _part(raw: Mapping[str, Any]) -> PlayedPart:
    return PlayedPart(
        number=int(raw["number"]),
        outcomes=tuple(_outcome(one) for one in raw["outcomes"]),
        counted=read_counted(raw["counted"]),
    )


def _outcome(raw: Mapping[str, Any]) -> Outcome:
    times = {
        name: math.nan if raw[name] is None else raw[name] for name in ("ttft_ms", "decode_ms")
    }
    gaps = {int(place): count for place, count in raw["gaps"].items()}
    return Outcome(**{**raw, **times, "gaps": gaps})
