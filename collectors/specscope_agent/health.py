"""The sidecar's health for its probes, and a watchdog.

A *stuck* sidecar has a stage that does not return, or a dead thread. Only a restart helps, so the
watchdog ends the process after a while; its batches are in the spool. A *failing* sidecar runs, but
a stage has failed at every try for a minute.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

log = logging.getLogger("specscope.agent")

STUCK_S = 30.0  # a stage takes less than one; a disk that hangs comes back sooner, or never
EXIT_S = 180.0
FAILING_S = 60.0
LOOK_S = 1.0
EXIT_STATUS = 70  # of a process that gave itself up


@dataclass(slots=True)
class Health:
    """Health state, written by the loop and read by probes; all times are monotonic."""

    clock: Callable[[], float] = time.monotonic
    threads: dict[str, threading.Thread] = field(default_factory=dict)
    """Threads without which there is no work, by name."""
    _beat: float | None = None
    _doing: str = ""
    _failing: dict[str, tuple[float, str]] = field(default_factory=dict)

    def doing(self, stage: str) -> None:
        """Note the begin of a stage, to name it if it does not return."""
        self._beat, self._doing = self.clock(), stage

    def worked(self, stage: str) -> None:
        """Note the success of a stage."""
        self._failing.pop(stage, None)

    def failed(self, stage: str, reason: str) -> None:
        """Note the failure of a stage."""
        began, _ = self._failing.get(stage, (self.clock(), ""))
        self._failing[stage] = (began, reason)

    def forget(self, stages: set[str]) -> None:
        """Forget all stages except these; the rings of the others were removed."""
        self._failing = {name: why for name, why in self._failing.items() if name in stages}

    @property
    def stuck_s(self) -> float:
        """Seconds since the loop began a stage; 0 before its first."""
        return 0.0 if self._beat is None else self.clock() - self._beat

    def stuck(self) -> list[str]:
        """Problems that only a restart solves."""
        reasons = []
        if self.stuck_s > STUCK_S:
            reasons.append(f"the loop stands still at {self._doing} for {self.stuck_s:.0f} s")
        for name, thread in self.threads.items():
            if thread.ident is not None and not thread.is_alive():
                reasons.append(f"the thread {name} has died")
        return reasons

    def problems(self) -> list[str]:
        """All problems: stuck parts, and stages that have failed for a minute."""
        now = self.clock()
        return self.stuck() + [
            f"{stage} has failed for {now - began:.0f} s: {reason}"
            for stage, (began, reason) in list(self._failing.items())
            if now - began >= FAILING_S
        ]


class Watchdog:
    """End a permanently stuck process, so that its supervisor restarts it."""

    def __init__(self, health: Health, exit: Callable[[int], object] = os._exit) -> None:
        self._health, self._exit = health, exit
        self._said = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        stuck_since = 0.0
        while not self._stop.wait(LOOK_S):
            if not self._health.stuck():
                stuck_since, self._said = 0.0, False
                continue
            stuck_since = stuck_since or self._health.clock()
            self.look(self._health.clock() - stuck_since)

    def look(self, stuck_s: float) -> None:
        """Log a stuck part once, with the stack of every thread; end the process after a while."""
        if not self._said:
            self._said = True
            log.error("%s", "; ".join(self._health.stuck()))
            faulthandler.dump_traceback(file=sys.__stderr__ or 2)
        if stuck_s > EXIT_S:
            log.critical("given up after %.0f s; what is not acknowledged is in the spool", stuck_s)
            self._exit(EXIT_STATUS)
