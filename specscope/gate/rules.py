"""The rules for a change of one cell: thresholds by direction, and time between changes.

Enabling speculation or lengthening drafts needs a gain of 3 % with 95 % confidence. Disabling or
shortening needs any loss with 95 % confidence. After a change the cell is frozen for some time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from specscope.evaluate.experiment.blocks import BASELINE, IN_FORCE
from specscope.evaluate.experiment.estimate import Estimate
from specscope.evaluate.verdict.verdict import Verdict
from specscope.gate.places import Place
from specscope.policy.table import GateTable

HOUR_NS = 3600 * 10**9
TOO_SLOW = "the time per token exceeds the class's latency limit"
CHANGES = frozenset({"enable", "raise", "lower", "disable", "route", "adopt"})


@dataclass(frozen=True, slots=True)
class GateRules:
    """Thresholds of a change.

    up: gain that a longer draft must prove, as a share. dwell_h: hours that a cell stays frozen
    after a change. flip_days: period with at most one change. new_pairs: pairs that must have begun
    since the last change. idle: loss that does not matter if nothing else gains, as a share.
    """

    up: float = 0.03
    idle: float = 0.02
    dwell_h: float = 24.0
    flip_days: float = 7.0
    new_pairs: int = 20


@dataclass(frozen=True, slots=True)
class Move:
    """The decision for one place.

    rule: keep, enable, raise, lower, disable, route, adopt, no_change, insufficient or held.
    evidence: the deciding contrast; None without one. table: for `adopt` only, the table that
    replaces the one in force; old_k and new_k are then those of traffic without a class.
    """

    place: Place
    rule: str
    old_k: int
    new_k: int
    why: str
    evidence: Estimate | None = None
    table: GateTable | None = None

    @property
    def changes(self) -> bool:
        """Whether the draft length changes."""
        return self.rule in CHANGES and (self.old_k != self.new_k or self.table is not None)


@dataclass(frozen=True, slots=True)
class TablesThatRan:
    """Tables of arms, for comparison with the table in force.

    by_arm: the table of each arm. in_force: the arm that ran the table in force (one length for
    all, or a table); None without one. by_class: whether the table in force distinguishes classes,
    so that no single length represents it in mixed traffic.
    """

    by_arm: Mapping[str, GateTable] = field(default_factory=dict)
    in_force: str | None = None
    by_class: bool = False


def judge(
    place: Place,
    old_k: int,
    rules: GateRules,
    too_slow: bool = False,
    tables: TablesThatRan | None = None,
) -> Move:
    """Apply the thresholds to one place with old_k in force, without reading a clock.

    too_slow: old_k exceeds the class's latency limit with confidence. tables: tables of arms;
    without them no table is proposed.
    """
    verdict = place.verdict
    against_k0 = {e.arm: e for e in verdict.speedups}
    old = against_k0.get(f"k{old_k}")

    def stay(rule: str, why: str, evidence: Estimate | None = None) -> Move:
        return Move(place, rule, old_k, old_k, why, evidence)

    if not verdict.applicable:
        return stay("insufficient", _lacking(place))
    if verdict.action == "route":
        return Move(
            place,
            "route",
            old_k,
            0,
            "every draft length exceeds the latency limit of the class",
            old,
        )
    tables = tables or TablesThatRan()
    whole = verdict.segment.class_ is None and tables.by_class
    if verdict.action.gains and (verdict.k is None or whole):
        return _table(place, old_k, rules, tables)
    if whole:
        return _without_gain(place, old_k, rules, against_k0.get(tables.in_force or ""))
    if old_k and old is None and verdict.action != "no_difference":
        return stay("insufficient", f"k = {old_k} is in force and never ran in these pairs")
    if verdict.action in ("disable", "no_difference"):
        if old is not None and too_slow:
            return Move(place, "disable", old_k, 0, TOO_SLOW, old)
        if old is not None and old.loses and not old.within(rules.idle):
            return Move(place, "disable", old_k, 0, "loses to target-only", old)
        if verdict.action == "no_difference":
            return stay("no_change", "no difference that matters", old)
        if old_k == 0:
            return stay("keep", "target-only is in force and stays")
        return stay("no_change", f"k = {old_k} may not lose", old)
    assert verdict.k is not None
    if too_slow and old_k and verdict.k != old_k:
        rule = "lower" if verdict.k < old_k else "raise"
        return Move(place, rule, old_k, verdict.k, TOO_SLOW, against_k0.get(f"k{verdict.k}"))
    if old is not None and old.wins and old.arm in verdict.best:
        return stay("keep", "wins, and no other is better with 95 % confidence", old)
    new_k = verdict.k
    gain = _between(verdict, new_k, old_k)
    if gain is None or gain.low is None:
        return stay("insufficient", f"k = {new_k} and k = {old_k} never met in a pair")
    if new_k > old_k:
        rule = "enable" if old_k == 0 else "raise"
        if gain.low > 1.0 + rules.up:
            return Move(place, rule, old_k, new_k, "gains with 95 % confidence", gain)
        return stay("no_change", f"k = {new_k} may gain less than {rules.up:.0%}", gain)
    if gain.low > 1.0 or (old is not None and old.loses):
        return Move(
            place, "lower", old_k, new_k, "the shorter draft is better with 95 % confidence", gain
        )
    return stay("no_change", f"k = {new_k} may not be better", gain)


def _table(place: Place, old_k: int, rules: GateRules, tables: TablesThatRan) -> Move:
    """Whether the winning arm's table replaces the table in force.

    With confidence, it must beat target-only and each single draft length in its experiment, and
    beat the table in force by the threshold of a longer draft. A draft length from another
    experiment must lie below the table's proven gain over target-only.
    """
    verdict = place.verdict
    arm = verdict.arm or ""

    def stay(rule: str, why: str, evidence: Estimate | None = None) -> Move:
        return Move(place, rule, old_k, old_k, why, evidence)

    if arm in (IN_FORCE, tables.in_force):
        return stay("no_change", "the table in force is among the best")
    table = tables.by_arm.get(arm) if verdict.k is None else GateTable((), verdict.k)
    if table is None:
        return stay("insufficient", f"the table of {arm} is not known")
    if tables.in_force is None:
        return stay("insufficient", f"the table in force never ran beside {arm}: add arm current")
    lengths = [one.arm for one in verdict.speedups if one.k is not None]
    surely = next((one.low for one in verdict.speedups if one.arm == arm), None)

    def behind(length: str) -> bool:
        apart = _contrast(verdict, arm, length) is None
        return apart and surely is not None and _value(verdict, length) < surely

    switches = [] if verdict.k is not None else [one for one in lengths if not behind(one)]
    rivals = dict.fromkeys((BASELINE, *switches, tables.in_force))
    contrasts = {rival: _contrast(verdict, arm, rival) for rival in rivals}
    for rival, one in contrasts.items():
        if one is None:
            return stay("insufficient", f"{arm} and {rival} never met in a pair")
        if not one.wins:
            return stay("no_change", f"{arm} may not beat {rival}", one)
    gain = contrasts[tables.in_force]
    assert gain is not None
    if gain.low is None:
        return stay("insufficient", f"the interval of {arm} over {gain.baseline} is unknown", gain)
    if gain.low <= 1.0 + rules.up:
        why = f"{arm} may gain less than {rules.up:.0%} over {gain.baseline}"
        return stay("no_change", why, gain)
    best = max(switches, key=lambda name: _value(verdict, name), default=BASELINE)
    why = f"{arm} beats {', '.join(rivals)} with 95 % confidence"
    return Move(place, "adopt", old_k, old_k, why, contrasts.get(best), table=table)


def _without_gain(place: Place, old_k: int, rules: GateRules, ran: Estimate | None) -> Move:
    """The move for mixed traffic without a gain. ran: contrast of the table in force with
    target-only."""
    if ran is None:
        why = "the table in force never ran in these pairs: add arm current"
        return Move(place, "insufficient", old_k, old_k, why)
    if ran.loses and not ran.within(rules.idle):
        off = GateTable((), 0)
        return Move(place, "disable", old_k, 0, "loses to target-only", ran, table=off)
    return Move(place, "no_change", old_k, old_k, "the table in force may not lose", ran)


def _value(verdict: Verdict, arm: str) -> float:
    return next((one.value for one in verdict.speedups if one.arm == arm), 0.0)


def rest(move: Move, changed_at: int | None, new_pairs: int, now: int, rules: GateRules) -> Move:
    """Hold a change back while its cell is frozen.

    changed_at: time of the last change of its draft length; None for never. new_pairs: pairs begun
    since then.
    """
    if not move.changes or changed_at is None:
        return move
    hours = (now - changed_at) / HOUR_NS
    if hours < rules.dwell_h:
        why = f"changed {hours:.0f} h ago, frozen for {rules.dwell_h:.0f} h"
    elif hours < 24.0 * rules.flip_days:
        why = f"changed {hours / 24:.1f} days ago, changes once in {rules.flip_days:.0f} days"
    elif new_pairs < rules.new_pairs:
        why = f"{new_pairs} of {rules.new_pairs} new pairs since its last change"
    else:
        return move
    what = f"{move.rule} to k = {move.new_k}" if move.table is None else "adopt a table"
    held = f"would {what}; {why}"
    return Move(move.place, "held", move.old_k, move.old_k, held, move.evidence)


def _between(verdict: Verdict, new_k: int, old_k: int) -> Estimate | None:
    """The contrast of a draft length with another, or with target-only."""
    return _contrast(verdict, f"k{new_k}", f"k{old_k}")


def _contrast(verdict: Verdict, new: str, old: str) -> Estimate | None:
    """The contrast of two arms."""
    found = (e for e in (*verdict.speedups, *verdict.between) if (e.arm, e.baseline) == (new, old))
    return next(found, None)


def _lacking(place: Place) -> str:
    verdict = place.verdict
    if verdict.flags:
        return f"not valid: {', '.join(verdict.flags)}"
    if verdict.pairs_needed:
        return f"{verdict.action}: {verdict.pairs} of about {verdict.pairs_needed} pairs"
    return f"{verdict.action}: low confidence"
