"""The comparisons that can change an action, and the level of each.

There are two kinds of claim, each with its own error rate over all segments of one call (Holm). An
arm against target-only decides whether to speculate. One arm against another chooses among the
winners.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TypeVar

from specscope.evaluate.experiment import contrast
from specscope.evaluate.experiment.blocks import BASELINE, arm_k
from specscope.evaluate.experiment.estimate import Estimate
from specscope.evaluate.experiment.measures import ArmContrast, Measure
from specscope.evaluate.experiment.pairs import Pair
from specscope.evaluate.statistics.multiplicity import holm_levels

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Comparisons:
    """The comparisons of one segment.

    arms: all that ran. together: whether a pair ran both k0 and an arm, even if the metric is
    unknown. speedups: arms against k0. between: each two arms once, the longer draft or the table
    first.
    """

    arms: tuple[str, ...]
    together: bool
    speedups: tuple[ArmContrast, ...]
    between: tuple[ArmContrast, ...]


@dataclass(frozen=True, slots=True)
class Estimates:
    """The comparisons with intervals and claims. between: in both directions."""

    arms: tuple[str, ...]
    together: bool
    speedups: tuple[Estimate, ...]
    between: tuple[Estimate, ...]


def arms_of(pairs: Sequence[Pair]) -> list[str]:
    """Arms compared with k0, shortest draft first, tables last; no twins."""
    names = {arm for pair in pairs for arm in pair.blocks}
    names -= {BASELINE, "clean"}
    plain = [arm for arm in names if not arm.endswith("'")]
    return sorted(plain, key=lambda arm: (arm_k(arm) is None, arm_k(arm) or 0, arm))


def compare(pairs: Sequence[Pair], measure: Measure, looked_at_often: bool) -> Comparisons:
    """All comparisons of a segment that a decision may use."""
    arms = arms_of(pairs)

    def against(names: Sequence[tuple[str, str]]) -> tuple[ArmContrast, ...]:
        contrasts = (measure.compare(pairs, *two, looked_at_often) for two in names)
        return tuple(one for one in contrasts if one is not None)

    return Comparisons(
        arms=tuple(arms),
        together=any(contrast.log_ratio(pairs, arm, BASELINE) for arm in arms),
        speedups=against([(arm, BASELINE) for arm in arms]),
        between=against([(later, earlier) for earlier, later in combinations(arms, 2)]),
    )


def hold(segments: Mapping[Key, Comparisons], level: float) -> dict[Key, Estimates]:
    """Estimates of all segments; each kind of claim holds jointly at `level`."""
    speedups = _held({key: one.speedups for key, one in segments.items()}, level)
    between = _held({key: one.between for key, one in segments.items()}, level)
    held = {}
    for key, one in segments.items():
        both = (way for two in between[key] for way in (two, two.reversed()))
        ways = tuple(sorted(both, key=lambda two: _place(one.arms, two)))
        held[key] = Estimates(
            arms=one.arms,
            together=one.together,
            speedups=_with_implied(speedups[key], ways),
            between=ways,
        )
    return held


def _held(
    comparisons: Mapping[Key, Sequence[ArmContrast]], level: float
) -> dict[Key, tuple[Estimate, ...]]:
    everything = [(key, one) for key, many in comparisons.items() for one in many]
    # A single pair tests nothing, so it takes no share of the error.
    levels = holm_levels([1.0 if one.p is None else one.p for _, one in everything], level)
    estimates: dict[Key, list[Estimate]] = {key: [] for key in comparisons}
    for (key, one), own in zip(everything, levels, strict=True):
        estimates[key].append(one.at(own))
    return {key: tuple(many) for key, many in estimates.items()}


def _with_implied(
    speedups: Sequence[Estimate], between: Sequence[Estimate]
) -> tuple[Estimate, ...]:
    """Add implied speedups: an arm faster than a winner wins, an arm slower than a loser loses."""
    by_arm = {one.arm: one for one in speedups}
    for _ in by_arm:
        for two in between:
            one, other = by_arm.get(two.arm), by_arm.get(two.baseline)
            if one is None or other is None or one.differs:
                continue
            up = two.wins and other.wins and one.value > 1.0
            down = two.loses and other.loses and one.value < 1.0
            if up or down:
                by_arm[two.arm] = replace(one, implied=True)
    return tuple(by_arm.values())


def _place(arms: Sequence[str], two: Estimate) -> tuple[int, int]:
    return arms.index(two.arm), arms.index(two.baseline)
