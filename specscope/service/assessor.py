"""Judge the store's evidence while it grows, and store the verdicts in table `assessment`.

Dashboards read these rows, so they agree with `specscope report` and `gate recommend`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from specscope import queries
from specscope.policy.stored import newest_with_table
from specscope.store.connection import Store

if TYPE_CHECKING:
    from specscope.assess import Assessment

HOUR_NS = 3600 * 10**9
PERIOD_NS = 7 * 24 * HOUR_NS  # as a report's
STALE_NS = HOUR_NS  # after which answers are written again, so that a panel of an hour has some


class Assessor:
    """Judge the evidence if blocks or policies have changed, or if the last verdicts are stale."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: list[dict[str, Any]] = []
        self._at = 0
        self.judged: Assessment | None = None
        """The newest assessment; None before the first."""

    def tick(self, now: int | None = None) -> int:
        """Judge if necessary. Returns the number of written segments.

        now: ns since 1970. Raises StoreError; the next tick tries again.
        """
        now = time.time_ns() if now is None else now
        state = self._store.rows(queries.evidence_state())
        if not state or (state == self._seen and now - self._at < STALE_NS):
            return 0
        rows = self._judge(now)
        if rows:
            self._store.add("assessment", rows)
        self._seen, self._at = state, now
        return len(rows)

    def _judge(self, now: int) -> list[dict[str, Any]]:
        # numpy and scipy take a second to load; a service that never judges does without.
        from specscope.assess import assess_in_force, verdict_row
        from specscope.evidence.read import read

        since = now - PERIOD_NS
        evidence = read(self._store, since)
        self.judged = judged = assess_in_force(evidence)
        policy = newest_with_table(evidence.policies)
        return [
            {
                "assessed_at": now,
                "since": since,
                "tenant": "",
                "policy": None if policy is None else policy.number,
                **verdict_row(verdict, design),
            }
            for verdict, design in judged.by_design
        ]
