"""How long blocks must be, how long pairs take, and what looking may cost."""

from __future__ import annotations

from dataclasses import dataclass

SHORTEST_BLOCK_S = 120.0


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """Length of a block and of its beginning that no estimate uses. [s]"""

    length_s: float
    burn_in_s: float


def plan_blocks(mean_residence_s: float, p95_residence_s: float) -> BlockPlan:
    """Blocks of at least 120 s and 16 mean residences of a request, a quarter of it burn-in.

    residence: time a request decodes. Burn-in is four mean residences, or the 95th percentile
    where the tail is heavier; the block grows so that burn-in stays a quarter. Shorter blocks
    carry the other arm's requests along: never shorten them to get more pairs.
    """
    if not 0 < mean_residence_s <= p95_residence_s:
        raise ValueError(f"residences must rise: {mean_residence_s}, {p95_residence_s}")
    burn_in = max(4.0 * mean_residence_s, p95_residence_s)
    length = max(SHORTEST_BLOCK_S, 16.0 * mean_residence_s, 4.0 * burn_in)
    return BlockPlan(length, max(burn_in, length / 4.0))


def hours_to_verdict(pairs: int, replicas: int, block_s: float, share: float) -> float:
    """Hours until `pairs` pairs are whole, where `share` of the block pairs is experimental."""
    if replicas < 1 or not 0 < share <= 1 or block_s <= 0:
        raise ValueError(f"no such experiment: {replicas} replicas, share {share}")
    per_hour = replicas * share * 3600.0 / (2.0 * block_s)
    return pairs / per_hour


def affordable_share(speedup: float, budget: float = 0.01) -> float:
    """Share of blocks that may run target-only where speculation wins, at a cost of `budget`.

    budget / (1 - 1 / speedup), at most 1: a cell of 3.65 can afford 1.4 %, one of 1.1 11 %.
    """
    if speedup <= 1.0:
        return 1.0
    return min(1.0, budget / (1.0 - 1.0 / speedup))
