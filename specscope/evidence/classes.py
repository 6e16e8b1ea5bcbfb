"""Read the times per output token of each class in shared batches, for checks of latency limits."""

from __future__ import annotations

from collections.abc import Sequence

from specscope import queries
from specscope.errors import StoreError, UsageError
from specscope.evaluate.experiment.blocks import BlockClass
from specscope.evidence.records import is_large, read_records
from specscope.policy.stored import WITH_TABLE, StoredPolicy
from specscope.policy.table import GateTable
from specscope.queries.period import evidence_condition
from specscope.store.connection import Store, error_code

UNKNOWN_TABLE = 60  # as ClickHouse numbers it


def read_class_blocks(store: Store, since: int = 0) -> list[BlockClass]:
    """Times per output token of each class in the blocks of a period that begins at `since` (ns).

    For a large fleet, simultaneous blocks are merged, as in `read_blocks`. Empty if an older
    version created the store.
    """
    where = evidence_condition(since)
    classes = queries.pooled_classes if is_large(store, where) else queries.block_classes
    try:
        rows = read_records(store, classes(where), BlockClass)
    except StoreError as error:
        if error_code(error) == UNKNOWN_TABLE:
            return []
        raise
    return rows


def under_table(
    rows: Sequence[BlockClass], policies: Sequence[StoredPolicy], table: GateTable
) -> list[BlockClass]:
    """Keep only blocks of policies with this table, because latencies under another table are
    outdated."""
    same = {policy.number for policy in policies if _has(policy, table)}
    return [row for row in rows if row.policy in same]


def _has(policy: StoredPolicy, table: GateTable) -> bool:
    try:
        return policy.kind in WITH_TABLE and policy.table == table
    except UsageError:
        return False
