"""Rows of `device` for engines that only tell sums of an interval."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

INTERVAL_NS = 10_000_000_000


class Sum(NamedTuple):
    """One value of an interval; a gauge is what it is at its end."""

    field: str
    value: float | None
    unit: str
    reason: str = ""
    """Why the value is unknown."""


def sum_rows(replica: str, began: int, ended: int, sums: Iterable[Sum]) -> list[dict[str, Any]]:
    """The rows of one interval.

    began, ended: ns since 1970
    """
    return [
        {
            "replica": replica,
            "sampled_at": ended,
            "window_ms": (ended - began) / 1e6,
            "uuid": "",
            "gpu_instance": None,
            "field": one.field,
            "value": one.value,
            "unit": one.unit,
            "reason": one.reason,
        }
        for one in sums
    ]
