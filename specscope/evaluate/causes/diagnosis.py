"""Why speculation loses: one cause at a time is repaired on paper, and the verdict looked at again.

speedup = t_0 / t_k, both times per output token of the same pairs. Each cause says what time
would be saved without it. The primary cause lies in the part of the round whose repair alone turns
the loss into a gain, of several the one that gains most; it is the first of what is behind the part
whose own repair is enough, or else the part. Where none is enough, there is no single fix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specscope.evaluate.causes.cause import Cause, Missing, Seen
from specscope.evaluate.causes.facts import Facts

NO_SINGLE_FIX = "no_single_fix"


@dataclass(frozen=True, slots=True)
class Repair:
    """One cause repaired on paper. part: see `cause.Cause`. speedup: what the arm would reach;
    flips: from loss to gain."""

    cause: str
    part: str | None
    speedup: float
    flips: bool
    evidence: str


@dataclass(frozen=True, slots=True)
class Unseen:
    """A cause that could not be looked for, and what that would take."""

    cause: str
    needs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Causes of one arm that were seen, the largest gain first, and those that could not be.

    primary: the code of a cause, or `no_single_fix`; None where the arm does not lose.
    """

    arm: str
    speedup: float
    primary: str | None
    repairs: tuple[Repair, ...]
    unseen: tuple[Unseen, ...]


def diagnose(facts: Facts, causes: Sequence[Cause]) -> Diagnosis:
    """Look for every cause of a table, in its order, and name the primary one."""
    measured = facts.speedup
    repairs, unseen = [], []
    for cause in causes:
        found = cause.look(facts)
        if isinstance(found, Missing):
            unseen.append(Unseen(cause.code, found.needs))
        elif isinstance(found, Seen):
            # A number of numpy would leave a flag that JSON cannot say.
            left = float(max(facts.mine.total - found.saved, 1e-9 * facts.mine.total))
            repaired = facts.target.total / left
            flips = measured < 1.0 < repaired
            repairs.append(Repair(cause.code, cause.part, repaired, flips, found.evidence))
    return Diagnosis(
        arm=facts.arm.arm,
        speedup=measured,
        primary=None if measured >= 1.0 else _primary(repairs),
        repairs=tuple(sorted(repairs, key=lambda repair: -repair.speedup)),
        unseen=tuple(unseen),
    )


def _primary(repairs: Sequence[Repair]) -> str:
    """Input that cannot be believed explains everything; then the best part, named by what is
    behind it."""
    for repair in repairs:
        if repair.part is None:
            return repair.cause
    flipping = [repair for repair in repairs if repair.flips]
    if not flipping:
        return NO_SINGLE_FIX
    part = max(flipping, key=lambda repair: repair.speedup).part
    behind = [r.cause for r in flipping if r.part == part and r.cause != part]
    return behind[0] if behind else str(part)
