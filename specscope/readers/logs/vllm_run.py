"""Merge many equal intervals of one engine into one window, for long logs."""

from __future__ import annotations

from typing import Any

FINE = 1024
"""So many windows of an engine are handed on one by one; of a longer log nobody reads each."""

TOGETHER = 32


class Run:
    """Sums over neighbouring intervals with the same k, whose counts are all exact."""

    def __init__(self) -> None:
        self.count = 0
        self._first: dict[str, Any] = {}
        self._drafts = self._proposed = self._accepted = 0
        self._positions: list[int] = []
        self._seconds = self._generated = 0.0
        self._running = self._waiting = 0
        self._round_ms = self._timed = 0.0

    def takes(self, window: dict[str, Any]) -> bool:
        """Whether a window can be summed: exact counts, known positions and load, the same k."""
        return (
            window.get("drafts") is not None
            and None not in (window.get("printed_positions") or (None,))
            and window.get("generated") is not None
            and window.get("running") is not None
            and window.get("waiting") is not None
            and window.get("seconds") is not None
            and "estimated" not in window
            and (self.count == 0 or window["k"] == self._first["k"])
        )

    def add(self, window: dict[str, Any]) -> None:
        """Add a window that `takes` allowed."""
        if self.count == 0:
            self._first = window
            self._positions = [0] * len(window["printed_positions"])
        self.count += 1
        drafts = window["drafts"]
        self._drafts += drafts
        self._proposed += window["proposed"]
        self._accepted += window["accepted"]
        for position, rate in enumerate(window["printed_positions"]):
            self._positions[position] += round(rate * drafts)
        self._seconds += window["seconds"]
        self._generated += window["generated"]
        self._running += window["running"]
        self._waiting += window["waiting"]
        ms = window.get("round_ms")
        if ms is not None:
            self._round_ms += ms * drafts
            self._timed += drafts

    def window(self) -> dict[str, Any]:
        """The fields of the one window; the run starts again."""
        counts = tuple(self._positions)
        exact = sum(counts) == self._accepted
        rates = tuple([count / self._drafts for count in counts]) if self._drafts else None
        found = {
            "start": self._first["start"],
            "k": self._first["k"],
            "seconds": self._seconds,
            "drafts": self._drafts,
            "proposed": self._proposed,
            "accepted": self._accepted,
            "generated": self._generated,
            "counted_at": counts if exact else None,
            "printed_positions": rates,
            "running": round(self._running / self.count),
            "waiting": round(self._waiting / self.count),
            "throughput_tok_s": self._generated / self._seconds if self._seconds else None,
            "round_ms": self._round_ms / self._timed if self._timed else None,
        }
        self.__init__()  # type: ignore[misc]
        return found
