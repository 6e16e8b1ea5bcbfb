"""Where one arm builds a queue that the next block drains.

Then a pair compares neither steady states nor capacities: the slower arm's block leaves work to the
faster one's, which would idle without it. What the blocks still tell is how many tokens each serves
while its queue does not empty: the ratio of capacities at saturation, from below.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from specscope.evaluate.experiment.blocks import BASELINE, BlockTime
from specscope.evaluate.experiment.pairs import Pair
from specscope.evaluate.statistics.ratio import Ratio, ratio_of_sums, welch_half_width

# Requests that wait, over those that run: below this share they are only the ones just arrived.
_ONLY_ARRIVED = 0.1
# Pairs of which this share is uneven are of no steady state.
_UNEVEN = 0.2
_FEWEST = 3


@dataclass(frozen=True, slots=True)
class Backlog:
    """share: of pairs whose blocks differ in the queue that they begin or end with, 0..1.

    capacity: tokens per second of the arm over target-only's at saturation, at least; low: the
    lower end of its interval. Both None if target-only was never saturated throughout a block.
    """

    arm: str
    share: float
    capacity: float | None
    low: float | None


def find_backlog(pairs: Sequence[Pair], arm: str, level: float = 0.95) -> Backlog | None:
    """What a queue makes of the pairs of an arm and k0; None if it makes nothing, or is unknown."""
    both = [
        (pair.blocks[arm], pair.blocks[BASELINE])
        for pair in pairs
        if arm in pair.blocks and BASELINE in pair.blocks
    ]
    ends = [(_ends(one), _ends(base)) for one, base in both]
    known = [{*one, *base} for one, base in ends if one is not None and base is not None]
    if len(known) < _FEWEST:
        return None
    share = sum(len(states) > 1 for states in known) / len(known)
    if share < _UNEVEN:
        return None
    # The arm's own queue may never last for a block; one that begins with a queue is busiest.
    ones = [one for one, _ in both if (_ends(one) or (False,))[0]]
    bases = [base for _, base in both if _ends(base) == (True, True)]
    if min(len(ones), len(bases)) < _FEWEST:
        return Backlog(arm, share, None, None)
    fast, slow = _rate(ones), _rate(bases)
    errors = [(one.se or 0.0) / one.value for one in (fast, slow)]
    half = welch_half_width(list(zip(errors, (len(ones) - 1, len(bases) - 1), strict=True)), level)
    ratio = fast.value / slow.value
    return Backlog(arm, share, ratio, ratio * math.exp(-half))


def _ends(block: BlockTime) -> tuple[bool, bool] | None:
    """Whether a block begins, and whether it ends, with a queue that is more than arrivals' own."""
    if block.waiting_first is None or block.waiting_last is None or not block.rounds:
        return None
    most = _ONLY_ARRIVED * block.merged * block.request_rounds / block.rounds
    return block.waiting_first > most, block.waiting_last > most


def _rate(blocks: Sequence[BlockTime]) -> Ratio:
    return ratio_of_sums([block.emitted for block in blocks], [block.wall_us for block in blocks])
