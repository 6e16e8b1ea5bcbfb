"""Why speculation loses: recompute the speedup as if one cause at a time were repaired.

speedup = t_0 / t_k, both times per output token of the same pairs. Each cause returns the time that
its repair saves, in the original evidence and in every bootstrap draw of its pairs. A part of the
round is named if its repair is the largest in nine draws of ten. Otherwise all competing causes are
listed with their odds. Within a part, the first cause that explains at least half of it is named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from specscope.evaluate.causes.cause import Cause, Missing, Numbers, Seen
from specscope.evaluate.causes.draws import Array
from specscope.evaluate.causes.facts import Facts
from specscope.evaluate.causes.odds import FEWEST_PAIRS, NAMED, RIVAL, odds_of

NO_SINGLE_FIX = "no_single_fix"
_HALF = 0.5
_INTERVAL = (2.5, 97.5)


@dataclass(frozen=True, slots=True)
class Repair:
    """The effect of repairing one cause.

    part: see `cause.Cause`. speedup: the arm's speedup after the repair. low, high: its 95 %
    interval over draws. flips: whether the repair turns the loss into a gain. numbers: the
    evidence."""

    cause: str
    part: str | None
    speedup: float
    low: float
    high: float
    flips: bool
    numbers: Numbers


@dataclass(frozen=True, slots=True)
class Unseen:
    """A cause that could not be checked, with the missing data."""

    cause: str
    needs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CauseOdds:
    """A cause that may be the largest.

    odds: share of draws in which its repair is the largest. None if its reference is unknown; then
    the cause is not ruled out, and speedup is an upper limit. speedup: the arm's speedup after the
    repair. needs: data that would give the reference.
    """

    cause: str
    odds: float | None
    speedup: float | None
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Detected causes of one arm, the largest gain first, and causes that could not be checked.

    primary: the single named cause, or `no_single_fix`; None if the arm does not lose or several
    causes compete. cause_odds: the causes that may be the largest, the likeliest first. It holds
    one cause if that one is named, and none if the arm does not lose or too few pairs ran.
    """

    arm: str
    speedup: float
    primary: str | None
    cause_odds: tuple[CauseOdds, ...]
    repairs: tuple[Repair, ...]
    unseen: tuple[Unseen, ...]


def diagnose(facts: Facts, causes: Sequence[Cause]) -> Diagnosis:
    """Check every cause of a table, in its order, and return those that may be the largest."""
    looks = [(cause, cause.look(facts)) for cause in causes]
    seen = {cause: look for cause, look in looks if isinstance(look, Seen)}
    missing = {cause: look for cause, look in looks if isinstance(look, Missing)}
    there = {cause: look for cause, look in seen.items() if _there(cause, look, facts)}
    measured = float(facts.speedup[0])
    rivals: tuple[CauseOdds, ...] = ()
    if measured < 1.0:
        rivals = _rivals(facts, seen, missing)
    repairs = [_repair(cause, look, facts) for cause, look in there.items()]
    return Diagnosis(
        arm=facts.arm.arm,
        speedup=measured,
        primary=rivals[0].cause if _named(rivals) else None,
        cause_odds=rivals,
        repairs=tuple(sorted(repairs, key=lambda repair: -repair.speedup)),
        unseen=tuple(Unseen(cause.code, look.needs) for cause, look in missing.items()),
    )


def _named(rivals: Sequence[CauseOdds]) -> bool:
    return len(rivals) == 1 and (rivals[0].odds or 0.0) >= NAMED


def standing(rivals: Sequence[CauseOdds]) -> tuple[CauseOdds, ...]:
    """The named cause, if it is the largest with confidence and no other one is open; otherwise all
    competing causes, the likeliest first."""
    ordered = sorted(rivals, key=lambda one: -(one.odds or 0.0))
    if (
        ordered
        and (ordered[0].odds or 0.0) >= NAMED
        and all(one.odds is not None for one in rivals)
    ):
        return (ordered[0],)
    return tuple(ordered)


def _there(cause: Cause, seen: Seen, facts: Facts) -> bool:
    """Whether a cause saves, or may save, more than a rounding error."""
    if cause.part is None:
        return True
    most = seen.saved if seen.at_most is None else seen.at_most
    return bool(most[0] > 1e-6 * facts.arm_cost.total[0])


def _rivals(
    facts: Facts, seen: Mapping[Cause, Seen], missing: Mapping[Cause, Missing]
) -> tuple[CauseOdds, ...]:
    for cause in seen:
        if cause.part is None:
            return (CauseOdds(cause.code, 1.0, None),)
    if facts.arm.blocks < FEWEST_PAIRS:
        return ()
    parts = [cause for cause in (*seen, *missing) if cause.part == cause.code]
    gains = np.array([_gain(facts, _saved(facts, one, seen)) for one in parts])
    most = np.array([_gain(facts, _most(facts, one, seen, missing)) for one in parts])
    part_odds = odds_of(gains, most, -np.log(facts.speedup))
    rivals = []
    for place, part in enumerate(parts):
        odds = float(part_odds.odds[place])
        if odds >= RIVAL:
            name = _within(part, part_odds.credit[place], _saved(facts, part, seen), seen)
            saved = seen[name].saved if name in seen else _saved(facts, part, seen)
            rivals.append(CauseOdds(name.code, odds, _repaired(facts, saved)))
        elif part_odds.open_[place]:
            looked = seen.get(part) or missing[part]
            rivals.append(
                CauseOdds(part.code, None, _repaired(facts, looked.at_most), looked.needs)
            )
    if part_odds.none >= RIVAL:
        rivals.append(CauseOdds(NO_SINGLE_FIX, part_odds.none, None))
    return standing(rivals)


def _within(part: Cause, credit: Array, saved: Array, seen: Mapping[Cause, Seen]) -> Cause:
    """The cause within a part that explains it in nine of ten draws that credit the part; otherwise
    the part.

    In each draw, it is the first cause of the table that explains half of the part's cost. saved:
    the saving of the part, which may come from one of its causes.
    """
    whole = seen[part].saved if part in seen else saved
    behind = [one for one in seen if one.part == part.code and one is not part]
    left = credit.copy()
    for one in behind:
        enough = (seen[one].saved > 0) & (seen[one].saved >= _HALF * whole)
        if (left * enough).sum() >= NAMED * credit.sum():
            return one
        left = left * ~enough
    return part


def _saved(facts: Facts, part: Cause, seen: Mapping[Cause, Seen]) -> Array:
    """The saving of a part, or of one of its causes if that cause has a better reference."""
    saved = facts.nothing
    for one, look in seen.items():
        if one.part == part.code:
            saved = np.maximum(saved, look.saved)
    return saved


def _most(
    facts: Facts, part: Cause, seen: Mapping[Cause, Seen], missing: Mapping[Cause, Missing]
) -> Array:
    looked = seen.get(part) or missing[part]
    surely = _saved(facts, part, seen)
    return surely if looked.at_most is None else np.maximum(surely, looked.at_most)


def _left(facts: Facts, saved: Array) -> Array:
    """Time per output token after a repair. [ms]"""
    return np.maximum(facts.arm_cost.total - saved, 1e-9 * facts.arm_cost.total)


def _gain(facts: Facts, saved: Array) -> Array:
    return np.log(facts.arm_cost.total / _left(facts, saved))


def _repaired(facts: Facts, saved: Array | None) -> float | None:
    return None if saved is None else float((facts.base_cost.total / _left(facts, saved))[0])


def _repair(cause: Cause, seen: Seen, facts: Facts) -> Repair:
    speedups = facts.base_cost.total / _left(facts, seen.saved)
    low, high = np.percentile(speedups[1:], _INTERVAL)
    plain = float(speedups[0])
    return Repair(
        cause=cause.code,
        part=cause.part,
        speedup=plain,
        low=float(low),
        high=float(high),
        flips=bool(facts.speedup[0] < 1.0 < plain),
        numbers=seen.numbers,
    )
