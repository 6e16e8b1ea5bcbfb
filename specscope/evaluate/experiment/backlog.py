"""Detect pairs in which one arm builds a queue that the next block drains.

Such a pair compares neither steady states nor capacities: the slower arm's block leaves work to the
faster arm's block, which would otherwise idle. The tokens that each serves while its queue is not
empty still give a lower bound of the ratio of capacities at saturation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from specscope.evaluate.experiment.blocks import BASELINE, BlockTime
from specscope.evaluate.experiment.objectives import QUEUE, degree
from specscope.evaluate.experiment.pairs import Pair
from specscope.evaluate.statistics.ratio import Ratio, ratio_of_sums, welch_half_width

# A backlog is spoken of from this mean unevenness of pairs on.
_UNEVEN = 0.2
# Blocks that a capacity is based on at least, counted by their weight.
_FEWEST = 3


@dataclass(frozen=True, slots=True)
class Backlog:
    """The effect of a queue on the pairs of an arm and k0.

    share: share of pairs whose blocks begin or end with different queues, 0..1; a partial
    difference counts in part. capacity: lower bound of the arm's tokens per second over
    target-only's, at saturation. low: the lower end of its interval. Both are None if target-only
    was never saturated throughout a block.
    """

    arm: str
    share: float
    capacity: float | None
    low: float | None


def find_backlog(pairs: Sequence[Pair], arm: str, level: float = 0.95) -> Backlog | None:
    """Find a backlog in the pairs of an arm and k0; None if there is none, or if the queue is
    unknown."""
    both = [
        (pair.blocks[arm], pair.blocks[BASELINE])
        for pair in pairs
        if arm in pair.blocks and BASELINE in pair.blocks
    ]
    ends = [(_ends(one), _ends(base)) for one, base in both]
    known = [(*one, *base) for one, base in ends if one is not None and base is not None]
    if len(known) < _FEWEST:
        return None
    share = math.fsum(max(queues) - min(queues) for queues in known) / len(known)
    if share < _UNEVEN:
        return None
    # The arm's own queue may never last for a block; one that begins with a queue is busiest.
    fast = _rate(
        [(one, queues[0]) for (one, _), (queues, _) in zip(both, ends, strict=True) if queues]
    )
    slow = _rate(
        [(base, min(queues)) for (_, base), (_, queues) in zip(both, ends, strict=True) if queues]
    )
    if fast is None or slow is None:
        return Backlog(arm, share, None, None)
    parts = [((one.se or 0.0) / one.value, blocks - 1.0) for one, blocks in (fast, slow)]
    capacity = fast[0].value / slow[0].value
    return Backlog(arm, share, capacity, capacity * math.exp(-welch_half_width(parts, level)))


def _ends(block: BlockTime) -> tuple[float, float] | None:
    """The degree of saturation at the beginning and at the end of a block."""
    if block.waiting_first is None or block.waiting_last is None or not block.rounds:
        return None
    running = block.merged * block.request_rounds / block.rounds
    return degree(block.waiting_first / running, QUEUE), degree(block.waiting_last / running, QUEUE)


def _rate(blocks: Sequence[tuple[BlockTime, float]]) -> tuple[Ratio, float] | None:
    """Tokens over time of weighted blocks, and their effective number; None below three."""
    weights = [weight for _, weight in blocks]
    squares = math.fsum(weight**2 for weight in weights)
    number = math.fsum(weights) ** 2 / squares if squares else 0.0
    if number < _FEWEST:
        return None
    emitted = [weight * block.emitted for block, weight in blocks]
    return ratio_of_sums(emitted, [weight * block.wall_us for block, weight in blocks]), number
