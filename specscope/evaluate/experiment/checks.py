"""Whether blocks may be compared: arms that ran, same requests, fair split, agreeing twins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from specscope.evaluate.experiment.blocks import BlockTime, LeftOut, arm_k
from specscope.evaluate.experiment.compliance import ShortArm, with_arms_that_ran
from specscope.evaluate.experiment.pairs import Pair
from specscope.evaluate.statistics import ratio

Design = Literal["cohort", "switchback", "closed_loop"]
"""How traffic reaches the blocks: the same fixed requests in each of a pair; open arrivals that
the arm must not influence; or clients that send the next request when the last one ends, so
that a faster arm rightly serves more."""

# A sample-ratio mismatch is a broken experiment, so it is tested at a level that a sound one
# hardly ever reaches.
SRM_LEVEL = 1e-3
TWIN_MARK = "'"
TWIN_RATIO = (0.7, 1.4)
# Proposals a round beyond an arm's draft length: what an engine planned before a block began.
SPILL = 0.05


@dataclass(frozen=True, slots=True)
class Usable:
    """Pairs that can be compared, and how many could not, by reason.

    short: arms that drafted less than their length; the pairs are without their blocks.
    """

    pairs: tuple[Pair, ...]
    left_out: Mapping[LeftOut, int]
    short: tuple[ShortArm, ...] = ()


def usable_pairs(pairs: Iterable[Pair], design: Design) -> Usable:
    """Leave out void pairs, those in which an arm did not run, and those of unequal traffic.

    A block is named after its arm by the hook; an engine that does not follow the policy drafts
    on, and its `k0` would be compared with itself.

    cohort: every block of a pair must have served the same number of requests of the same
    classes. otherwise traffic differs by chance, and `sample_ratio_p` judges all pairs together.
    """
    kept, left_out = [], Counter[LeftOut]()
    for pair in pairs:
        served = {(block.requests, block.classes) for block in pair.blocks.values()}
        void = next((block.void for block in pair.blocks.values() if block.void), None)
        if void:
            left_out[void] += 1
        elif any(_drafted_beyond(name, block) for name, block in pair.blocks.items()):
            left_out[LeftOut.DRAFTED_BEYOND] += 1
        elif design == "cohort" and len(served) > 1:
            left_out[LeftOut.UNEQUAL_REQUESTS] += 1
        else:
            kept.append(pair)
    ran, short = with_arms_that_ran(kept)
    return Usable(tuple(ran), dict(left_out), tuple(short))


def _drafted_beyond(arm: str, block: BlockTime) -> bool:
    k = arm_k(arm)
    return k is not None and block.proposed > (k + SPILL) * block.request_rounds


def sample_ratio_p(pairs: Sequence[Pair], arm: str, baseline: str) -> float:
    """Chance of a split of requests as uneven as this one under a fair coin. [0..1]

    Over the pairs that ran both: Student's t on the paired log ratio of requests a block, since
    arrivals come in bursts; chi-square where there is one pair only. Below SRM_LEVEL the router
    is not blind to the arm and the experiment is void. 1 where nothing arrived.
    """
    both = [pair for pair in pairs if arm in pair.blocks and baseline in pair.blocks]
    counts = np.array([[pair.blocks[name].requests for pair in both] for name in (arm, baseline)])
    if counts.size == 0 or (counts.sum(axis=1) == 0).any():
        return 1.0 if counts.sum() == 0 else 0.0
    ones = np.ones(len(both))
    p_value = ratio.paired_log_ratio(counts[0], ones, counts[1], ones).p_value()
    if p_value is not None:
        return p_value
    return float(stats.chisquare(counts.sum(axis=1)).pvalue)


@dataclass(frozen=True, slots=True)
class TwinCheck:
    """An arm against its twin: the same policy twice in a pair, which must not differ.

    variance_ratio: empirical variance of the pairs' own log ratios over the one that the
    linearisation claims, within 0.7..1.4 where intervals are honest.
    """

    pairs: int
    p_value: float
    variance_ratio: float

    @property
    def passed(self) -> bool:
        """Whether verdicts may stand: no difference seen, and variance as claimed."""
        low, high = TWIN_RATIO
        return self.p_value >= 0.05 and low <= self.variance_ratio <= high


def twin_check(pairs: Sequence[Pair], arm: str) -> TwinCheck | None:
    """Compare an arm with its twin (its name with a mark behind); None below 20 such pairs."""
    twin = arm + TWIN_MARK
    both = [pair for pair in pairs if arm in pair.blocks and twin in pair.blocks]
    if len(both) < 20:
        return None
    x = np.array([[pair.blocks[name].emitted for name in (twin, arm)] for pair in both], float)
    y = np.array([[pair.blocks[name].wall_us for name in (twin, arm)] for pair in both], float)
    contrast = ratio.paired_log_ratio(x[:, 0], y[:, 0], x[:, 1], y[:, 1])
    own = np.log(x[:, 0] / y[:, 0]) - np.log(x[:, 1] / y[:, 1])
    claimed = contrast.pair_sd or 0.0
    spread = float(own.std(ddof=1))
    same = spread == claimed == 0.0
    return TwinCheck(
        pairs=len(both),
        p_value=contrast.p_value() or 0.0,
        variance_ratio=1.0 if same else (spread / claimed) ** 2 if claimed else float("inf"),
    )
