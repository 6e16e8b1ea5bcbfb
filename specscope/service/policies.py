"""The newest policy in the store, which sidecars follow, and the check of the next one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

from specscope import queries
from specscope.errors import NumberTaken
from specscope.policy.events import policy_event
from specscope.policy.row import policy_row
from specscope.queries.delivery import LAST_POLICY
from specscope.store.connection import Store
from specscope_hook.errors import PolicyError
from specscope_hook.layout import CONTROL_BYTES

NEWEST = queries.policies() + " DESC LIMIT 1"


class Newest(NamedTuple):
    """The newest policy: its number and its text for the sidecars."""

    number: int
    json: str


def newest(store: Store) -> Newest | None:
    """Read the newest policy; None if there is none."""
    rows = store.rows(NEWEST)
    return Newest(rows[0]["policy"], rows[0]["table"]) if rows else None


def proposed(number: int, text: str, note: str, now: int) -> Callable[[Store], Newest]:
    """A function that adds an operator's policy to a store if its number is still the next one.

    now: ns since 1970. Raises PolicyError if the hook cannot follow the policy. The returned
    function raises NumberTaken if another operator was first, or StoreError.
    """
    if len(text.encode()) > CONTROL_BYTES:
        raise PolicyError(f"a policy of {len(text.encode())} bytes; at most {CONTROL_BYTES}")
    try:
        body = json.loads(text)
        row = policy_row(body, note, now)
    except (ValueError, TypeError, RecursionError) as error:
        raise PolicyError(f"not a policy: {error}") from error
    kept = Newest(*(row.column(name)[0].as_py() for name in ("policy", "table")))
    if kept.number > LAST_POLICY:
        raise PolicyError(f"policy {kept.number}: the last number is {LAST_POLICY}")
    if kept.number != number:
        raise PolicyError(f"the policy has number {kept.number}, the call {number}")

    def add(store: Store) -> Newest:
        before = newest(store)
        last = before.number if before else 0
        if number <= last:
            raise NumberTaken(f"policy {number} exists already; the newest is {last}: look again")
        if number > last + 1:
            raise NumberTaken(f"policy {number} is not the next one; that is {last + 1}")
        store.insert("policy", row)
        store.add("event", [policy_event(body, note, now)])
        return kept

    return add
