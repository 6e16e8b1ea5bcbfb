"""Check that blocks are comparable: compliant arms, equal requests, a fair split, equal twins."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from specscope.evaluate.experiment import objectives
from specscope.evaluate.experiment.blocks import BlockTime, Design, LeftOut, arm_k
from specscope.evaluate.experiment.compliance import ShortArm, with_arms_that_ran
from specscope.evaluate.experiment.pairs import Pair
from specscope.evaluate.statistics import randomisation, ratio
from specscope.evaluate.statistics.ratio import Floats

# A sample-ratio mismatch is a broken experiment, so it is tested at a level that a sound one
# hardly ever reaches.
SRM_LEVEL = 1e-3
_RARE = 0.05  # of all requests: a rarer kind cannot move a mean much
TWIN_MARK = "'"
TWIN_RATIO = (0.7, 1.4)
# Proposals a round beyond an arm's draft length: what an engine planned before a block began.
SPILL = 0.05


@dataclass(frozen=True, slots=True)
class Usable:
    """Comparable pairs, and the number of dropped pairs by reason.

    short: arms that drafted less than their length; their blocks are removed from the pairs.
    """

    pairs: tuple[Pair, ...]
    left_out: Mapping[LeftOut, int]
    short: tuple[ShortArm, ...] = ()


def usable_pairs(pairs: Iterable[Pair], design: Design) -> Usable:
    """Drop void pairs, pairs with an arm that did not run, and pairs of unequal traffic.

    The hook names a block after its arm. An engine that ignores the policy keeps drafting, so its
    `k0` block would be compared with itself.

    cohort: every block of a pair must have served the same number of requests of each kind. In
    other designs traffic differs by chance, and `sample_ratio_p` judges all pairs together.
    """
    kept, left_out = [], Counter[LeftOut]()
    for pair in pairs:
        served = {
            (block.requests, block.classes, block.admitted_kinds, block.admitted_counts)
            for block in pair.blocks.values()
        }
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


def sample_ratio_p(
    pairs: Sequence[Pair], arm: str, baseline: str, looked_at_often: bool = False
) -> float:
    """p-value of equal traffic for both arms (sample ratio test). [0..1]

    The test compares, over the pairs that ran both arms, the number of requests and the share of
    each kind (class, context, requested output), jointly. The unit is the pair, so bursts and
    correlated arrivals belong to the noise. Below SRM_LEVEL the router is not blind to the arm, and
    the experiment is void. Returns 1 for a single pair, or if no request arrived.

    Some engines count a request on arrival, others when it leaves the queue. So the numbers must
    differ both as counted and with the growth of the queue added. Requests of the burn-in come from
    the queue of the block before: the longer the queue, the lower their weight. If the growth is
    unknown, this applies to all requests. At saturation their weight is 0.
    """
    both = [pair for pair in pairs if arm in pair.blocks and baseline in pair.blocks]
    ones, bases = ([pair.blocks[name] for pair in both] for name in (arm, baseline))
    if not both or not any(block.requests for block in (*ones, *bases)):
        return 1.0
    kinds = [_kinds(block) for block in (*ones, *bases)]
    p_values = [_numbers_p(ones, bases, all(kinds), looked_at_often)]
    if all(kinds):
        totals = np.array([sum(kind.values()) for kind in kinds], dtype=np.float64)
        for name in _frequent(kinds):
            counts = np.array([kind[name] for kind in kinds], dtype=np.float64)
            p_values.append(_split_p(counts, totals, looked_at_often))
    return min(1.0, len(p_values) * min(p_values))


def _numbers_p(
    ones: Sequence[BlockTime], bases: Sequence[BlockTime], settled: bool, looked_at_often: bool
) -> float:
    """p-value for the number of requests. settled: whether requests after the burn-in are counted
    apart."""
    blocks = (*ones, *bases)
    alone = np.ones(len(blocks))
    known = objectives.queue_share(blocks) is not None
    weight = 1.0 - objectives.saturation(blocks) if known else 1.0
    counts = np.array([block.requests / block.merged for block in blocks])
    growths = [one for block in blocks if (one := objectives.queue_growth(block)) is not None]
    if not settled or len(growths) < len(blocks):
        return math.pow(_split_p(counts, alone, looked_at_often), weight)
    admitted = np.array([sum(block.admitted_counts) / block.merged for block in blocks])
    counts = weight * counts + (1.0 - weight) * admitted
    arrived = np.maximum(0.0, counts + np.array(growths))
    return max(_split_p(each, alone, looked_at_often) for each in (counts, arrived))


def _kinds(block: BlockTime) -> Counter[str]:
    return Counter(dict(zip(block.admitted_kinds, block.admitted_counts, strict=True)))


def _frequent(kinds: Sequence[Counter[str]]) -> list[str]:
    """Kinds with at least 5 % of all requests."""
    total = sum(kinds, Counter[str]())
    least = _RARE * total.total()
    return sorted(name for name, count in total.items() if least <= count < total.total())


def _split_p(counts: Floats, totals: Floats, looked_at_often: bool) -> float:
    """p-value of one common ratio of counts over totals. [arm, then baseline by pair]"""
    half = len(counts) // 2
    x, y = (counts[:half], counts[half:]), (totals[:half], totals[half:])
    if min(float(y[0].sum()), float(y[1].sum())) <= 0:
        return 1.0
    if min(float(x[0].sum()), float(x[1].sum())) <= 0:
        return 1.0 if half < 2 or not counts.any() else 0.0
    contrast = ratio.paired_log_ratio(x[0], y[0], x[1], y[1])
    p = randomisation.p_value(contrast, looked_at_often)
    return 1.0 if p is None else p


@dataclass(frozen=True, slots=True)
class TwinCheck:
    """An arm against its twin: a pair runs the same policy twice, so the two must not differ.

    variance_ratio: empirical variance of the pairs' own log ratios over the variance that the
    linearisation claims. It lies within 0.7..1.4 if intervals are correct.
    """

    pairs: int
    p_value: float
    variance_ratio: float

    @property
    def passed(self) -> bool:
        """Whether the check allows verdicts: no difference, and the claimed variance."""
        low, high = TWIN_RATIO
        return self.p_value >= 0.05 and low <= self.variance_ratio <= high


def twin_check(pairs: Sequence[Pair], arm: str) -> TwinCheck | None:
    """Compare an arm with its twin (its name with a mark appended); None below 20 such pairs."""
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
