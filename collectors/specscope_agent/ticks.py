"""A loop's clock with absolute deadlines."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator


def ticks(period_s: float, stop: threading.Event) -> Iterator[bool]:
    """Yield for each tick whether it is late, until `stop` is set.

    The next deadline is the last one plus the period, whatever time the work takes. After a tick
    that is late by more than a period, missed deadlines are skipped.
    """
    deadline = time.monotonic()
    late = False
    while not stop.is_set():
        yield late
        deadline += period_s
        left = deadline - time.monotonic()
        late = left < 0
        if late:
            deadline += -left // period_s * period_s
        elif stop.wait(left):
            return
