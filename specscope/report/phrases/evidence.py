"""Sentences about the evidence behind the numbers: outputs, devices, replicas."""

from __future__ import annotations

from specscope.report.model import (
    DeviceRow,
    ReplicaRow,
    Report,
)


def outputs_said(report: Report) -> str:
    """Whether speculation changes outputs, in a sentence."""
    if report.outputs_state is None:
        return (
            "No outputs were compared: no greedy or coupled request ran in two arms. "
            "The command specscope lossless compares them."
        )
    counts = f"{report.outputs_differing} of {report.outputs_compared} outputs differ"
    return {
        "equal": f"Outputs are equal: {counts} between arms.",
        "as_twins": f"{counts} between arms, no more than target-only differs from itself.",
        "undecided": f"{counts} between arms; too few outputs of target-only are known twice: "
        "send some requests twice under k0.",
        "differs": f"Speculation changes outputs: {counts}, more than target-only differs from "
        "itself.",
    }[report.outputs_state]


FIELDS = {
    "dram_active": "memory busy",
    "sm_active": "multiprocessors busy",
    "sm_occupancy": "warps in flight",
    "tensor_active": "tensor cores busy",
    "gpu_utilisation": "time with a kernel",
    "memory_utilisation": "time with memory traffic",
    "power": "power",
    "sm_clock": "multiprocessor clock",
    "memory_clock": "memory clock",
    "memory_used": "memory in use",
}


SCALES = {"1": ("%", 100.0), "bytes": ("GB", 1e-9), "bytes/s": ("GB/s", 1e-9)}


def device_said(row: DeviceRow) -> tuple[str, str, float]:
    """A device field: its name, its unit on the page, and the factor to that unit."""
    name = FIELDS.get(row.field, row.field.replace("_", " "))
    unit, scale = SCALES.get(row.unit, (row.unit, 1.0))
    return name, unit, scale


def without_devices(report: Report) -> str:
    """Why there are no figures of devices, in a sentence."""
    reasons = sorted({row.reason for row in report.devices if row.reason})
    if not reasons:
        return "No device was sampled in this period. The sidecar samples GPUs if it can see them."
    return f"The sidecars could read no device: {'; '.join(reasons)}."


MOST_NAMES = 3  # of replicas that are alike


def alike(report: Report) -> list[tuple[str, ReplicaRow]]:
    """Groups of equal replicas: their names, and the row of the one that started first."""
    kinds: dict[tuple[str | None, ...], list[ReplicaRow]] = {}
    for one in report.replicas:
        kinds.setdefault((one.engine, one.target, one.draft, one.device), []).append(one)
    rows = []
    for of_kind in kinds.values():
        names = sorted({one.replica for one in of_kind})
        more = len(names) - MOST_NAMES
        shown = ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
        rows.append((shown, min(of_kind, key=lambda one: one.started_at)))
    return rows
