"""Where evidence of open traffic begins: with its epoch, and with the table that it is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from specscope.errors import UsageError
from specscope.evaluate.experiment.blocks import BlockTime
from specscope.evidence.crossovers import sides_of
from specscope.policy.table import GateTable, read_table

Policies = Mapping[int, Mapping[str, Any]]


def under_newest_table(blocks: Sequence[BlockTime], policies: Policies) -> list[BlockTime]:
    """Blocks without those of a table, whole or with one cell changed, that another one replaced.

    Their arm is called `current` whatever the table was. The one that counts is that of the newest
    policy whose blocks the epoch holds. Arms of a fixed length stay, and so do crossovers.
    """
    crossed = sides_of(policies)
    of_table = [b for b in blocks if _follows_table(b) and b.policy not in crossed]
    newest: dict[str, int] = {}
    for block in of_table:
        newest[block.epoch] = max(block.policy, newest.get(block.epoch, 0))
    tables = {number: _table(policies.get(number, {})) for number in {b.policy for b in of_table}}
    past = {(b.epoch, b.policy) for b in of_table if tables[b.policy] != tables[newest[b.epoch]]}
    return [b for b in blocks if not (_follows_table(b) and (b.epoch, b.policy) in past)]


def reaches_back(blocks: Iterable[BlockTime], since: int) -> list[str]:
    """A note where blocks from before a period count, ns since 1970; none where there are none."""
    earliest = min((block.first_at for block in blocks), default=since)
    if earliest >= since:
        return []
    day = datetime.fromtimestamp(earliest / 1e9, UTC).date()
    return [
        f"verdicts on open traffic rest on all blocks of their epoch, since {day}: they are read "
        "while evidence grows, and a window that slides would start their intervals anew"
    ]


def _follows_table(block: BlockTime) -> bool:
    return block.arm == "current" or block.arm.startswith("current+")


def _table(body: Mapping[str, Any]) -> GateTable | None:
    try:
        return read_table(body)
    except UsageError:
        return None
