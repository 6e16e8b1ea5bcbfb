"""Means over a window from NVML's GPM counters; Hopper and newer.

A window is the difference of two samples. The driver refreshes them about every 100 ms, so a window
describes a device over a second, never a single round.
"""

from __future__ import annotations

import math
import time
from contextlib import suppress
from typing import Any, NamedTuple

import pynvml

SHORTEST_WINDOW_S = 0.1  # the driver's refresh; two samples within it may be the same

_MIB = 1024.0 * 1024.0
_METRICS = (  # GPM's number, our field, unit, and what one of GPM's is in that unit
    (pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL, "dram_active", "1", 0.01),
    (pynvml.NVML_GPM_METRIC_SM_UTIL, "sm_active", "1", 0.01),
    (pynvml.NVML_GPM_METRIC_SM_OCCUPANCY, "sm_occupancy", "1", 0.01),
    (pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL, "tensor_active", "1", 0.01),
    (pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC, "pcie_sent", "bytes/s", _MIB),
    (pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC, "pcie_received", "bytes/s", _MIB),
    (pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC, "nvlink_sent", "bytes/s", _MIB),
    (pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC, "nvlink_received", "bytes/s", _MIB),
)
FIELDS = tuple((field, unit) for _, field, unit, _ in _METRICS)


class Value(NamedTuple):
    """A mean over a window; `error` is NVML's error number if there is none, else 0."""

    field: str
    value: float | None
    unit: str
    error: int


class Window(NamedTuple):
    """Every field over one window."""

    length_ms: float
    values: tuple[Value, ...]


class Gpm:
    """Consecutive windows of one device or MIG instance."""

    def __init__(self, handle: Any, gpu_instance: int | None) -> None:
        """handle: handle of the whole device, also for a MIG instance. Raises NVMLError."""
        self._handle = handle
        self._gpu_instance = gpu_instance
        self._began = pynvml.nvmlGpmSampleAlloc()
        try:
            self._spare = pynvml.nvmlGpmSampleAlloc()
        except pynvml.NVMLError:
            pynvml.nvmlGpmSampleFree(self._began)
            raise
        self._began_s: float | None = None

    def next_window(self) -> Window | None:
        """Means since the previous call; None at the first call and within the driver's refresh
        time.

        Raises NVMLError; then the next call starts a new window.
        """
        now = time.monotonic()
        if self._began_s is not None and now - self._began_s < SHORTEST_WINDOW_S:
            return None
        began, self._began_s = self._began_s, None
        self._take(self._spare)
        self._began, self._spare = self._spare, self._began
        self._began_s = now
        return None if began is None else Window((now - began) * 1e3, self._values())

    def _take(self, sample: Any) -> None:
        if self._gpu_instance is None:
            pynvml.nvmlGpmSampleGet(self._handle, sample)
        else:
            pynvml.nvmlGpmMigSampleGet(self._handle, self._gpu_instance, sample)

    def _values(self) -> tuple[Value, ...]:
        ask = pynvml.c_nvmlGpmMetricsGet_t()
        ask.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        ask.numMetrics = len(_METRICS)
        ask.sample1, ask.sample2 = self._spare, self._began
        for place, (number, *_) in enumerate(_METRICS):
            ask.metrics[place].metricId = number
        pynvml.nvmlGpmMetricsGet(ask)
        return tuple(
            _value(field, unit, got.nvmlReturn, got.value * scale)
            for got, (_, field, unit, scale) in zip(ask.metrics, _METRICS, strict=False)
        )

    def close(self) -> None:
        """Release both samples, even if the driver reports an error."""
        for sample in (self._began, self._spare):
            with suppress(pynvml.NVMLError):
                pynvml.nvmlGpmSampleFree(sample)


def _value(field: str, unit: str, error: int, value: float) -> Value:
    """Check a value: if the counters did not run, the driver divides by zero and reports
    success."""
    if not error and not math.isfinite(value):
        error = pynvml.NVML_ERROR_NO_DATA
    return Value(field, None if error else value, unit, error)
