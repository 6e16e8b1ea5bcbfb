"""Progress of the demonstration: one updated line on a terminal, otherwise a line per replicate."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console

from specscope.demo.plan import LOADS, Size


class Progress:
    """Receives stages and the engine's events."""

    def __init__(self, console: Console, size: Size) -> None:
        self._console = console
        self._size = size
        self._replicate = -1
        self._blocks = 0
        self._moving = False
        self._began = time.monotonic()

    def stage(self, text: str) -> None:
        """A new stage begins."""
        self.end_line()
        self._console.print(f"[{self._elapsed()}] {text}", markup=False, highlight=False)

    def end_line(self) -> None:
        """What follows begins on a line of its own."""
        if self._moving:
            self._console.file.write("\n")
            self._moving = False

    def event(self, event: dict[str, Any]) -> None:
        """What the engine's process said."""
        if event["event"] == "ready":
            classes = event["classes"]
            self.stage(
                f"measuring {', '.join(classes)} under {len(LOADS)} loads, "
                f"{len(self._size.arms)} draft lengths in random order"
            )
        elif event["event"] == "block":
            self._block(event)

    def _block(self, event: dict[str, Any]) -> None:
        self._blocks += 1
        number = event["replicate"]
        if self._console.is_terminal:
            text = (
                f"\r[{self._elapsed()}] replicate {number + 1} of at most "
                f"{self._size.replicates}, block {self._blocks}: "
                f"{event['label']}, {event['load']}, {event['arm']}"
            )
            self._console.file.write(f"{text:<78}")
            self._console.file.flush()
            self._moving = True
        elif number != self._replicate:
            self.stage(f"replicate {number + 1} of at most {self._size.replicates}")
        self._replicate = number

    def _elapsed(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        return f"{minutes}:{seconds:02}"
