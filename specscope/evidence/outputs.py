"""Read outputs that must agree between arms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from specscope import queries
from specscope.evaluate.outputs.copies import Copies, OutputCheck, check_outputs
from specscope.queries.period import since_condition
from specscope.store.connection import Store

MOST = 500_000
"""Rows of requests from which on only a share of the contents is looked at."""


def read_outputs(store: Store, since: int = 0, most: int = MOST) -> list[OutputCheck]:
    """Checks of every arm on requests admitted since a time, ns since 1970.

    Raises StoreError if the store cannot be read.
    """
    where = since_condition("admitted_at", since)
    rows = store.rows(queries.outputs(where, every=_every(store, where, most)))
    return check_outputs(_copies(rows))


def read_side_outputs(
    store: Store,
    policies: Iterable[int],
    ran: Mapping[tuple[str, str], str],
    baseline: str,
    most: int = MOST,
) -> list[OutputCheck]:
    """Checks of a crossover by router, whose arms are the configurations of its boots.

    ran: configuration by replica and boot. Raises StoreError if the store cannot be read.
    """
    where = f"policy IN ({', '.join(f'{number:d}' for number in policies)})"
    rows = store.rows(queries.outputs(where, _every(store, where, most), ran, baseline))
    return check_outputs(_copies(rows), baseline)


def _every(store: Store, where: str, most: int) -> int:
    count = sum(int(row["requests"]) for row in store.rows(queries.output_count(where)))
    return max(1, count // most)


def _copies(rows: Iterable[dict[str, Any]]) -> list[Copies]:
    return [Copies(class_=row.pop("class"), **row) for row in rows]
