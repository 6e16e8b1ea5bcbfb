"""The model card and the device of an epoch, from its boots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from specscope.evaluate.costs.roofline import PEAKS, DevicePeaks, ModelShape


@dataclass(frozen=True, slots=True)
class Machine:
    """Models and devices of an epoch; unknown fields are None.

    shape: the target's shape, with the parameters active per token. device: peaks of one device.
    devices: devices of the tensor-parallel group. experts: 0 or None for a dense model.
    active_share: share of the parameters active per token. draft_bytes: bytes of the draft's
    weights. missing: columns that the boot lacks.
    """

    shape: ModelShape | None = None
    device: DevicePeaks | None = None
    devices: int = 1
    experts: int | None = None
    active_share: float | None = None
    draft_parameters: float | None = None
    draft_bytes: float | None = None
    missing: tuple[str, ...] = ()

    def lacks(self, *columns: str) -> tuple[str, ...]:
        """The unknown ones of these columns, as `boot.column`."""
        return tuple(f"boot.{name}" for name in columns if name in self.missing)


_CARD = ("parameters", "bytes_per_weight", "kv_bytes_per_token")
_DRAFT = ("draft_parameters", "draft_bytes_per_weight")

UNKNOWN = Machine(missing=(*_CARD, *_DRAFT, "gpu_type", "experts", "active_parameters"))


def machine_of(boot: Mapping[str, Any]) -> Machine:
    """Build from a row of `boot`. The device's peaks are known if `roofline.PEAKS` has its name."""
    device = _peaks(boot.get("gpu_type"))
    names = (*_CARD, *_DRAFT, "experts", "active_parameters")
    missing = {name for name in names if boot.get(name) is None}
    if device is None:
        missing.add("gpu_type")
    card: dict[str, float] = {name: float(boot[name]) for name in names if name not in missing}
    parameters, active = card.get("parameters"), card.get("active_parameters")
    return Machine(
        shape=None
        if missing & set(_CARD)
        else ModelShape(
            active or card["parameters"], card["kv_bytes_per_token"], card["bytes_per_weight"]
        ),
        device=device,
        devices=max(1, int(boot.get("tensor_parallel") or 1)),
        experts=int(card["experts"]) if "experts" in card else None,
        active_share=active / parameters if active and parameters else None,
        draft_parameters=card.get("draft_parameters"),
        draft_bytes=None
        if missing & set(_DRAFT)
        else card["draft_parameters"] * card["draft_bytes_per_weight"],
        missing=tuple(sorted(missing)),
    )


def machines_of(boots: Iterable[Mapping[str, Any]]) -> dict[str, Machine]:
    """The machine of each epoch, from rows of `boot`."""
    return {boot["epoch"]: machine_of(boot) for boot in boots}


def _peaks(name: str | None) -> DevicePeaks | None:
    """Peaks by a device's name, such as `NVIDIA H100 80GB HBM3`; the longest match counts."""
    known = [key for key in PEAKS if key in (name or "")]
    return PEAKS[max(known, key=len)] if known else None
