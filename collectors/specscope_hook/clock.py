"""The two clocks: a monotonic one for durations, the wall's for labels."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What a recorder needs to know of time."""

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
