"""A total over segments that the mix of traffic cannot turn around."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arm:
    """What an arm did in one segment: time per token, and how much of its traffic that was."""

    ms_per_token: float
    traffic: float


@dataclass(frozen=True, slots=True)
class Standardised:
    """A speedup of the pooled traffic, and how much of it only the mix made.

    naive: of the totals as they came. standardised: with both arms given the same mix.
    headline: the one that may be printed, None where the two disagree on the direction or the
    mix made more than the segments did (Simpson's paradox).
    """

    naive: float
    standardised: float
    mix: float
    headline: float | None


def standardise(base: Mapping[str, Arm], treated: Mapping[str, Arm]) -> Standardised:
    """Compare two arms over the segments that both served, weighted by their pooled traffic.

    traffic: request counts by what is known at admission, never tokens or time, which the arm
    changes. ValueError where no segment is shared.
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
