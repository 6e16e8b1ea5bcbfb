"""Compare one switch (one draft length for all traffic) with a gate (one per segment).

Every segment has the same number of tokens. So the fleet's time per token is the sum over its
segments, and its throughput their harmonic mean.

A gate that is chosen and judged on the same pairs looks too good. So each pair is judged by the
gate that other pairs of its segment choose (cross-validation): by all others up to twenty pairs,
otherwise in twenty folds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from specscope.evaluate.experiment.blocks import BASELINE, arm_k
from specscope.evaluate.experiment.estimate import Estimate
from specscope.evaluate.experiment.measures import Measure
from specscope.evaluate.experiment.objectives import objective_for
from specscope.evaluate.experiment.paired import Paired
from specscope.evaluate.experiment.pairs import Pair
from specscope.evaluate.experiment.segments import Segment
from specscope.evaluate.statistics import sequential
from specscope.evaluate.statistics.multiplicity import bonferroni
from specscope.evaluate.statistics.ratio import welch_half_width
from specscope.evaluate.verdict.choice import Rules, choose
from specscope.evaluate.verdict.comparisons import compare, hold

Floats = NDArray[np.float64]
_FOLDS = 20


@dataclass(frozen=True, slots=True)
class SwitchComparison:
    """Speedups of each switch and of a gate over target-only, at one load.

    switches: one k for all segments, each with its own interval at `level`; the intervals hold at
    any time if the evidence is looked at often. best: the fastest switch. gate: a k per segment
    (`table`). gain: gate over the best switch.
    """

    epoch: str
    load: str | None
    switches: tuple[Estimate, ...]
    best: Estimate
    gate: Estimate
    gain: Estimate
    table: tuple[tuple[Segment, int], ...]
    level: float


@dataclass(frozen=True, slots=True)
class _Traffic:
    """One segment's pairs as arrays: tokens and time [arms, pairs], and the gate's choice per
    pair."""

    segment: Segment
    arms: tuple[str, ...]
    tokens: Floats
    time: Floats
    picks: tuple[int, ...]
    k: int


def compare_switches(experiment: Paired, rules: Rules | None = None) -> list[SwitchComparison]:
    """One comparison for every epoch and load at which at least two segments ran all arms.

    Segments with fewer than two complete pairs are left out. So are segments that keep up with
    their arrivals, in which all arms have equal throughput.
    """
    rules = rules or Rules()
    grouped = {key: usable.pairs for key, usable in experiment.usable.items()}
    # The level of a gate that would be chosen segment by segment, over all of them.
    each = replace(rules, level=bonferroni(rules.level, max(1, len(grouped))))
    loads: dict[tuple[str, str | None], list[_Traffic]] = defaultdict(list)
    for (epoch, segment), pairs in sorted(grouped.items(), key=lambda item: str(item[0])):
        blocks_ = [block for pair in pairs for block in pair.blocks.values()]
        if objective_for(experiment.design, blocks_) != "throughput":
            continue
        traffic = _traffic(segment, pairs, each)
        if traffic is not None:
            loads[epoch, segment.load].append(traffic)
    stories = (_story(epoch, load, group, rules) for (epoch, load), group in loads.items())
    return [story for story in stories if story is not None]


def _traffic(segment: Segment, pairs: Sequence[Pair], rules: Rules) -> _Traffic | None:
    names = {arm for pair in pairs for arm in pair.blocks if arm_k(arm) is not None}
    arms = sorted(names, key=lambda arm: arm_k(arm) or 0)
    whole = [pair for pair in pairs if names <= set(pair.blocks)]
    if BASELINE not in names or len(arms) < 2 or len(whole) < 2:
        return None
    current = rules.current_k(segment, _batch(whole))
    folds = min(len(whole), _FOLDS)
    chosen = []
    for fold in range(folds):
        others = [pair for index, pair in enumerate(whole) if index % folds != fold]
        chosen.append(arms.index(f"k{_gate_k(segment, others, rules, current)}"))
    return _Traffic(
        segment=segment,
        arms=tuple(arms),
        tokens=np.array([[p.blocks[arm].emitted for p in whole] for arm in arms], dtype=float),
        time=np.array([[p.blocks[arm].wall_us for p in whole] for arm in arms], dtype=float),
        picks=tuple(chosen[index % folds] for index in range(len(whole))),
        k=_gate_k(segment, whole, rules, current),
    )


def _batch(pairs: Sequence[Pair]) -> float:
    base = [pair.blocks[BASELINE] for pair in pairs]
    rounds = sum(block.rounds for block in base)
    return max(1.0, sum(block.request_rounds for block in base) / rounds) if rounds else 1.0


def _gate_k(segment: Segment, pairs: Sequence[Pair], rules: Rules, current: int | None) -> int:
    """The gate's draft length: the decided k, or the best point estimate if undecided."""
    held = hold({segment: compare(pairs, Measure(), rules.looked_at_often)}, rules.level)
    choice = choose(held[segment], rules, current)
    return (choice.k or 0) if choice.action.settles else choice.point_k


def _story(
    epoch: str, load: str | None, group: Sequence[_Traffic], rules: Rules
) -> SwitchComparison | None:
    shared = [arm for arm in group[0].arms if all(arm in t.arms for t in group)]
    if len(group) < 2 or len(shared) < 2:
        return None
    base = [_rows(t, BASELINE) for t in group]
    switches = tuple(
        _compare([_rows(t, arm) for t in group], base, arm, BASELINE, rules)
        for arm in shared
        if arm != BASELINE
    )
    best = max(switches, key=lambda e: e.value)
    picked = [_picked(t) for t in group]
    return SwitchComparison(
        epoch=epoch,
        load=load,
        switches=switches,
        best=best,
        gate=_compare(picked, base, "gate", BASELINE, rules),
        gain=_compare(picked, [_rows(t, best.arm) for t in group], "gate", best.arm, rules),
        table=tuple((t.segment, t.k) for t in group),
        level=rules.level,
    )


def _rows(traffic: _Traffic, arm: str) -> tuple[Floats, Floats]:
    row = traffic.arms.index(arm)
    return traffic.tokens[row], traffic.time[row]


def _picked(traffic: _Traffic) -> tuple[Floats, Floats]:
    columns = np.arange(traffic.tokens.shape[1])
    return traffic.tokens[traffic.picks, columns], traffic.time[traffic.picks, columns]


def _compare(
    ones: Sequence[tuple[Floats, Floats]],
    bases: Sequence[tuple[Floats, Floats]],
    name: str,
    baseline: str,
    rules: Rules,
) -> Estimate:
    """Throughput at equal tokens per segment, over the baseline's.

    It is log(sum of baseline times per token) - log(sum of times per token), linearised by pair.
    """
    time1 = [float(y.sum() / x.sum()) for x, y in ones]
    time0 = [float(y.sum() / x.sum()) for x, y in bases]
    total1, total0 = sum(time1), sum(time0)
    delta = math.log(total0 / total1)
    scores = [
        (y0 - t0 * x0) / (x0.sum() * total0) - (y1 - t1 * x1) / (x1.sum() * total1)
        for (x1, y1), (x0, y0), t1, t0 in zip(ones, bases, time1, time0, strict=True)
    ]
    half = _half_width(scores, rules)
    return Estimate(
        arm=name,
        value=math.exp(delta),
        low=None if half is None else math.exp(delta - half),
        high=None if half is None else math.exp(min(700.0, delta + half)),
        pairs=sum(len(one) for one in scores),
        level=rules.level,
        baseline=baseline,
        k=arm_k(name),
    )


def _half_width(segments: Sequence[Floats], rules: Rules) -> float | None:
    """Half-width of the interval of a sum over segments. segments: scores of each segment's pairs,
    summing to 0."""
    errors = [math.sqrt(len(one) / (len(one) - 1) * float(one @ one)) for one in segments]
    if rules.looked_at_often:
        parts = list(zip(errors, segments, strict=True))
        return sequential.half_width_of_sum(parts, 1.0 - rules.level)
    freedoms = [len(one) - 1 for one in segments]
    return welch_half_width(list(zip(errors, freedoms, strict=True)), rules.level)
