"""How long each part of a round took, without ever waiting for the device.

The host timer reads the clock as the parts return, which is the truth on a CPU; on a GPU events
are recorded into the stream, see events.py.
"""

from dataclasses import dataclass
from typing import Protocol

from specscope.engine.clock import Clock, SystemClock
from specscope.engine.device import is_gpu
from specscope.engine.events import CudaTimer, InGraph
from specscope.engine.parts import MARKED, Durations, Part, Parts


class Measured(Protocol):
    """A round's marks, to be read when they have passed."""

    def ready(self) -> bool:
        """Whether `read` would not have to wait."""

    def read(self) -> Durations:
        """The durations; only once `ready`."""


class Timer(Parts, Protocol):
    """Marks for one round at a time, in order: begin, parts, end."""

    source: str

    def begin(self, after_idle: bool) -> None:
        """A round begins; its wall starts here if the loop was idle, else at the last end."""

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
        """Nothing is inside."""

    def end(self) -> _Known:
        """See Timer."""
        self.ended = self.now()
        self.current.wall = (self.ended - self.began) / 1e3
        return _Known(self.current)


def timer_for(device: str, clock: Clock | None = None) -> HostTimer | CudaTimer:
    """Events where there is a stream, the host's clock elsewhere."""
    return CudaTimer() if is_gpu(device) else HostTimer(clock)
