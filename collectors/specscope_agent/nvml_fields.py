"""Instant fields of a device, and their readings: a value, or the reason for none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pynvml

DEVICE = "device"  # field of a reading that says why there are no others

_REASONS = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "no driver library",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "driver not loaded",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "driver and library differ in version",
    pynvml.NVML_ERROR_NO_PERMISSION: "no permission",
    pynvml.NVML_ERROR_NOT_SUPPORTED: "not supported by this device",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "not in this driver",
    pynvml.NVML_ERROR_GPU_IS_LOST: "device lost",
    pynvml.NVML_ERROR_RESET_REQUIRED: "device needs a reset",
    pynvml.NVML_ERROR_NO_DATA: "no data in the window",
}
STANDING = {  # looking for the device again would change nothing
    _REASONS[pynvml.NVML_ERROR_NO_PERMISSION],
    _REASONS[pynvml.NVML_ERROR_NOT_SUPPORTED],
    _REASONS[pynvml.NVML_ERROR_FUNCTION_NOT_FOUND],
}


class Reading(NamedTuple):
    """A value of one field, or the reason for none."""

    uuid: str
    gpu_instance: int | None
    field: str
    value: float | None
    unit: str
    reason: str
    sampled_at: int  # ns since 1970
    window_ms: float | None = None  # that the value is a mean over; None for an instant


class Field(NamedTuple):
    """One field to read at an instant."""

    name: str
    unit: str
    read: Callable[[Any], float]


def _memory_used(gpu: Any) -> int:
    """Used memory. Devices that share the host's memory report success without a value."""
    used = int(pynvml.nvmlDeviceGetMemoryInfo(gpu).used)
    if used == pynvml.NVML_VALUE_NOT_AVAILABLE_ulonglong.value:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return used


INSTANT = (
    Field("gpu_utilisation", "1", lambda gpu: pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100),
    Field(
        "memory_utilisation",
        "1",
        lambda gpu: pynvml.nvmlDeviceGetUtilizationRates(gpu).memory / 100,
    ),
    Field("sm_clock", "MHz", lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM)),
    Field(
        "memory_clock", "MHz", lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_MEM)
    ),
    Field("power", "W", lambda gpu: pynvml.nvmlDeviceGetPowerUsage(gpu) / 1e3),
    Field("energy", "J", lambda gpu: pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3),
    Field("memory_used", "bytes", _memory_used),
    Field("clock_event_reasons", "bits", pynvml.nvmlDeviceGetCurrentClocksEventReasons),
)
OF_AN_INSTANCE = tuple(field for field in INSTANT if field.name == "memory_used")


def why(error: pynvml.NVMLError) -> str:
    """An NVML error in a few words, equal for equal causes."""
    return _REASONS.get(error.value, str(error))
