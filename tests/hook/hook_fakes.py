"""Values and a clock that the hook's tests share."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from specscope_hook import ring
from specscope_hook.columns import columns
from specscope_hook.records import Boot
from specscope_hook.ring import Cursor, Gap, RawRecord, RingReader
from specscope_hook.ring_records import RingRequest, RingRound


class ManualClock:
    """Time passes only when told to."""

    def __init__(self, unix_ns: int = 1_700_000_000_000_000_000) -> None:
        self.now_ns = 1_000_000_000
        self.offset_ns = unix_ns - self.now_ns

    def monotonic_ns(self) -> int:
        return self.now_ns

    def unix_ns(self) -> int:
        return self.now_ns + self.offset_ns

    def pass_ms(self, ms: float) -> None:
        self.now_ns += round(ms * 1e6)


def a_boot(**values: Any) -> Boot:
    """A Boot with a value in every field that must have one."""
    plain: dict[str, Any] = {}
    for column in columns(Boot):
        if not column.nullable:
            text = column.base in ("label", "text")
            plain[column.name] = [] if column.repeated else ("x" if text else 1)
    plain.update(replica="r0", boot="b0", **values)
    return Boot(**plain)


def a_round(batch: int = 2, **values: Any) -> dict[str, Any]:
    """Keywords of Recorder.round for a round of this many sequences."""
    plain: dict[str, Any] = {
        "started_at": 1_700_000_000_000_000_000,
        "wall_us": 1500.0,
        "requests": list(range(1, batch + 1)),
        "contexts": [100 + index for index in range(batch)],
        "classes": [0] * batch,
        "k": [4] * batch,
        "accepted": [2] * batch,
        "emitted": [3] * batch,
        "ends": [0] * batch,
    }
    return plain | values


def flush_rings() -> None:
    """Let readers see what waits in the buffer of every ring of this process."""
    for one in list(ring._living):
        one.flush()


def drained(reader: RingReader, cursor: Cursor | None = None) -> tuple[list[RawRecord], list[Gap]]:
    """Everything that is on the ring, in one go."""
    flush_rings()
    records, _, gaps = reader.pull(cursor or Cursor(), 1 << 40)
    return records, gaps


def only_ring(directory: Path) -> Path:
    """The one ring in a directory."""
    (path,) = directory.glob("*.ring")
    return path


ROUND_FIELDS = [field.name for field in fields(RingRound)]
REQUEST_FIELDS = [field.name for field in fields(RingRequest)]
