"""dcgm-exporter gauges, under their old and new names.

Profiling ratios (PROF) are 0..1, device utilisation (DEV) is a percentage.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from specscope.readers.records import DeviceSample, Finding, Record
from specscope.readers.scrapes.counters import Change

BUSY_PERCENT = 90.0
BLANK = 1e15
"""DCGM's blank values are near 2^63; no field comes near this otherwise but energy in mJ."""

STUCK = "suspect: stuck at zero"


def devices(change: Change) -> Iterator[Record]:
    """One sample per device and field; impossible values become NULL with a reason."""
    by_device: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for (name, labels), value in change.last.items():
        if not name.startswith("DCGM_FI_"):
            continue
        label = dict(labels)
        uuid = label.get("UUID") or label.get("uuid") or label.get("gpu", "")
        by_device[uuid, label.get("GPU_I_ID", "")][name] = value
    for (uuid, instance), fields in sorted(by_device.items()):
        yield from _device(change.input, uuid, instance or None, fields)


def _device(
    input: str, uuid: str, instance: str | None, fields: dict[str, float]
) -> Iterator[Record]:
    busy = _busy(fields)
    profiling = {name: value for name, value in fields.items() if "_PROF_" in name}
    engine = [
        v for n, v in profiling.items() if "GR_ENGINE" in n or "SM_ACTIVE" in n or "SM_UTIL" in n
    ]
    stuck = busy is not None and busy >= BUSY_PERCENT and bool(engine) and not any(engine)
    if stuck:
        yield Finding(
            "COUNTER_STUCK",
            f"{uuid}: engine activity 0 at {busy:.0f} % utilisation: stuck, not idle; "
            "bandwidth and "
            "activity are unknown for this window (`dcgmi dmon -e 1001 -c 1` brings them back)",
            {"uuid": uuid, "gpu_util_percent": busy, "fields": sorted(profiling)},
        )
    for name, value in sorted(fields.items()):
        reason = None
        if stuck and name in profiling and value == 0:
            reason = STUCK
        elif abs(value) > BLANK and "ENERGY" not in name:
            reason = "blank value"
        yield DeviceSample(
            input, uuid, instance, name, None if reason else value, _unit(name), reason
        )


def _busy(fields: dict[str, float]) -> float | None:
    if "DCGM_FI_DEV_GPU_UTIL" in fields:
        return fields["DCGM_FI_DEV_GPU_UTIL"]
    ratio = fields.get("DCGM_FI_DEV_GPU_UTIL_RATIO")
    return 100 * ratio if ratio is not None else None


def _unit(name: str) -> str | None:
    if "_PROF_" in name and "BYTES" not in name and "TOTAL" not in name:
        return "ratio"
    if name.endswith("_RATIO"):
        return "ratio"
    for part, unit in (
        ("BYTES", "B/s" if "_PROF_" in name else "B"),
        ("_UTIL", "%"),
        ("CLOCK", "MHz"),
        ("POWER", "W"),
        ("ENERGY", "mJ"),
        ("TEMP", "C"),
        ("FB_", "MiB"),
    ):
        if part in name:
            return unit
    return None
