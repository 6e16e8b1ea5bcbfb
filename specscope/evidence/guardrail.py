"""Void pairs: those in which a guardrail acted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from specscope import queries
from specscope.evaluate.experiment.blocks import BlockTime, LeftOut
from specscope.store.connection import Store

SLACK_NS = 10**9  # between the sidecar's decision and the hook's next round


class Hold(NamedTuple):
    """One period in which a guardrail held a boot at k = 0 under a policy. ns since 1970."""

    replica: str
    boot: str
    policy: int
    fired_at: int
    until: int


def read_holds(store: Store) -> list[Hold]:
    """Read all holds of the store. Raises StoreError if it cannot be read."""
    holds = []
    for row in store.rows(queries.guardrails()):
        try:
            detail = json.loads(row["detail"])
            policy, until = int(detail["policy"]), int(detail["until"])
        except (ValueError, KeyError, TypeError):
            continue  # of a version that says it otherwise
        holds.append(Hold(row["replica"], row["boot"], policy, row["lost_at"], until))
    return holds


def void_pairs(
    blocks: Sequence[BlockTime], holds: Iterable[Hold], policies: Mapping[int, Mapping[str, Any]]
) -> list[BlockTime]:
    """Mark the blocks of pairs that overlap a hold as void.

    policies: their JSON by number, which gives the time of each pair. If a policy's pairs have no
    clock, a pair is void if one of its blocks overlaps the hold.
    """
    by_boot: dict[tuple[str, str, int], list[Hold]] = {}
    for hold in holds:
        by_boot.setdefault((hold.replica, hold.boot, hold.policy), []).append(hold)
    if not by_boot:
        return list(blocks)
    void = {_pair(block) for block in blocks if _touched(block, by_boot, policies)}
    return [
        replace(block, void=LeftOut.GUARDRAIL) if _pair(block) in void else block
        for block in blocks
    ]


def _touched(
    block: BlockTime,
    holds: Mapping[tuple[str, str, int], Sequence[Hold]],
    policies: Mapping[int, Mapping[str, Any]],
) -> bool:
    mine = holds.get((block.replica, block.boot, block.policy), ())
    length = _pair_ns(policies.get(block.policy, {}))
    if length:
        return any(h.fired_at // length <= block.pair <= h.until // length for h in mine)
    return any(block.first_at <= h.until and h.fired_at - SLACK_NS <= block.last_at for h in mine)


def _pair_ns(policy: Mapping[str, Any]) -> int:
    """Length of a pair that is numbered by time; 0 if pairs are not."""
    arms, block_ms = policy.get("arms"), policy.get("block_ms")
    if policy.get("kind") != "blocks" or not arms or not block_ms:
        return 0
    return len(arms) * int(block_ms) * 1_000_000


def _pair(block: BlockTime) -> tuple[str, str, int, int]:
    return block.replica, block.boot, block.policy, block.pair
