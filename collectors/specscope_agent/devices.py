"""Rows of `device`: each reading goes with the replica that runs on the device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from specscope_agent.nvml import Reading
from specscope_agent.rings import OpenRing
from specscope_agent.source import Source


def rows_by_ring(
    readings: Iterable[Reading], rings: Sequence[OpenRing]
) -> dict[Source, list[dict[str, Any]]]:
    """Rows of `device` by the source whose batches carry them.

    A device that no Boot names goes with the newest ring; without a ring there is nobody to
    say it for, and the reading is left out.
    """
    rows: dict[Source, list[dict[str, Any]]] = {}
    for reading in readings if rings else ():
        ring = next(
            (r for r in rings if reading.uuid in r.origin.boot.get("gpu_uuids", ())), rings[-1]
        )
        row = {"replica": ring.source.replica, **reading._asdict()}
        rows.setdefault(ring.source, []).append(row)
    return rows
