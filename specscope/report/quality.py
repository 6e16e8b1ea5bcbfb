"""The quality of the data: lost records, boots that went silent, and device samples."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from specscope import queries
from specscope.assess import Assessment
from specscope.queries.period import since_condition
from specscope.report import model
from specscope.store.connection import Store
from specscope.store.literals import quoted
from specscope_hook.records import LOSS_REASONS

SILENCE_S = 900.0  # a sidecar that lives says something of its devices every minute
MOST_REPLICAS = 16  # whose devices are read: a fleet's samples of a week are ten billion rows

Boot = tuple[str, str]


class Records:
    """Records by boot: how many the hook numbered, how many were stored or lost, and how the boot
    ended."""

    def __init__(self, store: Store, since: int) -> None:
        """since: ns since 1970. Raises StoreError if the store cannot be read."""
        arrived = since_condition("stored_at", since)
        self._rows = store.rows(queries.reconciliation(arrived))
        self._endings = store.rows(queries.endings(arrived))
        self._losses = store.rows(queries.losses(since_condition("lost_at", since)))

    @property
    def accounting(self) -> model.Accounting:
        """Sum the records of all boots."""
        return model.Accounting(
            recorded=sum(row["recorded"] for row in self._rows),
            stored=sum(row["rounds"] + row["requests"] for row in self._rows),
            lost=sum(row["lost"] for row in self._rows),
        )

    @property
    def losses(self) -> list[model.LossRow]:
        """Lost records by reason, then boots and sidecars that went silent."""
        return [*map(_loss, self._losses), *map(_tail, filter(_is_silent, self._endings))]

    def quality(self, boots: Iterable[Boot]) -> model.Quality:
        """The losses of these boots, which weaken verdicts based on them."""
        chosen = set(boots)
        rows = [row for row in self._rows if _boot(row) in chosen]
        recorded = sum(row["recorded"] for row in rows)
        cut = [
            row
            for row in self._endings
            if _boot(row) in chosen and (row["ending"] == "tail_unknown" or _is_silent(row))
        ]
        return model.Quality(
            lost_share=sum(row["lost"] for row in rows) / recorded if recorded else None,
            tails=len(cut),
        )


def boots_of(judged: Assessment) -> dict[tuple[str, Any], set[Boot]]:
    """The boots behind each verdict, by epoch and segment."""
    boots: dict[tuple[str, Any], set[Boot]] = {}
    for experiment in judged.experiments:
        for key, usable in experiment.paired.usable.items() if experiment.paired else ():
            boots.setdefault(key, set()).update(pair.key[2:4] for pair in usable.pairs)
    return boots


def device_rows(
    store: Store, since: int, replicas: Sequence[str]
) -> tuple[list[model.DeviceRow], list[model.ThrottlingRow]]:
    """Fields of devices and causes of throttling, over at most MOST_REPLICAS replicas.

    since: ns since 1970. Raises StoreError if the store cannot be read.
    """
    chosen = sorted(set(replicas), key=lambda name: zlib.crc32(name.encode()))[:MOST_REPLICAS]
    names = ", ".join(map(quoted, chosen))
    if not chosen:
        return [], []
    where = f"{since_condition('sampled_at', since)} AND replica IN ({names})"
    fields = [
        model.DeviceRow(row["field"], **{name: row[name] for name in _FIELDS})
        for row in store.rows(queries.device_summary(where))
    ]
    causes = [
        model.ThrottlingRow(row["cause"], row["share"], row["devices"])
        for row in store.rows(queries.throttling(where))
    ]
    return fields, causes


_FIELDS = ("unit", "devices", "mean", "low", "high", "reason")


def _boot(row: Mapping[str, Any]) -> Boot:
    return row["replica"], row["boot"]


def _is_silent(row: Mapping[str, Any]) -> bool:
    return bool(row["ending"] == "open" and row["silence"] > SILENCE_S)


def _loss(row: Mapping[str, Any]) -> model.LossRow:
    return model.LossRow(
        replica=row["replica"],
        table=row["table"],
        reason=row["reason"],
        count=row["count"],
        meaning=LOSS_REASONS.get(row["reason"], "a reason that this version does not know"),
    )


def _tail(row: Mapping[str, Any]) -> model.LossRow:
    return model.LossRow(
        replica=row["replica"],
        table="ring",
        reason="tail_unknown",
        count=None,
        meaning=f"boot {row['boot']} is silent for {row['silence'] / 60:.0f} min without an end "
        "record; its last records may be missing",
    )
