"""How long each part of a round took, without ever waiting for the device.

The host timer reads the clock as the parts return, which is the truth on a CPU. The CUDA timer
records events into the stream and reads them once the last has passed; what it calls a part is
the stream's time between two events, launch gaps inside included. It has never run on a GPU.
"""

from collections import deque
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol

import torch

from specscope.engine.clock import Clock, SystemClock

PARTS = ("prefill", "catchup", "draft", "verify", "sample")


@dataclass(slots=True)
class Durations:
    """Microseconds by part; wall runs from the previous round's end unless the loop was idle."""

    wall: float = 0.0
    parts: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))

    @property
    def idle(self) -> float:
        """Wall less all parts, at least 0."""
        return max(0.0, self.wall - sum(self.parts.values()))


class Measured(Protocol):
    """A round's marks, to be read when they have passed."""

    def ready(self) -> bool:
        """Whether `read` would not have to wait."""

    def read(self) -> Durations:
        """The durations; only once `ready`."""


class Timer(Protocol):
    """Marks for one round at a time, in order: begin, parts, end."""

    source: str

    def begin(self, after_idle: bool) -> None:
        """A round begins; its wall starts here if the loop was idle, else at the last end."""

    def part(self, name: str) -> "Part":
        """A context whose time belongs to `name`; parts do not nest and may repeat."""

    def end(self) -> Measured:
        """The round's results have been written."""


class Part:
    """Marks its start and its stop."""

    def __init__(self, timer: "HostTimer | CudaTimer", name: str) -> None:
        self.timer, self.name = timer, name

    def __enter__(self) -> None:
        self.timer.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.timer.stop(self.name)


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
        self.ended = self.began = self.started = 0
        self.current = Durations()
        self.contexts = {name: Part(self, name) for name in PARTS}

    def begin(self, after_idle: bool) -> None:
        """See Timer."""
        self.began = self.now() if after_idle else self.ended
        self.current = Durations()

    def part(self, name: str) -> Part:
        """See Timer."""
        return self.contexts[name]

    def start(self) -> None:
        """A part starts."""
        self.started = self.now()

    def stop(self, name: str) -> None:
        """It stops."""
        self.current.parts[name] += (self.now() - self.started) / 1e3

    def end(self) -> _Known:
        """See Timer."""
        self.ended = self.now()
        self.current.wall = (self.ended - self.began) / 1e3
        return _Known(self.current)


class CudaTimer:
    """Events in the current stream, from a pool that grows to the rounds in flight."""

    source = "cuda"

    def __init__(self) -> None:
        self.pool: deque[torch.cuda.Event] = deque()
        self.marks: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []
        self.contexts = {name: Part(self, name) for name in PARTS}
        self.last: torch.cuda.Event | None = None
        self.shared: torch.cuda.Event | None = None

    def begin(self, after_idle: bool) -> None:
        """See Timer."""
        if after_idle or self.last is None:
            self.last = self.mark()
        self.first, self.marks = self.last, []

    def part(self, name: str) -> Part:
        """See Timer."""
        return self.contexts[name]

    def mark(self) -> torch.cuda.Event:
        """Record an event in the stream."""
        event = self.pool.popleft() if self.pool else torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def start(self) -> None:
        """A part starts."""
        self.open = self.mark()

    def stop(self, name: str) -> None:
        """It stops."""
        self.marks.append((name, self.open, self.mark()))

    def end(self) -> "_Pending":
        """See Timer."""
        self.last = self.mark()
        return _Pending(self, self.first, self.last, self.marks)


@dataclass(slots=True)
class _Pending:
    timer: CudaTimer
    first: torch.cuda.Event
    last: torch.cuda.Event
    marks: list[tuple[str, torch.cuda.Event, torch.cuda.Event]]

    def ready(self) -> bool:
        return bool(self.last.query())  # type: ignore[no-untyped-call]

    def read(self) -> Durations:
        durations = Durations(wall=1e3 * self.first.elapsed_time(self.last))
        for name, start, stop in self.marks:
            durations.parts[name] += 1e3 * start.elapsed_time(stop)
            self.timer.pool += (start, stop)
        # The last event is the next round's first; the first was nobody else's any more.
        self.timer.pool.append(self.first)
        return durations


def timer_for(device: str, clock: Clock | None = None) -> HostTimer | CudaTimer:
    """Events where there is a stream, the host's clock elsewhere."""
    return CudaTimer() if device.startswith("cuda") else HostTimer(clock)
