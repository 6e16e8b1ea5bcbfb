"""Plan an experiment: block length, time to a verdict, affordable share of target-only blocks."""

from __future__ import annotations

from dataclasses import dataclass

SHORTEST_BLOCK_S = 120.0


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """Length of a block, and of the burn-in that no estimate uses. [s]"""

    length_s: float
    burn_in_s: float


def plan_blocks(mean_residence_s: float, p95_residence_s: float) -> BlockPlan:
    """Block length: at least 120 s and 16 mean residences of a request; a quarter of it is burn-in.

    The residence is the decode time of a request. Burn-in is four mean residences, or the 95th
    percentile if that is longer. Never shorten blocks to get more pairs: shorter blocks still serve
    requests of the other arm.
    """
    if not 0 < mean_residence_s <= p95_residence_s:
        raise ValueError(f"residences must rise: {mean_residence_s}, {p95_residence_s}")
    burn_in = max(4.0 * mean_residence_s, p95_residence_s)
    length = max(SHORTEST_BLOCK_S, 16.0 * mean_residence_s, 4.0 * burn_in)
    return BlockPlan(length, max(burn_in, length / 4.0))


def hours_to_verdict(pairs: int, replicas: int, block_s: float, share: float) -> float:
    """Hours until `pairs` pairs are complete, if `share` of the block pairs is experimental."""
    if replicas < 1 or not 0 < share <= 1 or block_s <= 0:
        raise ValueError(f"no such experiment: {replicas} replicas, share {share}")
    per_hour = replicas * share * 3600.0 / (2.0 * block_s)
    return pairs / per_hour


def affordable_share(speedup: float, budget: float = 0.01) -> float:
    """Share of blocks that may run target-only at a cost of at most `budget`, if speculation wins.

    It is budget / (1 - 1 / speedup), at most 1. With a budget of 1 %, a speedup of 3.65 allows 1.4
    % and one of 1.1 allows 11 %.
    """
    if speedup <= 1.0:
        return 1.0
    return min(1.0, budget / (1.0 - 1.0 / speedup))
