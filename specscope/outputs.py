"""Outputs that must agree between arms, read from the store."""

from __future__ import annotations

from specscope import queries
from specscope.evaluate.outputs import Copies as Copies
from specscope.evaluate.outputs import OutputCheck, check_outputs
from specscope.period import since_condition
from specscope.store import Store


def read_outputs(store: Store, since: int = 0) -> list[OutputCheck]:
    """Checks of every arm on requests admitted since a time, ns since 1970.

    Raises StoreError where the store cannot be read.
    """
    rows = store.rows(queries.outputs(since_condition("admitted_at", since)))
    return check_outputs(Copies(class_=row.pop("class"), **row) for row in rows)
