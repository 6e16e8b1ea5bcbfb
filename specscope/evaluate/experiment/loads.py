"""The change of a speedup with the offered load, and its crossing of 1.

The load of a pair is one number, common to its arms (`segments`). The effect of an arm is modelled
as linear in the logarithm of the load. If its sign changes inside a bucket, with confidence, the
bucket holds two kinds of traffic. One verdict for both would be wrong for one of them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from specscope.evaluate.experiment import objectives
from specscope.evaluate.experiment.blocks import BASELINE, Design
from specscope.evaluate.experiment.objectives import Objective
from specscope.evaluate.experiment.pairs import Pair
from specscope.evaluate.experiment.segments import Segment
from specscope.evaluate.statistics.ratio import Floats, t_quantile

# Pairs from which a line may be drawn, on each side of its crossing too.
FEWEST = 12
ON_A_SIDE = 6
LEVEL = 0.99
# Loads must differ by this factor, or a line says nothing about load.
_SPREAD = 1.5


@dataclass(frozen=True, slots=True)
class Trend:
    """log speedup of an arm = level + slope log(load / middle), over pairs of one kind of traffic.

    covariance: covariance of level and slope, robust to unequal noise. least, most: range of the
    loads.
    """

    arm: str
    level: float
    slope: float
    covariance: Floats
    middle: float
    least: float
    most: float
    pairs: int

    def at(self, load: float, level: float = 0.95) -> tuple[float, float, float]:
        """log speedup at a load, and its interval."""
        place = np.array([1.0, math.log(load / self.middle)])
        value = self.level + self.slope * float(place[1])
        half = t_quantile(level, self.pairs - 2) * math.sqrt(float(place @ self.covariance @ place))
        return value, value - half, value + half

    @property
    def crossing(self) -> float | None:
        """Load at which the arm equals target-only; None for a flat line."""
        if self.slope == 0.0:
            return None
        distance = -self.level / self.slope
        return self.middle * math.exp(distance) if abs(distance) < 50.0 else None

    def crossing_interval(self, level: float = 0.95) -> tuple[float | None, float | None]:
        """Confidence interval of the crossing; None on a side that the data leave open.

        It holds all loads at which the data do not exclude an effect of 0. Source: Fieller 1954.
        """
        t = t_quantile(level, self.pairs - 2)
        (aa, ab), (_, bb) = self.covariance * t * t
        a, b, c = self.slope**2 - bb, self.level * self.slope - ab, self.level**2 - aa
        if a <= 0.0 or b * b - a * c < 0.0:
            return None, None
        root = math.sqrt(b * b - a * c)
        low, high = sorted(((-b - root) / a, (-b + root) / a))
        return tuple(  # type: ignore[return-value]
            self.middle * math.exp(end) if abs(end) < 50.0 else None for end in (low, high)
        )

    @property
    def turns(self) -> bool:
        """Whether the arm wins at one end of the loads and loses at the other, both with
        confidence."""
        _, low0, high0 = self.at(self.least, LEVEL)
        _, low1, high1 = self.at(self.most, LEVEL)
        return low0 > 0.0 > high1 or low1 > 0.0 > high0


Group = tuple[Sequence[Pair], Objective]
"""Pairs of one segment, and what their speedup is of."""


def trend(groups: Iterable[Group], arm: str) -> Trend | None:
    """Fit one arm's effect along the load; None if pairs or loads are too few.

    Each pair uses the objective of its own segment, so that the line agrees with the verdicts: the
    same traffic may saturate an engine at one load and not at another.
    """
    known = [
        (pair, objective)
        for pairs, objective in groups
        for pair in objectives.comparable(pairs, arm, BASELINE, objective)
        if _load(pair) > 0
    ]
    if len(known) < FEWEST:
        return None
    loads = np.array([_load(pair) for pair, _ in known])
    if loads.max() < _SPREAD * loads.min():
        return None
    effects = np.array(
        [
            objectives.effect(pair.blocks[arm], pair.blocks[BASELINE], objective)
            for pair, objective in known
        ]
    )
    middle = float(np.exp(np.log(loads).mean()))
    x = np.column_stack([np.ones(len(known)), np.log(loads / middle)])
    bread = np.linalg.inv(x.T @ x)
    beta = bread @ x.T @ effects
    leverage = np.einsum("ij,jk,ik->i", x, bread, x)
    scores = x * ((effects - x @ beta) / np.sqrt(np.maximum(1e-9, 1.0 - leverage)))[:, None]
    return Trend(
        arm=arm,
        level=float(beta[0]),
        slope=float(beta[1]),
        covariance=bread @ (scores.T @ scores) @ bread,
        middle=middle,
        least=float(loads.min()),
        most=float(loads.max()),
        pairs=len(known),
    )


def by_segment(pairs: Iterable[Pair], design: Design) -> dict[tuple[str, Segment], list[Pair]]:
    """Group pairs by epoch and segment. A load bucket is cut if an arm's effect changes its sign
    inside.

    No evidence crosses an epoch or a segment.
    """
    groups: dict[tuple[str, Segment], list[Pair]] = defaultdict(list)
    for pair in pairs:
        groups[pair.key[0], pair.segment].append(pair)
    segments: dict[tuple[str, Segment], list[Pair]] = {}
    for (epoch, segment), members in groups.items():
        cut = _cut(members, design)
        if cut is None:
            segments[epoch, segment] = members
            continue
        for label, part in (
            (f"{min(_loads(members)):.3g}-{cut:.3g}", [p for p in members if _load(p) <= cut]),
            (f"{cut:.3g}-{max(_loads(members)):.3g}", [p for p in members if _load(p) > cut]),
        ):
            own = replace(segment, load=label)
            segments[epoch, own] = [replace(pair, segment=own) for pair in part]
    return segments


def turning(groups: Sequence[Group]) -> list[Trend]:
    """Lines of arms whose effect changes its sign within the loads of these pairs, steepest
    first."""
    arms = {arm for pairs, _ in groups for pair in pairs for arm in pair.blocks} - {BASELINE}
    lines = [line for arm in sorted(arms) if (line := trend(groups, arm)) and line.turns]
    return sorted(lines, key=lambda line: -abs(line.slope))


def _cut(pairs: Sequence[Pair], design: Design) -> float | None:
    """The load at which to cut a bucket; with several arms, the crossing of the steepest line."""
    blocks = [block for pair in pairs for block in pair.blocks.values()]
    for line in turning([(pairs, objectives.objective_for(design, blocks))]):
        cut = line.crossing
        if cut is not None:
            below = sum(load <= cut for load in _loads(pairs))
            if min(below, len(pairs) - below) >= ON_A_SIDE:
                return cut
    return None


def _load(pair: Pair) -> float:
    return pair.offered or 0.0


def _loads(pairs: Sequence[Pair]) -> list[float]:
    return [_load(pair) for pair in pairs]
