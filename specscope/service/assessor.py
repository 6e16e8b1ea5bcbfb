"""Judges the store's evidence while it grows and keeps the answers in table `assessment`.

Dashboards read these rows, so they show what `specscope report` and `gate recommend` show.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from specscope import queries
from specscope.policy.stored import newest_with_table
from specscope.store.connection import Store
from specscope_agent.schemas import schema

if TYPE_CHECKING:
    from specscope.assess import Assessment

HOUR_NS = 3600 * 10**9
PERIOD_NS = 7 * 24 * HOUR_NS  # as a report's
STALE_NS = HOUR_NS  # after which answers are written again, so that a panel of an hour has some


class Assessor:
    """Judges when blocks or policies have changed, or the last answers are stale."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: list[dict[str, Any]] = []
        self._at = 0
        self.judged: Assessment | None = None
        """The newest assessment; None before the first."""

    def tick(self, now: int | None = None) -> int:
        """Judge if there is reason to. Returns how many segments were written.

        now: ns since 1970. Raises StoreError; the next tick tries again.
        """
        now = time.time_ns() if now is None else now
        state = self._store.rows(queries.evidence_state())
        if not state or (state == self._seen and now - self._at < STALE_NS):
            return 0
        rows = self._judge(now)
        if rows:
            self._store.insert("assessment", pa.Table.from_pylist(rows, schema("assessment")))
        self._seen, self._at = state, now
        return len(rows)

    def _judge(self, now: int) -> list[dict[str, Any]]:
        # numpy and scipy take a second to load; a service that never judges does without.
        from specscope.assess import assess_in_force
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


def verdict_row(verdict: Any, design: str) -> dict[str, Any]:
    """The columns of `assessment` that a verdict decides."""
    from specscope.assess import answer, deciding
    from specscope.evaluate.verdict import words

    one, segment = deciding(verdict), verdict.segment
    return {
        "epoch": verdict.epoch,
        "design": design,
        "class": segment.class_ or "",
        "context": segment.context or "",
        "output": segment.output or "",
        "load": segment.load or "",
        "action": verdict.action,
        "k": verdict.k,
        "arm": one.arm if one else None,
        "baseline": one.baseline if one else None,
        "grade": verdict.grade,
        "confidence": verdict.confidence,
        "metric": verdict.metric or None,
        "speedup": one.value if one else None,
        "low": one.low if one else None,
        "high": one.high if one else None,
        "pairs": verdict.pairs,
        "pairs_needed": verdict.pairs_needed,
        "cause": ", ".join(one.cause for one in verdict.cause_odds) or None,
        "body": json.dumps(
            {
                "segment": asdict(answer(verdict)),
                "flags": list(verdict.flags),
                "reasons": [words.reason_json(reason) for reason in verdict.reasons],
                "tradeoffs": [asdict(tradeoff) for tradeoff in verdict.tradeoffs],
            }
        ),
    }
