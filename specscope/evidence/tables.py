"""Where evidence of live traffic begins: with its epoch, and with the table that it is about."""

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
    """Blocks without those of a table that another one of the same name replaced.

    An arm is called `current`, or after a file, whatever the table was. The one that counts is
    that of the newest policy whose blocks the epoch holds. An arm that changes a class of `current`
    goes with it, too. A table that cannot be read is no other policy's. Arms of a fixed length
    stay, and so do crossovers.
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
    """The table that each arm ran, by epoch and arm, of blocks under the newest table alone.

    Arms of a fixed length are left out, and so are arms whose policy does not say.
    """
    arms = {(b.epoch, b.arm): b.policy for b in blocks if arm_k(b.arm) is None}
    found = {key: _table(policies.get(number), key[1]) for key, number in arms.items()}
    return {key: table for key, table in found.items() if table is not None}


def reaches_back(blocks: Iterable[BlockTime], since: int) -> list[str]:
    """A note where blocks from before a period count, ns since 1970; none where there are none."""
    earliest = min((block.first_at for block in blocks), default=since)
    if earliest >= since:
        return []
    day = datetime.fromtimestamp(earliest / 1e9, UTC).date()
    return [
        f"verdicts on live traffic use all blocks of their epoch, since {day}: a shorter period "
        "would start their intervals anew"
    ]


def _names(arm: str) -> tuple[str, ...]:
    """The arm, and the table in force if the arm changes a part of it."""
    return (CURRENT, arm) if arm.startswith(f"{CURRENT}+") else (arm,)


def _table(body: Mapping[str, Any] | None, arm: str) -> GateTable | None:
    """None if the policy is not known or its table cannot be read."""
    if not body:
        return None
    try:
        return read_table(body) if arm == CURRENT else table_of_arm(body, arm)
    except UsageError:
        return None
