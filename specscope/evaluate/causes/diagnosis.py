"""Why speculation loses: one cause at a time is repaired on paper, and the loss looked at again.

speedup = t_0 / t_k, both times per output token of the same pairs. Each cause says what time
its repair would save, in the evidence as it came and in every draw of its pairs. A part of the
round is named if its repair is the largest in nine draws of ten; else the rivals stand together,
each with its odds. Within a part the first cause is named that explains at least half of it.
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
    """One cause repaired on paper. part: see `cause.Cause`. speedup: what the arm would reach;
    low, high: its 95 % interval over draws; flips: from loss to gain. numbers: its evidence."""

    cause: str
    part: str | None
    speedup: float
    low: float
    high: float
    flips: bool
    numbers: Numbers


@dataclass(frozen=True, slots=True)
class Unseen:
    """A cause that could not be looked for, and what that would take."""

    cause: str
    needs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CauseOdds:
    """A cause that may be the largest.

    odds: share of draws in which its repair is the largest; None if its reference is not known, so
    that it is not ruled out. speedup: what the arm would reach without it; at most, if odds is
    None. needs: what would tell the reference.
    """

    cause: str
    odds: float | None
    speedup: float | None
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Causes of one arm that were seen, the largest gain first, and those that could not be.

    primary: the cause that is named alone, or `no_single_fix`; None if the arm does not lose or
    rivals stand together. cause_odds: the causes that may be the largest, the likeliest first; one
    if one is named, none if the arm does not lose or too few pairs ran.
    """

    arm: str
    speedup: float
    primary: str | None
    cause_odds: tuple[CauseOdds, ...]
    repairs: tuple[Repair, ...]
    unseen: tuple[Unseen, ...]


def diagnose(facts: Facts, causes: Sequence[Cause]) -> Diagnosis:
    """Look for every cause of a table, in its order, and say which may be the largest."""
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
    """The one that is named alone, surely the largest with no other one open; else all rivals, the
    likeliest first."""
    ordered = sorted(rivals, key=lambda one: -(one.odds or 0.0))
    if (
        ordered
        and (ordered[0].odds or 0.0) >= NAMED
        and all(one.odds is not None for one in rivals)
    ):
        return (ordered[0],)
    return tuple(ordered)


def _there(cause: Cause, seen: Seen, facts: Facts) -> bool:
    """Whether a cause is worth a line: it saves more than a rounding error, or may do so."""
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
    """The cause behind a part that explains it in nine of ten draws that credit it; else the part.

    In a draw it is the first of the table that explains half of what the part costs. saved: by the
    part, which may be known only from a cause behind it.
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
    """Of a part, or of a cause behind it that has a better reference of its own."""
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
    """Time per output token that a repair leaves. [ms]"""
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
