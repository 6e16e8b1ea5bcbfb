"""NVIDIA devices and their current values through NVML.

Devices before Hopper report no memory, SM or tensor activity, only whether a kernel ran and whether
memory was accessed. A row then has the reason instead of the value.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pynvml

from specscope_agent.gpm import FIELDS, Gpm
from specscope_agent.nvml_fields import (
    DEVICE,
    INSTANT,
    OF_AN_INSTANCE,
    STANDING,
    Field,
    Reading,
    why,
)


@dataclass(slots=True)
class Gpu:
    """A device, or one MIG instance of it."""

    uuid: str
    handle: Any
    gpu_instance: int | None
    fields: tuple[Field, ...]
    gpm: Gpm | None
    no_gpm: str
    """Why there is no GPM; empty if there is."""
    lost: bool = False
    """It answers nothing any more, for a reason that may pass: off the bus, reset, reconfigured."""

    def read(self, now: int) -> list[Reading]:
        """Read every field once; `now` in ns since 1970. Never raises for errors of the device."""
        readings = [self._instant(field, now) for field in self.fields]
        reasons = {reading.reason for reading in readings}
        self.lost = "" not in reasons and not reasons <= STANDING
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
    """Open every visible device. Raises NVMLError without a driver.

    A device that cannot be opened, such as a lost one, becomes a device with a reason.
    """
    pynvml.nvmlInit()
    gpus: list[Gpu] = []
    try:
        for name, handle, error in _devices():
            gpus += [_unopened(name, error)] if error else _open_gpu(name, handle)
    except pynvml.NVMLError:
        close_gpus(gpus)
        raise
    if not gpus:
        close_gpus(gpus)
    return gpus


def visible() -> list[str]:
    """Names of the devices that `open_gpus` would find now. Raises NVMLError."""
    return [
        part
        for name, handle, error in _devices()
        for part in (name, *(() if error else (each for each, _, _ in _instances(name, handle))))
    ]


def close_gpus(gpus: list[Gpu]) -> None:
    """Close all devices, and ignore errors of lost ones.

    NVML counts its openings, so an unclosed one would never see a new driver.
    """
    for gpu in gpus:
        gpu.close()
    with suppress(pynvml.NVMLError):
        pynvml.nvmlShutdown()


Found = tuple[str, Any, pynvml.NVMLError | None]
"""A name, the handle, and why there is no handle."""


def _devices() -> Iterator[Found]:
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            yield str(pynvml.nvmlDeviceGetUUID(handle)), handle, None
        except pynvml.NVMLError as error:  # its place in the driver's order stands for its name
            yield f"device {index}", None, error


def _instances(name: str, handle: Any) -> Iterator[Found]:
    """The MIG instances of a device; none if it is not partitioned."""
    if not _in_mig_mode(handle):
        return
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            part = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            yield str(pynvml.nvmlDeviceGetUUID(part)), part, None
        except pynvml.NVMLError_NotFound:
            continue  # a place without an instance
        except pynvml.NVMLError as error:
            yield f"{name} instance {index}", None, error


def _unopened(name: str, error: pynvml.NVMLError) -> Gpu:
    """A device without a handle."""

    def refuse(_: Any) -> float:
        raise error

    return Gpu(name, None, None, (Field(DEVICE, "1", refuse),), None, "")


def _open_gpu(uuid: str, handle: Any) -> list[Gpu]:
    """Open a device and its MIG instances."""
    if not _in_mig_mode(handle):
        return [Gpu(uuid, handle, None, INSTANT, *_gpm(handle, None))]
    found = [Gpu(uuid, handle, None, INSTANT, None, "")]
    for name, part, error in _instances(uuid, handle):
        if error:
            found.append(_unopened(name, error))
            continue
        instance = int(pynvml.nvmlDeviceGetGpuInstanceId(part))
        found.append(Gpu(name, part, instance, OF_AN_INSTANCE, *_gpm(handle, instance)))
    return found


def _gpm(handle: Any, gpu_instance: int | None) -> tuple[Gpm | None, str]:
    """The GPM counters of a device or MIG instance, or the reason for none."""
    if reason := _no_gpm(handle):
        return None, reason
    try:
        return Gpm(handle, gpu_instance), ""
    except pynvml.NVMLError as error:
        return None, why(error)


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
