"""CUDA events around the parts of a round: recorded as it runs, read once the last has passed.

A part of an eager round is the stream's time between two events, gaps between kernels included. A
part inside a CUDA graph has its events inside the graph (external ones, which become nodes that
every replay records anew), so that what the launch left idle is told apart. Has never run on a GPU.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from specscope.engine.parts import MARKED, Durations, Part


class Mark(NamedTuple):
    """Two events of a part, and the part that it lies in."""

    name: str
    within: str
    start: torch.cuda.Event
    stop: torch.cuda.Event
    pooled: bool


@dataclass(slots=True)
class InGraph:
    """Marks inside a graph: recorded by each of its replays, so to be read before the next."""

    marks: Sequence[Mark]
    unread: bool = False


class EventTimer:
    """Marks in the current stream: of a round as it runs, or inside a graph as it is captured."""

    def __init__(self, external: bool = False) -> None:
        """external: while a graph is captured, so that the events are nodes of it."""
        self.external = external
        self.pool: deque[torch.cuda.Event] = deque()
        self.marks: list[Mark] = []
        self.contexts = {name: Part(self, name) for name in MARKED}
        self.open: list[tuple[str, torch.cuda.Event]] = []

    def part(self, name: str) -> Part:
        """See Parts."""
        return self.contexts[name]

    def mark(self) -> torch.cuda.Event:
        """Record an event in the stream."""
        event = (
            self.pool.popleft()
            if self.pool
            else torch.cuda.Event(enable_timing=True, external=self.external)  # type: ignore[no-untyped-call]
        )
        event.record()
        return event

    def start(self, name: str) -> None:
        """A part starts."""
        self.open.append((name, self.mark()))

    def stop(self) -> None:
        """The part that started last stops."""
        name, start = self.open.pop()
        within = self.open[-1][0] if self.open else ""
        self.marks.append(Mark(name, within, start, self.mark(), not self.external))


class CudaTimer(EventTimer):
    """Events of a pool that grows to the rounds in flight."""

    source = "cuda"

    def __init__(self) -> None:
        super().__init__()
        self.last: torch.cuda.Event | None = None

    def begin(self, after_idle: bool) -> None:
        """See Timer."""
        if after_idle or self.last is None:
            self.last = self.mark()
        self.first, self.marks, self.graphs = self.last, list[Mark](), list[InGraph]()

    def replayed(self, inside: InGraph) -> None:
        """See Timer."""
        name, inside.unread = self.open[-1][0], True
        self.graphs.append(inside)
        self.marks += [mark if mark.within else mark._replace(within=name) for mark in inside.marks]

    def end(self) -> "_Pending":
        """See Timer."""
        self.last = self.mark()
        return _Pending(self, self.first, self.last, self.marks, self.graphs)


@dataclass(slots=True)
class _Pending:
    timer: CudaTimer
    first: torch.cuda.Event
    last: torch.cuda.Event
    marks: list[Mark]
    graphs: list[InGraph]

    def ready(self) -> bool:
        return bool(self.last.query())  # type: ignore[no-untyped-call]

    def read(self) -> Durations:
        durations = Durations(wall=_between(self.first, self.last))
        parts, gaps, stopped = durations.parts, durations.gaps, self.first
        for mark in self.marks:
            took = _between(mark.start, mark.stop)
            parts[mark.name] += took
            if mark.within:
                parts[mark.within] -= took
                continue
            gaps[mark.name] = gaps.get(mark.name, 0.0) + _between(stopped, mark.start)
            stopped = mark.stop
        # The last event is the next round's first; the first was nobody else's any more.
        self.timer.pool.append(self.first)
        for mark in self.marks:
            if mark.pooled:
                self.timer.pool += (mark.start, mark.stop)
        for inside in self.graphs:
            inside.unread = False
        return durations


def _between(start: torch.cuda.Event, stop: torch.cuda.Event) -> float:
    """Microseconds."""
    return 1e3 * float(start.elapsed_time(stop))
