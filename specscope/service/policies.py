"""The newest policy in the store, which sidecars follow."""

from __future__ import annotations

from typing import NamedTuple

from specscope import queries
from specscope.store import Store

NEWEST = queries.policies() + " DESC LIMIT 1"


class Newest(NamedTuple):
    """Its number, and what goes to the sidecars."""

    number: int
    json: str


def newest(store: Store) -> Newest | None:
    """None where there is no policy."""
    rows = store.rows(NEWEST)
    return Newest(rows[0]["policy"], rows[0]["table"]) if rows else None
