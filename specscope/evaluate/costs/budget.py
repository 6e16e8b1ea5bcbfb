"""Where verified positions are spent best: over a batch, and over a tree of proposals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Budget:
    """Positions to verify in a batch's round: how many, and tokens per ms at that."""

    positions: int
    tokens_per_ms: float


def best_budget(survivals: Sequence[Sequence[float]], step_ms: Callable[[int], float]) -> Budget:
    """How many draft positions a batch's verify pass should hold, the likeliest first.

    survivals: by sequence, P(accepted >= j) for j = 1..k, not rising, so a prefix is always
    taken before what follows it. step_ms(n): time of a round with n draft positions. Every
    number is tried: steps are a staircase, and a descent from either end stops too early.
    ValueError for an empty batch or a time that is not positive.
    """
    if not survivals:
        raise ValueError("a batch needs a sequence")
    ordered = sorted((s for row in survivals for s in row), reverse=True)
    best, tokens = Budget(0, 0.0), float(len(survivals))
    for positions in range(len(ordered) + 1):
        if positions:
            tokens += ordered[positions - 1]
        time = step_ms(positions)
        if not time > 0:
            raise ValueError(f"a step of {positions} positions takes {time} ms")
        if tokens / time > best.tokens_per_ms:
            best = Budget(positions, tokens / time)
    return best


def tree_tokens(paths: Sequence[Sequence[float]]) -> float:
    """Mean tokens that a tree of proposals yields, its own bonus token counted.

    paths: for each node, the chances along its path from the root, itself included; the node is
    reached with their product. Source: Sequoia (arXiv 2402.12374).
    """
    total = 1.0
    for path in paths:
        chance = 1.0
        for step in path:
            if not 0.0 <= step <= 1.0:
                raise ValueError(f"a chance lies within 0..1, got {step}")
            chance *= step
        total += chance
    return total


def tree_speedup(tokens: float, depth: int, verify_ratio: float, draft_ratio: float) -> float:
    """Speedup of a tree: tokens / (verify_ratio + depth * draft_ratio).

    verify_ratio: verifying the tree over one target-only step; draft_ratio: a draft level over
    it. A chain never exceeds 1 / (1 - chance of its best child).
    """
    cost = verify_ratio + depth * draft_ratio
    if depth < 0 or cost <= 0:
        raise ValueError(f"no such tree: depth {depth}, cost {cost}")
    return tokens / cost
