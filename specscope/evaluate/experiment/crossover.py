"""Experiments on engines that cannot change k while they run: a router swaps the traffic of sides.

A side is a group of replicas that keeps one configuration for a whole deploy. It runs without
speculation (`clean`), at k = 0 (`k0`), with drafts (`k4`), or by a table (`current`, the gate's;
`schedule`, the engine's own). Traffic comes in two streams, which the router swaps between the
sides from block to block. A pair is two adjacent blocks. In it both sides serve both streams, so
differences of streams and of time cancel. The remaining difference is one of configurations and
hardware. Hardware cancels between deploys in which the configurations were swapped, or were equal.
Without such deploys no estimate counts as measured.

With three sides, each pair swaps the streams of two of them by turns. So every pair is one
contrast, and pairs stay independent.

Least squares joins the deploys, weighted by their pairs. It gives k over k0, k0 over clean and k
over clean. Source: Jones & Kenward, Design and Analysis of Cross-Over Trials.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from specscope.evaluate.experiment import objectives
from specscope.evaluate.experiment.blocks import BlockTime, LeftOut, arm_k, merge_blocks
from specscope.evaluate.experiment.estimate import Estimate
from specscope.evaluate.experiment.objectives import Objective
from specscope.evaluate.experiment.pairs import known, measured
from specscope.evaluate.statistics import ratio, sequential
from specscope.evaluate.statistics.ratio import LogRatio

Floats = NDArray[np.float64]
Side = Literal["left", "right", "third"]
SIDES: tuple[Side, ...] = ("left", "right", "third")
CLEAN = "clean"
CURRENT, SCHEDULE = "current", "schedule"
# Pairs, or what unequal deploys are worth, before which no interval is shown.
FIRST_LOOK = 20


@dataclass(frozen=True, slots=True)
class SwapPair:
    """Two adjacent blocks in which two sides served both streams, summed to one block per side.

    sides: names of the two; the first is called left.
    """

    key: tuple[int, int]  # policy, number
    left: BlockTime
    right: BlockTime
    sides: tuple[Side, Side] = ("left", "right")


@dataclass(frozen=True, slots=True)
class Deploy:
    """All pairs in which two sides ran these configurations. contrast: left over right."""

    left: str
    right: str
    contrast: LogRatio
    sides: tuple[Side, Side] = ("left", "right")


@dataclass(frozen=True, slots=True)
class Crossover:
    """The joint estimates of all deploys.

    estimates: every configuration over every simpler one. hardware: each side over another at equal
    configurations, if the deploys can estimate it. confounded: estimates, by arm and baseline, that
    include the difference of the hardware because no deploy removes it.
    """

    estimates: tuple[Estimate, ...]
    hardware: tuple[Estimate, ...]
    deploys: tuple[Deploy, ...]
    confounded: frozenset[tuple[str, str]]

    def of(self, arm: str, baseline: str) -> Estimate | None:
        """One estimate; None if the deploys do not connect the two configurations."""
        matching = (e for e in self.estimates if (e.arm, e.baseline) == (arm, baseline))
        return next(matching, None)


def swapping(pair: int, sides: int) -> tuple[Side, Side]:
    """The sides whose streams a pair swaps; three sides take turns.

    pair: number of the pair. sides: 2 or 3.
    """
    return list(itertools.combinations(SIDES[:sides], 2))[pair % (1 if sides < 3 else 3)]


def swap_pairs(
    blocks: Iterable[BlockTime], sides: Mapping[str, Side]
) -> tuple[list[SwapPair], dict[LeftOut, int]]:
    """Pairs of adjacent blocks, and the number of dropped pairs by reason.

    blocks: `arm` is the replica's configuration at that time; `pair` numbers the blocks by time.
    sides: side of each replica; other replicas are ignored.
    """
    by_pair: dict[tuple[int, int], dict[Side, dict[int, list[BlockTime]]]] = defaultdict(
        lambda: {side: defaultdict(list) for side in SIDES}
    )
    count = max(2, len(set(sides.values())))
    for block in dict.fromkeys(known(block) for block in blocks):
        if (side := sides.get(block.replica)) is not None:
            by_pair[block.policy, block.pair // 2][side][block.pair % 2].append(block)
    pairs, left_out = [], Counter[LeftOut]()
    for key in sorted(by_pair):
        two = swapping(key[1], count)
        left, right = (_whole(by_pair[key][side]) for side in two)
        if isinstance(left, LeftOut):
            left_out[left] += 1
        elif isinstance(right, LeftOut):
            left_out[right] += 1
        else:
            pairs.append(SwapPair(key, left, right, two))
    return pairs, dict(left_out)


def _whole(halves: Mapping[int, Sequence[BlockTime]]) -> BlockTime | LeftOut:
    """One side's two blocks as one, or the reason to drop them."""
    void = next((b.void for rows in halves.values() for b in rows if b.void), None)
    if void:
        return void
    ran = [{(block.replica, block.boot) for block in halves.get(half, ())} for half in (0, 1)]
    if not ran[0] or ran[0] != ran[1]:
        return LeftOut.ONE_STREAM
    rows = [block for half in (0, 1) for block in halves[half]]
    if len({block.arm for block in rows}) > 1:
        return LeftOut.TWO_CONFIGURATIONS
    if not all(map(measured, rows)):
        return LeftOut.NOT_MEASURED
    return replace(merge_blocks(rows), merged=sum(block.merged for block in rows))


def deploys_of(pairs: Sequence[SwapPair], objective: Objective) -> list[Deploy]:
    """Contrasts of the sides by configuration, over the pairs that know the objective."""
    by_arms: dict[tuple[str, str, tuple[Side, Side]], list[tuple[BlockTime, BlockTime]]]
    by_arms = defaultdict(list)
    for pair in pairs:
        if all(objectives.knows(side, objective) for side in (pair.left, pair.right)):
            by_arms[pair.left.arm, pair.right.arm, pair.sides].append((pair.left, pair.right))
    deploys = []
    for (left, right, two), rows in sorted(by_arms.items(), key=lambda item: item[0]):
        contrast = objectives.contrast_of(rows, objective)
        if contrast is not None:
            deploys.append(Deploy(left, right, contrast, two))
    return deploys


def crossover(
    deploys: Sequence[Deploy],
    level: float = 0.95,
    looked_at_often: bool = False,
    hardware_level: float = 0.95,
) -> Crossover:
    """Join deploys with at least two pairs each.

    level: level of each interval. hardware_level: level of the hardware's intervals, which no
    verdict uses. looked_at_often: intervals hold at any time; several deploys share the error.
    """
    used = [deploy for deploy in deploys if deploy.contrast.se is not None]
    names = sorted({arm for deploy in used for arm in (deploy.left, deploy.right)}, key=_order)
    sides = [side for side in SIDES if any(side in deploy.sides for deploy in used)]
    columns = [*names, *sides]
    design = np.zeros((len(used), len(columns)))
    for row, deploy in enumerate(used):
        for ahead, behind in ((deploy.left, deploy.right), deploy.sides):
            design[row, columns.index(ahead)] += 1.0
            design[row, columns.index(behind)] -= 1.0
    blind = design.copy()  # as if the sides' hardware were the same
    blind[:, len(names) :] = 0.0

    def between(ahead: str, behind: str) -> Floats:
        wanted = np.zeros(len(columns))
        wanted[columns.index(ahead)], wanted[columns.index(behind)] = 1.0, -1.0
        return wanted

    estimates, confounded = [], set()
    for place, arm in enumerate(names):
        for baseline in names[:place]:
            weights = _solve(used, design, between(arm, baseline))
            if weights is None:
                weights = _solve(used, blind, between(arm, baseline))
                confounded.add((arm, baseline))
            if weights is not None:
                estimates.append(_estimate(used, weights, arm, baseline, level, looked_at_often))
    hardware = []
    for ahead, behind in itertools.combinations(sides, 2):
        weights = _solve(used, design, between(ahead, behind))
        if weights is not None:
            hardware.append(
                _estimate(used, weights, ahead, behind, hardware_level, looked_at_often)
            )
    return Crossover(
        estimates=tuple(estimates),
        hardware=tuple(hardware),
        deploys=tuple(deploys),
        confounded=frozenset(confounded),
    )


def _solve(deploys: Sequence[Deploy], design: Floats, wanted: Floats) -> Floats | None:
    """Weights of the deploys in the best unbiased estimate; None if it cannot be estimated."""
    if not deploys:
        return None
    # By pairs, not by the errors that they show: those are estimates, and intervals that believe
    # the smallest of them are too narrow.
    errors = np.array([1.0 / math.sqrt(deploy.contrast.pairs) for deploy in deploys])
    scaled = design / errors[:, None]
    weights: Floats = wanted @ np.linalg.pinv(scaled) / errors
    return weights if np.allclose(weights @ design, wanted, atol=1e-6) else None


def _estimate(
    deploys: Sequence[Deploy],
    weights: Floats,
    arm: str,
    baseline: str,
    level: float,
    looked_at_often: bool,
) -> Estimate:
    taking = [(w, d.contrast) for w, d in zip(weights, deploys, strict=True) if abs(w) > 1e-9]
    delta = math.fsum(w * one.delta for w, one in taking)
    half = _half_width(taking, level, looked_at_often)
    pairs = sum(one.pairs for _, one in taking)
    low, high = (None, None) if half is None else (math.exp(delta - half), math.exp(delta + half))
    return Estimate(arm, math.exp(delta), low, high, pairs, level, baseline, arm_k(arm))


def _half_width(
    taking: Sequence[tuple[float, LogRatio]], level: float, looked_at_often: bool
) -> float | None:
    if looked_at_often:
        parts = [(one.se and abs(w) * one.se, one.scores) for w, one in taking]
        return sequential.half_width_of_sum(parts, 1.0 - level, FIRST_LOOK)
    return ratio.welch_half_width(
        [(abs(w) * (one.se or 0.0), one.freedom) for w, one in taking], level
    )


def kind_of(configuration: str) -> str:
    """The kind of a configuration: `clean`, `k0`, `k4`, `current` or `schedule`.

    In a configuration's name the declared difference follows the kind: `k4 draft=eagle`.
    """
    return configuration.partition(" ")[0]


def _order(arm: str) -> tuple[int, int, str]:
    """Sort key: clean, then k0, then drafts (shortest first), then tables."""
    kind = kind_of(arm)
    k = arm_k(kind)
    place = 0 if kind == CLEAN else 3 if k is None else 2 if k else 1
    return place, k or 0, arm
