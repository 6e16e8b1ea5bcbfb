"""The two clocks: a monotonic clock for durations, the wall clock for labels."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The clock of a recorder."""

    def monotonic_ns(self) -> int:
        """Nanoseconds of the monotonic clock, for durations."""
        ...

    def unix_ns(self) -> int:
        """Nanoseconds since 1970, UTC; a label, never a duration."""
        ...


class SystemClock:
    """The machine's clocks."""

    monotonic_ns = staticmethod(time.perf_counter_ns)
    unix_ns = staticmethod(time.time_ns)
