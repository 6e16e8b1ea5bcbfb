"""Cells based on a replay that a person accepted; measured pairs always take precedence.

A replay compares one draft length with one baseline on one trace. It may set that length or remove
it. It may also veto a longer draft that pairs would set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from specscope.errors import InputError
from specscope.evaluate.experiment.blocks import arm_k
from specscope.evaluate.verdict.verdict import Confidence, Grade, Verdict
from specscope.gate.places import Place
from specscope.gate.rules import GateRules, Move
from specscope.policy.table import REPLAYED, Cell, GateTable, State, range_of
from specscope.replay import judge, result
from specscope.replay.result import ReplayResult
from specscope.store.buckets import CONTEXT, OUTPUT

UPWARD = frozenset({"enable", "raise", "keep"})


def read_replays(paths: Sequence[Path]) -> list[ReplayResult]:
    """Read results of replays for cells. Raises InputError for an unusable result."""
    found = []
    for path in paths:
        one = result.read(path)
        if one.arms[0] not in judge.BASELINES or not arm_k(one.arms[1]):
            raise InputError(
                f"{path}: compares {one.arms[1]} with {one.arms[0]}; a gate needs a draft length "
                "against k0 or clean (`specscope replay --a k0=URL --b k4=URL`)"
            )
        if one.judged.flags:
            raise InputError(f"{path}: not valid: {', '.join(one.judged.flags)}")
        found.append(one)
    return found


def same_epoch(replay: ReplayResult, epoch: str) -> bool:
    """Whether a replay applies to an epoch: their names match, or one of them has no name."""
    return not replay.epoch or not epoch or replay.epoch == epoch


def with_replays(
    moves: Sequence[Move], replays: Sequence[ReplayResult], current: GateTable, rules: GateRules
) -> tuple[list[Move], list[str]]:
    """The moves from pairs, then those from replays for traffic that pairs do not decide; and
    flags."""
    kept, flags = list(moves), list[str]()
    for one in replays:
        for replayed in one.judged.verdicts:
            if replayed.verdict.segment.class_ is None:
                continue  # all traffic together is no class of its own
            made = _move(one, replayed.verdict, current, rules)
            theirs = [i for i, move in enumerate(kept) if _measured(move, made)]
            if not theirs:
                kept.append(made)
            for index in theirs:
                kept[index], flag = _veto(kept[index], made)
                flags += flag
    return kept, flags


def _measured(move: Move, made: Move) -> bool:
    """Whether pairs decide the traffic of a replay."""
    theirs, mine = move.place.verdict.segment, made.place.verdict.segment
    same = theirs.class_ == mine.class_ and all(
        one is None or other is None or one == other
        for one, other in ((theirs.context, mine.context), (theirs.output, mine.output))
    )
    return same and move.place.verdict.applicable


def _veto(move: Move, made: Move) -> tuple[Move, list[str]]:
    loses = made.evidence is not None and made.evidence.loses
    if not (loses and move.rule in UPWARD and made.evidence and move.new_k == made.evidence.k):
        return move, []
    name = move.place.verdict.segment
    flag = f"REPLAY_DISAGREES {name}: pairs say {move.rule}, a replay of k = {move.new_k} loses"
    if not move.changes:
        return move, [flag]
    why = f"would {move.rule} to k = {move.new_k}; a replay of it loses"
    return Move(move.place, "held", move.old_k, move.old_k, why, move.evidence), [flag]


def _move(one: ReplayResult, verdict: Verdict, current: GateTable, rules: GateRules) -> Move:
    place = _place(one, verdict)
    old_k = current.k(place.state)
    found = place.verdict.speedups[0] if place.verdict.speedups else None
    k = arm_k(one.arms[1]) or 0

    def stay(rule: str, why: str) -> Move:
        return Move(place, rule, old_k, old_k, why, found)

    if verdict.confidence is not Confidence.HIGH or found is None or found.low is None:
        return stay("insufficient", f"replayed, {verdict.action}: low confidence")
    if old_k not in (0, k):
        return stay("insufficient", f"k = {old_k} is in force, and the replay ran k = {k}")
    if found.loses and one.arms[0] == "clean":
        why = f"replayed: k = {k} loses to an engine without speculation"
        return Move(place, "route", old_k, 0, why, found)
    if found.loses:
        if old_k == 0:
            return stay("keep", f"replayed: k = {k} loses, target-only stays")
        return Move(place, "disable", old_k, 0, "replayed: loses to target-only", found)
    if old_k == k and found.wins:
        return stay("keep", "replayed: wins")
    if old_k == 0 and found.low > 1.0 + rules.up:
        return Move(place, "enable", old_k, k, "replayed: gains with 95 % confidence", found)
    return stay("no_change", "replayed: no gain with 95 % confidence")


def _place(one: ReplayResult, verdict: Verdict) -> Place:
    """A place limited to the replay's requests in flight and buckets."""
    segment = verdict.segment
    context, output = range_of(CONTEXT, segment.context), range_of(OUTPUT, segment.output)
    judged = replace(verdict, epoch=one.epoch, grade=Grade.REPLAYED)
    batch = max(1.0, one.judged.batch)
    state = State(
        class_=segment.class_ or "",
        context=context[0] if context else 0,
        output=output[0] if output else 0,
        batch=round(batch),
    )
    cell = Cell(0, segment.class_, context, output, (0, None))
    return Place(judged, cell, state, batch, max(1, one.judged.largest))


def replayed_cells(table: GateTable, in_force: GateTable) -> list[Cell]:
    """Cells of a table that are based on a replay and not yet in force."""
    return [
        cell
        for cell in table.cells
        if cell.basis is not None
        and cell.basis.grade == REPLAYED
        and replace(cell, basis=None) not in in_force.cells
    ]
