"""The two clocks that an engine reads: one for durations, one for labels.

Handed to the engine, so that a replay with known costs runs on a clock that advances by them.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """What an engine needs to know of time."""

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
