"""The current state of a machine's devices."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specscope_agent.nvml_fields import Reading

SLOWED = {"power limit": 0x04, "heat": 0x60, "hardware": 0x88}
"""Why a device runs slower than it can, by the bits of NVML's clock event reasons."""


@dataclass(frozen=True, slots=True)
class GpuNow:
    """One device; unknown values are None. busy: share of time with a running kernel. memory_busy:
    share of time with memory traffic, or of the bandwidth if the device reports that. slowed: cause
    of throttling, one of SLOWED."""

    uuid: str
    busy: float | None
    memory_busy: float | None
    power_w: float | None
    clock_mhz: float | None
    memory_bytes: float | None
    slowed: tuple[str, ...]
    reason: str


@dataclass(slots=True)
class Gpus:
    """Every visible device; none if the driver or its library is missing."""

    reason: str = ""
    """Why there is none."""
    _open: list[Any] | None = field(default=None)

    def look(self) -> list[GpuNow]:
        """Read all devices now."""
        if self._open is None:
            self._open = self._opened()
        now = time.time_ns()
        readings = [reading for gpu in self._open for reading in gpu.read(now)]
        return devices_of(readings)

    def close(self) -> None:
        """Release NVML."""
        if self._open:
            from specscope_agent.nvml import close_gpus

            close_gpus(self._open)
        self._open = None

    def _opened(self) -> list[Any]:
        try:
            import pynvml

            from specscope_agent.nvml import open_gpus
            from specscope_agent.nvml_fields import why
        except ImportError as error:
            self.reason = f"needs {error.name}"
            return []
        try:
            return open_gpus()
        except pynvml.NVMLError as error:
            self.reason = why(error)
            return []


def devices_of(readings: Iterable[Reading]) -> list[GpuNow]:
    """Devices from their readings, in the order of the readings."""
    by_uuid: dict[str, dict[str, Reading]] = {}
    for reading in readings:
        by_uuid.setdefault(reading.uuid, {})[reading.field] = reading
    return [_device(uuid, fields) for uuid, fields in by_uuid.items()]


def _device(uuid: str, fields: dict[str, Reading]) -> GpuNow:
    def value(*names: str) -> float | None:
        """Value of the first of these fields that has one."""
        values = (fields[name].value for name in names if name in fields)
        return next((one for one in values if one is not None), None)

    bits = int(value("clock_event_reasons") or 0)
    known = [reading.reason for reading in fields.values() if reading.value is None]
    return GpuNow(
        uuid=uuid,
        busy=value("gpu_utilisation"),
        memory_busy=value("dram_active", "memory_utilisation"),
        power_w=value("power"),
        clock_mhz=value("sm_clock"),
        memory_bytes=value("memory_used"),
        slowed=tuple(cause for cause, mask in SLOWED.items() if bits & mask),
        reason=known[0] if known and len(known) == len(fields) else "",
    )
