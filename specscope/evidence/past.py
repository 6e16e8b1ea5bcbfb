"""Past verdicts that the service stored, and later measurements of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specscope import queries
from specscope.evaluate.experiment.segments import Segment
from specscope.queries.period import since_condition
from specscope.store.connection import Store


@dataclass(frozen=True, slots=True)
class PastVerdict:
    """The last verdict of a day on one segment.

    assessed_at: ns since 1970. design: kind of the experiment. speedup: arm over baseline, with its
    interval; None if there was none.
    """

    assessed_at: int
    epoch: str
    design: str
    segment: Segment
    action: str
    k: int | None
    arm: str | None
    baseline: str | None
    speedup: float | None
    low: float | None
    high: float | None
    pairs: int
    grade: str
    metric: str | None


def read_past(store: Store, since: int) -> list[PastVerdict]:
    """Verdicts since a time, ns since 1970, oldest first. Raises StoreError."""
    rows = store.rows(queries.verdict_history(since_condition("assessed_at", since)))
    return [_past(row) for row in rows]


def promises(past: Sequence[PastVerdict], since: int, until: int) -> list[PastVerdict]:
    """The last verdict on each segment in a period (ns since 1970) that named a gain or a loss."""
    last: dict[tuple[str, str, Segment], PastVerdict] = {}
    for one in past:
        if since <= one.assessed_at < until:
            last[one.design, one.epoch, one.segment] = one
    return [one for one in last.values() if one.speedup is not None and one.action in _PROMISES]


_PROMISES = ("keep", "set_k", "disable", "route")


def _past(row: Mapping[str, Any]) -> PastVerdict:
    buckets = (row[name] or None for name in ("class", "context", "output", "load"))
    names = ("action", "k", "arm", "baseline", "speedup", "low", "high", "grade", "metric")
    return PastVerdict(
        assessed_at=row["assessed_at"],
        epoch=row["epoch"],
        design=row["design"],
        segment=Segment(*buckets),
        pairs=row["pairs"] or 0,
        **{name: row[name] for name in names},
    )
