"""The parts of a round, how their time is marked, and what is known of it afterwards."""

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol

PARTS = ("prefill", "catchup", "draft", "verify", "sample")
LAUNCH = "launch"
"""A graph's replay less what ran inside it: the device waited for its first node, or its last."""
CAPTURE = "capture"
"""The device waited while a graph was captured."""
MARKED = (*PARTS, LAUNCH, CAPTURE)


@dataclass(slots=True)
class Durations:
    """Microseconds by part; wall runs from the previous round's end unless the loop was idle."""

    wall: float = 0.0
    parts: dict[str, float] = field(default_factory=lambda: dict.fromkeys(MARKED, 0.0))
    gaps: dict[str, float] = field(default_factory=dict)
    """Between the end of the part before, or the round's beginning, and the start of each."""

    @property
    def idle(self) -> float:
        """Wall less all parts but launches and captures, at least 0."""
        return max(0.0, self.wall - sum(self.parts[part] for part in PARTS))


class Parts(Protocol):
    """Where a part's time is marked."""

    def part(self, name: str) -> AbstractContextManager[None]:
        """A context whose time belongs to `name`, less that of parts within it."""


class Marker(Protocol):
    """Notes when parts start and stop; parts may lie within others."""

    def start(self, name: str) -> None:
        """A part starts."""

    def stop(self) -> None:
        """The part that started last stops."""


class Part:
    """Marks its start and its stop."""

    def __init__(self, marker: Marker, name: str) -> None:
        self.marker, self.name = marker, name

    def __enter__(self) -> None:
        self.marker.start(self.name)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.marker.stop()
