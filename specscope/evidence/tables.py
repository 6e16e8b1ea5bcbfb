"""The begin of live evidence: the begin of its epoch and of its table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from specscope.errors import UsageError
from specscope.evaluate.experiment.blocks import BlockTime, OfBlock, arm_k
from specscope.evidence.crossovers import sides_of
from specscope.policy.arms import table_of_arm
from specscope.policy.table import GateTable, read_table
from specscope_hook.gate import CURRENT

Row = TypeVar("Row", bound=OfBlock)
Policies = Mapping[int, Mapping[str, Any]]


def under_newest_table(blocks: Sequence[Row], policies: Policies) -> list[Row]:
    """Drop blocks of a table that a newer table of the same name replaced.

    The arm names `current` and the name of a file can stand for several tables in turn.
    The table that
    counts is the one of the newest policy with blocks in the epoch. The same rule applies to an arm
    that changes one class of `current`. An unreadable table differs from all others. Arms of a
    fixed length and crossovers stay.
    """
    crossed = sides_of(policies)
    of_table = [b for b in blocks if arm_k(b.arm) is None and b.policy not in crossed]
    newest: dict[tuple[str, str], int] = {}
    for block in of_table:
        for name in _names(block.arm):
            key = block.epoch, name
            newest[key] = max(block.policy, newest.get(key, 0))
    tables = {
        (number, name): _table(policies.get(number), name) or number
        for number, arm in {(b.policy, b.arm) for b in of_table}
        for name in _names(arm)
    }
    past = {
        (b.epoch, b.policy, b.arm)
        for b in of_table
        for name in _names(b.arm)
        if tables[b.policy, name] != tables[newest[b.epoch, name], name]
    }
    return [b for b in blocks if (b.epoch, b.policy, b.arm) not in past]


def tables_of_arms(
    blocks: Iterable[BlockTime], policies: Policies
) -> dict[tuple[str, str], GateTable]:
    """The table of each arm, by epoch and arm, for blocks under the newest table.

    Arms of a fixed length, and arms that their policy does not define, are left out.
    """
    arms = {(b.epoch, b.arm): b.policy for b in blocks if arm_k(b.arm) is None}
    found = {key: _table(policies.get(number), key[1]) for key, number in arms.items()}
    return {key: table for key, table in found.items() if table is not None}


def reaches_back(blocks: Iterable[BlockTime], since: int) -> list[str]:
    """A note if blocks from before a period (ns since 1970) count; otherwise none."""
    earliest = min((block.first_at for block in blocks), default=since)
    if earliest >= since:
        return []
    day = datetime.fromtimestamp(earliest / 1e9, UTC).date()
    return [
        f"verdicts on live traffic use all blocks of their epoch, since {day}: a shorter period "
        "would restart their intervals"
    ]


def _names(arm: str) -> tuple[str, ...]:
    """The arm, and the table in force if the arm changes a part of it."""
    return (CURRENT, arm) if arm.startswith(f"{CURRENT}+") else (arm,)


def _table(body: Mapping[str, Any] | None, arm: str) -> GateTable | None:
    """The table in force under a policy; None if the policy is unknown or its table is
    unreadable."""
    if not body:
        return None
    try:
        return read_table(body) if arm == CURRENT else table_of_arm(body, arm)
    except UsageError:
        return None
