"""The policy that each replica follows, from its newest round."""

from __future__ import annotations

from specscope import queries
from specscope.queries.period import since_condition
from specscope.store.connection import Store

LATELY_NS = 600 * 10**9  # within which a replica that runs has sent a round


def replicas_by_policy(store: Store, now: int) -> dict[int | None, list[str]]:
    """Replicas with recent rounds, by the policy of their newest round; the key None means no
    policy.

    now: ns since 1970. Raises StoreError if the store cannot be read.
    """
    lately = since_condition("started_at", now - LATELY_NS)
    found: dict[int | None, list[str]] = {}
    for row in store.rows(queries.policies_followed(lately)):
        found.setdefault(row["policy"], []).append(row["replica"])
    return found
