"""Rows of `device`: assign each reading to the replica on the device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from specscope_agent.nvml_fields import Reading
from specscope_agent.rings import OpenRing
from specscope_agent.sampler import bare
from specscope_agent.source import Source


def rows_by_ring(
    readings: Iterable[Reading], rings: Sequence[OpenRing]
) -> dict[Source, list[dict[str, Any]]]:
    """Rows of `device` by the source whose batches contain them.

    A device that no boot names belongs to the newest ring. Without a ring its reading is dropped.
    """
    rows: dict[Source, list[dict[str, Any]]] = {}
    for reading in readings if rings else ():
        ring = next((ring for ring in rings if _runs_on(ring, reading.uuid)), rings[-1])
        row = {"replica": ring.source.replica, **reading._asdict()}
        rows.setdefault(ring.source, []).append(row)
    return rows


def _runs_on(ring: OpenRing, uuid: str) -> bool:
    return bare(uuid) in map(bare, ring.origin.boot.get("gpu_uuids", ()))
