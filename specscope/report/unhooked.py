"""Engines that are followed without a hook: their sums, in words. No verdict is based on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specscope import queries
from specscope.queries.period import since_condition
from specscope.report.quality import MOST_REPLICAS
from specscope.store.connection import Store
from specscope.store.literals import quoted


def engines_in_words(store: Store, since: int, boots: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence for each replica without a hook, MOST_REPLICAS at most.

    since: ns since 1970. Raises StoreError if the store cannot be read.
    """
    replicas = {boot["replica"] for boot in boots if _FOLLOWED in (boot["configuration"] or "")}
    if not replicas:
        return []
    names = ", ".join(map(quoted, sorted(replicas)[:MOST_REPLICAS]))
    where = f"{since_condition('sampled_at', since)} AND replica IN ({names})"
    return sums_in_words(store.rows(queries.engine_sums(where)))


_FOLLOWED = '"followed by"'  # what their boots have in place of a configuration


def sums_in_words(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """rows: of `queries.engine_sums`."""
    return [
        f"{row['replica']} has no hook. Its engine says: {'; '.join(said)}. Sums do not show the "
        "cost of a draft, so no verdict is based on them."
        for row in rows
        if (said := _said(row))
    ]


def _said(row: Mapping[str, Any]) -> list[str]:
    said = []
    drafts, rounds, passes = (row[name] or 0 for name in ("drafts", "request_rounds", "passes"))
    if drafts and row["accepted"] is not None:
        said.append(f"{1 + row['accepted'] / drafts:.2f} tokens per drafted round")
    if rounds and row["drafts"] is not None:
        said.append(f"a draft in {drafts / rounds:.0%} of the request-rounds")
    if row["tokens"] is not None and row["seconds"]:
        said.append(f"{row['tokens'] / row['seconds']:.1f} output tokens per second")
    if passes:
        said.append(f"{row['pass_ms'] / passes:.1f} ms per pass, {rounds / passes:.1f} sequences")
    if row["missed"]:
        said.append(f"{row['missed']:.0f} messages did not arrive")
    return said
