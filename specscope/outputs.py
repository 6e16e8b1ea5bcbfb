"""Outputs that must agree between arms, read from the store."""

from __future__ import annotations

from specscope import queries
from specscope.evaluate.outputs import Copies, OutputCheck, check_outputs
from specscope.period import since_condition
from specscope.store import Store

MOST = 500_000
"""Rows of requests from which on only a share of the contents is looked at."""


def read_outputs(store: Store, since: int = 0, most: int = MOST) -> list[OutputCheck]:
    """Checks of every arm on requests admitted since a time, ns since 1970.

    Raises StoreError where the store cannot be read.
    """
    where = since_condition("admitted_at", since)
    count = sum(row["requests"] for row in store.rows(queries.output_count(where)))
    rows = store.rows(queries.outputs(where, every=max(1, count // most)))
    return check_outputs(Copies(class_=row.pop("class"), **row) for row in rows)
