"""NVIDIA devices through NVML: what each says now, or why it says nothing.

Devices before Hopper report neither memory nor SM nor tensor activity here, only whether a
kernel ran and whether memory was touched; a row then says so in place of the value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pynvml

from specscope_agent.gpm import FIELDS, Gpm

DEVICE = "device"  # field of a reading that says why there are no others

_REASONS = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "no driver library",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "driver not loaded",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "driver and library differ in version",
    pynvml.NVML_ERROR_NO_PERMISSION: "no permission",
    pynvml.NVML_ERROR_NOT_SUPPORTED: "not supported by this device",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "not in this driver",
    pynvml.NVML_ERROR_GPU_IS_LOST: "device lost",
}


class Reading(NamedTuple):
    """A value of one field, or the reason why there is none."""

    uuid: str
    gpu_instance: int | None
    field: str
    value: float | None
    unit: str
    reason: str
    sampled_at: int  # ns since 1970
    window_ms: float | None = None  # that the value is a mean over; None for an instant


class Field(NamedTuple):
    """One thing to ask a device for at an instant."""

    name: str
    unit: str
    read: Callable[[Any], float]


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
    Field("memory_used", "bytes", lambda gpu: pynvml.nvmlDeviceGetMemoryInfo(gpu).used),
    Field("clock_event_reasons", "bits", pynvml.nvmlDeviceGetCurrentClocksEventReasons),
)
_OF_AN_INSTANCE = tuple(field for field in INSTANT if field.name == "memory_used")


def why(error: pynvml.NVMLError) -> str:
    """An error of NVML in a few words, the same for the same cause."""
    return _REASONS.get(error.value, str(error))


@dataclass(slots=True)
class Gpu:
    """A device, or one MIG instance of it."""

    uuid: str
    handle: Any
    gpu_instance: int | None
    fields: tuple[Field, ...]
    gpm: Gpm | None
    no_gpm: str
    """Why there is no GPM; empty where there is."""
    lost: bool = False

    def read(self, now: int) -> list[Reading]:
        """Every field once; `now` in ns since 1970. Never raises for what the device answers."""
        readings = [self._instant(field, now) for field in self.fields]
        self.lost = any(reading.reason == "device lost" for reading in readings)
        return readings + (self._window(now) if self.gpm else self._without_gpm(now))

    def _instant(self, field: Field, now: int) -> Reading:
        try:
            value, reason = float(field.read(self.handle)), ""
        except pynvml.NVMLError as error:
            value, reason = None, why(error)
        return Reading(self.uuid, self.gpu_instance, field.name, value, field.unit, reason, now)

    def _window(self, now: int) -> list[Reading]:
        assert self.gpm is not None
        try:
            window = self.gpm.next_window()
        except pynvml.NVMLError as error:
            return [self._unknown(name, unit, why(error), now) for name, unit in FIELDS]
        if window is None:
            return []
        return [
            Reading(
                self.uuid,
                self.gpu_instance,
                value.field,
                value.value,
                value.unit,
                why(pynvml.NVMLError(value.error)) if value.error else "",
                now,
                window.length_ms,
            )
            for value in window.values
        ]

    def _without_gpm(self, now: int) -> list[Reading]:
        if not self.no_gpm:
            return []  # a whole device in MIG mode: its instances have it
        return [self._unknown(name, unit, self.no_gpm, now) for name, unit in FIELDS]

    def _unknown(self, name: str, unit: str, reason: str, now: int) -> Reading:
        return Reading(self.uuid, self.gpu_instance, name, None, unit, reason, now)

    def close(self) -> None:
        if self.gpm:
            self.gpm.close()


def open_gpus() -> list[Gpu]:
    """Every device that is visible here. Raises NVMLError where there is no driver.

    A device that cannot be opened, such as one that was lost, is a reason beside the others.
    """
    pynvml.nvmlInit()
    gpus = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            gpus += _open_gpu(pynvml.nvmlDeviceGetHandleByIndex(index))
        except pynvml.NVMLError as error:
            gpus.append(_unopened(index, error))
    return gpus


def _unopened(index: int, error: pynvml.NVMLError) -> Gpu:
    """A device without a handle: its place in the driver's order stands for its name."""

    def refuse(_: Any) -> float:
        raise error

    return Gpu(f"device {index}", None, None, (Field(DEVICE, "1", refuse),), None, "")


def close_gpus(gpus: list[Gpu]) -> None:
    """Give everything back; what is lost already stays lost."""
    try:
        for gpu in gpus:
            gpu.close()
        pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        pass  # there is nothing left to give back to


def _open_gpu(handle: Any) -> list[Gpu]:
    uuid = str(pynvml.nvmlDeviceGetUUID(handle))
    no_gpm = _no_gpm(handle)
    if not _in_mig_mode(handle):
        gpm = None if no_gpm else Gpm(handle, None)
        return [Gpu(uuid, handle, None, INSTANT, gpm, no_gpm)]
    found = [Gpu(uuid, handle, None, INSTANT, None, "")]
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            part = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except pynvml.NVMLError_NotFound:
            continue  # a place without an instance
        instance = int(pynvml.nvmlDeviceGetGpuInstanceId(part))
        gpm = None if no_gpm else Gpm(handle, instance)
        its_uuid = str(pynvml.nvmlDeviceGetUUID(part))
        found.append(Gpu(its_uuid, part, instance, _OF_AN_INSTANCE, gpm, no_gpm))
    return found


def _in_mig_mode(handle: Any) -> bool:
    try:
        return bool(pynvml.nvmlDeviceGetMigMode(handle)[0])
    except pynvml.NVMLError:
        return False  # devices before Ampere do not know the question


def _no_gpm(handle: Any) -> str:
    try:
        supported = pynvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice
    except pynvml.NVMLError as error:
        return why(error)
    return "" if supported else "needs Hopper or newer"
