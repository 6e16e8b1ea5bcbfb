"""The time of each part of a round, measured without waiting for the device.

HostTimer reads the clock when a part returns, which is right on a CPU. CudaTimer records events
into the stream and reads them once the last one has passed. A part of an eager round includes the
gaps between its kernels. Inside a CUDA graph the events are nodes of the graph, so the idle time
around the launch is separate. CudaTimer has never run on a GPU."""

import time
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple, Protocol

import torch

from specscope.engine.model.device import is_gpu

PARTS = ("prefill", "catchup", "draft", "verify", "sample")
LAUNCH = "launch"
"""A graph's replay less what ran inside it: the device waited for its first node, or its last."""
MARKED = (*PARTS, LAUNCH)


@dataclass(slots=True)
class Durations:
    """Microseconds by part; wall runs from the previous round's end unless the loop was idle."""

    wall: float = 0.0
    parts: dict[str, float] = field(default_factory=lambda: dict.fromkeys(MARKED, 0.0))
    gaps: dict[str, float] = field(default_factory=dict)
    """Between the end of the part before, or the round's beginning, and the start of each."""

    @property
    def idle(self) -> float:
        """Wall time minus all parts except launches, at least 0."""
        return max(0.0, self.wall - sum(self.parts[part] for part in PARTS))


class Parts(Protocol):
    """Something that can mark the time of a part."""

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


class Clock(Protocol):
    """The clock of an engine."""

    def monotonic_ns(self) -> int:
        """Nanoseconds of a clock that only rises; durations are its differences."""
        ...

    def unix_ns(self) -> int:
        """Nanoseconds since 1970, UTC; a label, never a duration."""
        ...


class SystemClock:
    """The machine's clocks."""

    monotonic_ns = staticmethod(time.perf_counter_ns)
    unix_ns = staticmethod(time.time_ns)


class Mark(NamedTuple):
    """Two events of a part, and the part that it lies in."""

    name: str
    within: str
    start: torch.cuda.Event
    stop: torch.cuda.Event
    pooled: bool


@dataclass(slots=True)
class InGraph:
    """Marks inside a graph. Each replay overwrites them, so read them before the next one."""

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


class Measured(Protocol):
    """A round's marks, to be read when they have passed."""

    def ready(self) -> bool:
        """Whether `read` returns without waiting."""

    def read(self) -> Durations:
        """The durations; only once `ready`."""


class Timer(Parts, Protocol):
    """Marks for one round at a time, in order: begin, parts, end."""

    source: str

    def begin(self, after_idle: bool) -> None:
        """Begin a round. Its wall time starts now if the loop was idle, else at the last end."""

    def replayed(self, inside: InGraph) -> None:
        """The part that is open replays a graph that has these marks inside."""

    def end(self) -> Measured:
        """The round's results have been written."""


@dataclass(slots=True)
class _Known:
    durations: Durations

    def ready(self) -> bool:
        return True

    def read(self) -> Durations:
        return self.durations


class HostTimer:
    """Reads the host's clock at every mark."""

    source = "host"

    def __init__(self, clock: Clock | None = None) -> None:
        self.now = (clock or SystemClock()).monotonic_ns
        self.ended = self.began = self.stopped = 0
        self.current = Durations()
        self.contexts = {name: Part(self, name) for name in MARKED}
        self.open: list[tuple[str, int]] = []

    def begin(self, after_idle: bool) -> None:
        """See Timer."""
        self.began = self.stopped = self.now() if after_idle else self.ended
        self.current = Durations()

    def part(self, name: str) -> Part:
        """See Parts."""
        return self.contexts[name]

    def start(self, name: str) -> None:
        """A part starts."""
        now = self.now()
        if not self.open:
            gaps = self.current.gaps
            gaps[name] = gaps.get(name, 0.0) + (now - self.stopped) / 1e3
        self.open.append((name, now))

    def stop(self) -> None:
        """The part that started last stops."""
        name, started = self.open.pop()
        self.stopped = self.now()
        took = (self.stopped - started) / 1e3
        self.current.parts[name] += took
        if self.open:
            self.current.parts[self.open[-1][0]] -= took

    def replayed(self, inside: InGraph) -> None:
        """Do nothing: this timer has no marks inside graphs."""

    def end(self) -> _Known:
        """See Timer."""
        self.ended = self.now()
        self.current.wall = (self.ended - self.began) / 1e3
        return _Known(self.current)


def timer_for(device: str, clock: Clock | None = None) -> HostTimer | CudaTimer:
    """CUDA events if there is a stream, otherwise the host's clock."""
    return CudaTimer() if is_gpu(device) else HostTimer(clock)
