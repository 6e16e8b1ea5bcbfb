"""A total over segments that the mix of traffic cannot reverse (Simpson's paradox)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specscope.evaluate.experiment.blocks import BASELINE
from specscope.evaluate.experiment.objectives import METRICS
from specscope.evaluate.verdict.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Arm:
    """An arm in one segment: its time per token and the traffic behind it."""

    ms_per_token: float
    traffic: float


@dataclass(frozen=True, slots=True)
class Standardised:
    """A speedup of the pooled traffic, and the part of it that comes from the mix.

    naive: ratio of the totals. standardised: ratio at the same mix for both arms. headline: the one
    to print; None if the two disagree in direction or the mix explains more than the segments do.
    """

    naive: float
    standardised: float
    mix: float
    headline: float | None

    @property
    def turned(self) -> bool:
        """Whether the mix reverses the answer, at two printed decimals."""
        return (round(self.naive, 2) - 1.0) * (round(self.standardised, 2) - 1.0) < 0


@dataclass(frozen=True, slots=True)
class FleetRatio:
    """An arm against target-only over all segments that ran both. segments: their number, at least
    2."""

    arm: str
    segments: int
    speedup: Standardised


_UNBELIEVED = ("not_comparable", "engine_fault")


def over_the_fleet(verdicts: Sequence[Verdict]) -> list[FleetRatio]:
    """Every arm that ran with target-only in at least two segments, in the order of names.

    The ratios are descriptive and have no interval; verdicts use pairs. A stratum is a segment of
    an epoch. Three kinds are left out: segments with flags, segments without counted requests, and
    segments that keep up with their arrivals, in which all arms have equal throughput.
    """
    served: dict[str, dict[str, tuple[Arm, Arm]]] = {}
    for verdict in verdicts:
        arms = {a.arm: a for a in verdict.arms if a.requests > 0 and a.tokens_per_s > 0}
        base = arms.pop(BASELINE, None)
        pinned = verdict.metric != METRICS["throughput"]
        if base is None or pinned or verdict.action in _UNBELIEVED:
            continue
        for name, arm in arms.items():
            served.setdefault(name, {})[f"{verdict.epoch} {verdict.segment}"] = (
                Arm(1e3 / base.tokens_per_s, base.requests),
                Arm(1e3 / arm.tokens_per_s, arm.requests),
            )
    return [
        FleetRatio(
            name,
            len(strata),
            standardise(
                {key: pair[0] for key, pair in strata.items()},
                {key: pair[1] for key, pair in strata.items()},
            ),
        )
        for name, strata in sorted(served.items())
        if len(strata) > 1
    ]


def standardise(base: Mapping[str, Arm], treated: Mapping[str, Arm]) -> Standardised:
    """Compare two arms over the segments that both served, weighted by their pooled traffic.

    traffic: request counts by properties known at admission; never tokens or time, which the arm
    changes. ValueError if no segment is shared.
    """
    shared = sorted(set(base) & set(treated))
    if not shared:
        raise ValueError("the arms share no segment")
    weights = {name: base[name].traffic + treated[name].traffic for name in shared}
    naive = math.log(_mean(base, shared) / _mean(treated, shared))
    total = math.fsum(weights.values())
    within = math.log(
        math.fsum(weights[n] * base[n].ms_per_token for n in shared)
        / math.fsum(weights[n] * treated[n].ms_per_token for n in shared)
    )
    if total <= 0:
        raise ValueError("segments without traffic cannot be weighed")
    mix = naive - within
    sound = naive * within > 0 and abs(mix) <= abs(within)
    return Standardised(
        naive=math.exp(naive),
        standardised=math.exp(within),
        mix=math.exp(mix),
        headline=math.exp(within) if sound or naive == within else None,
    )


def _mean(arms: Mapping[str, Arm], names: list[str]) -> float:
    traffic = math.fsum(arms[name].traffic for name in names)
    if traffic <= 0:
        raise ValueError("an arm without traffic cannot be compared")
    return math.fsum(arms[name].ms_per_token * arms[name].traffic for name in names) / traffic
