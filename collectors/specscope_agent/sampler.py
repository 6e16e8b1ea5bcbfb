"""Sample devices in a separate thread, at random times.

A driver call may hang if a device fails; then only samples are missing. Gaps have an exponential
distribution, so samples hit all phases of a periodic engine. Each deadline follows the previous
deadline, not the current time.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence

import pynvml

from specscope_agent.gpm import SHORTEST_WINDOW_S
from specscope_agent.nvml import Gpu, close_gpus, open_gpus, visible
from specscope_agent.nvml_fields import DEVICE, Reading, why
from specscope_agent.windows import Window

MEAN_GAP_S = 1.0
REASON_INTERVAL_S = 60.0  # between two rows that say the same reason
REOPEN_INTERVAL_S = 60.0  # between two looks at which devices there are
MOST_READINGS = 100_000  # that wait to be taken; hours of them
WINDOWS_KEPT = 120  # two minutes, far more than a ring is behind


class Sampler:
    """Read every visible device; `take` returns the readings since its last call."""

    def __init__(self) -> None:
        self.late = 0
        self._gpus: list[Gpu] = []
        self._nothing = ""  # why there is no device
        self._opened_at = -REOPEN_INTERVAL_S
        self._said: dict[tuple[str, int | None, str], tuple[str, float]] = {}
        self._lock = threading.Lock()
        self._readings: deque[Reading] = deque(maxlen=MOST_READINGS)
        self._windows: deque[dict[str, Window]] = deque(maxlen=WINDOWS_KEPT)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="devices", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, timeout_s: float = 1.0) -> None:
        """Stop; a hanging driver call stays behind with its thread."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def take(self) -> list[Reading]:
        """Readings since the last call."""
        with self._lock:
            taken = list(self._readings)
            self._readings.clear()
        return taken

    def forget(self) -> None:
        """Drop all readings, because no replica serves. Reasons are repeated for the next
        replica."""
        with self._lock:
            self._readings.clear()
            self._said.clear()

    def windows(self, uuids: Sequence[str]) -> list[Window]:
        """Recent means of `dram_active` over these devices; over all if none is named."""
        named = {bare(uuid) for uuid in uuids}
        with self._lock:
            recent = list(self._windows)
        means = []
        for by_device in recent:
            chosen = [w for uuid, w in by_device.items() if not named or bare(uuid) in named]
            if chosen:
                mean = sum(window.dram_active for window in chosen) / len(chosen)
                means.append(chosen[0]._replace(dram_active=mean))
        return means

    def sample(self) -> None:
        """Read every device once."""
        readings = self._read()
        with self._lock:
            self._readings += self._worth_saying(readings)
            self._windows.append(_windows(readings))

    def _run(self) -> None:
        deadline = time.monotonic()
        while not self._stop.is_set():
            try:
                self.sample()
            except Exception as error:  # a driver that answers in a way nobody knows
                self._say_nothing(f"could not be read: {error!r}")
            deadline += gap_s(random.random())
            left = deadline - time.monotonic()
            if left < 0:
                self.late += 1
                deadline -= left
            elif self._stop.wait(left):
                break
        close_gpus(self._gpus)

    def _read(self) -> list[Reading]:
        self._open()
        if not self._gpus:
            return [self._no_device(self._nothing)]
        return [reading for gpu in self._gpus for reading in gpu.read(time.time_ns())]

    @staticmethod
    def _no_device(reason: str) -> Reading:
        return Reading("", None, DEVICE, None, "1", reason, time.time_ns())

    def _say_nothing(self, reason: str) -> None:
        with self._lock:
            self._readings += self._worth_saying([self._no_device(reason)])

    def _open(self) -> None:
        """Check now and then that the open devices are the present ones."""
        if time.monotonic() - self._opened_at < REOPEN_INTERVAL_S:
            return
        self._opened_at = time.monotonic()
        if self._gpus:
            if self._whole():
                return
            close_gpus(self._gpus)
        self._gpus, self._nothing = [], "no device visible"
        try:
            self._gpus = open_gpus()
        except pynvml.NVMLError as error:
            self._nothing = why(error)

    def _whole(self) -> bool:
        """Whether no device is lost, new or partitioned in another way."""
        try:
            now = visible()
        except pynvml.NVMLError:
            return False
        opened = [gpu.uuid for gpu in self._gpus]
        return now == opened and not any(gpu.lost for gpu in self._gpus)

    def _worth_saying(self, readings: Iterable[Reading]) -> list[Reading]:
        """All values, and reasons that are new or were last sent long ago."""
        kept, now = [], time.monotonic()
        for reading in readings:
            key = (reading.uuid, reading.gpu_instance, reading.field)
            reason, said_at = self._said.get(key, ("", 0.0))
            if reading.reason and reading.reason == reason and now - said_at < REASON_INTERVAL_S:
                continue
            self._said[key] = (reading.reason, now)
            kept.append(reading)
        return kept


def bare(uuid: str) -> str:
    """A device's identifier in CUDA's spelling, without NVML's prefix for the kind."""
    return uuid.removeprefix("GPU-").removeprefix("MIG-")


def gap_s(draw: float) -> float:
    """Time to the next sample: the shortest window, and exponential beyond it; mean 1 s.

    draw: uniform in [0, 1)
    """
    return SHORTEST_WINDOW_S - (MEAN_GAP_S - SHORTEST_WINDOW_S) * math.log(1.0 - draw)


def _windows(readings: Iterable[Reading]) -> dict[str, Window]:
    """By device, from one turn of reading."""
    found = {}
    for reading in readings:
        if reading.field == "dram_active" and reading.value is not None and reading.window_ms:
            began_at = reading.sampled_at - int(reading.window_ms * 1e6)
            found[reading.uuid] = Window(began_at, reading.sampled_at, reading.value)
    return found
