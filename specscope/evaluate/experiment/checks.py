"""Whether blocks may be compared: arms that ran, same requests, fair split, agreeing twins."""

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

    cohort: every block of a pair must have served the same requests: as many of each kind.
    otherwise traffic differs by chance, and `sample_ratio_p` judges all pairs together.
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
    """Chance that arms of one traffic differ as much in how much and what they were sent. [0..1]

    Over the pairs that ran both: the number of requests, and the share of each kind of them (class,
    context, requested output), at a level at which all of these hold together. The unit is the
    pair, so bursts and correlated arrivals are part of the noise. Below SRM_LEVEL the router is not
    blind to the arm and the experiment is void. 1 for a single pair, or if nothing arrived.

    Some engines count a request when it arrives, others when it leaves the queue. So the numbers
    differ only if they do so both as counted and with the growth of the queue. Requests of the
    burn-in come from the queue of the block before, so they count for less the longer it is. Where
    the growth is not known, this holds for all requests. At saturation they count for nothing.
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
    """Of the number of requests. settled: whether those after the burn-in are known apart."""
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
    """Kinds that are a twentieth of all requests or more."""
    total = sum(kinds, Counter[str]())
    least = _RARE * total.total()
    return sorted(name for name, count in total.items() if least <= count < total.total())


def _split_p(counts: Floats, totals: Floats, looked_at_often: bool) -> float:
    """Of counts over totals, [arm, then baseline by pair], being one ratio in both."""
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
    """An arm against its twin: the same policy twice in a pair, which must not differ.

    variance_ratio: empirical variance of the pairs' own log ratios over the one that the
    linearisation claims, within 0.7..1.4 if intervals are honest.
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
