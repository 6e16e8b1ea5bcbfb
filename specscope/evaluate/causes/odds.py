"""The odds that a cause has the largest repair.

In each draw of pairs, the part of the round with the largest repair gets the credit. Parts with
practically equal repairs share it. The mean credit of a part is its odds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specscope.evaluate.causes.draws import Array

# A cause is named alone from these odds on.
NAMED = 0.9
# Below these odds a cause is no rival.
RIVAL = 0.05
# Repairs within 2 % are alike: which of them is larger changes nothing that anybody would do.
ALIKE = 0.02
# Pairs below which drawing them again says nothing.
FEWEST_PAIRS = 5


@dataclass(frozen=True, slots=True)
class PartOdds:
    """Odds of the parts of a round.

    odds: odds of each part, in the order given. none: odds that no single repair is enough. open_:
    parts with an unknown reference, which may be the largest."""

    odds: Array
    none: float
    credit: Array
    open_: tuple[bool, ...]


def odds_of(gains: Array, at_most: Array, lost: Array) -> PartOdds:
    """Odds of parts from the draws in which the arm loses.

    gains, at_most: [parts, draws] log of the speedup that each repair adds, and its upper limit.
    lost: [draws] log of the arm's loss. Draw 0, the original evidence, is not counted.
    """
    losing = lost > 0.0
    losing[0] = False
    if not len(gains) or not losing.any():
        return PartOdds(np.zeros(len(gains)), 0.0, np.zeros_like(gains), (False,) * len(gains))
    best = gains.max(axis=0)
    none = best < lost - ALIKE
    credit = (gains >= best - ALIKE) & losing & ~none
    shared: Array = credit / np.maximum(1, credit.sum(axis=0))
    count = losing.sum()
    odds = shared.sum(axis=1) / count
    unpaid = float((none & losing).sum() / count)
    first = int(np.argmax(odds))
    leader = np.where(none, lost - ALIKE, best) if unpaid > odds[first] else gains[first]
    could = (at_most >= leader - ALIKE) & (at_most > gains + ALIKE) & losing
    open_ = could.sum(axis=1) / count > 1.0 - NAMED
    return PartOdds(odds, unpaid, shared, tuple(bool(one) for one in open_))
