"""Recommend a new table from verdicts and the table in force, with flags against it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from specscope.assess import Assessment, JudgedExperiment, assess_in_force
from specscope.evaluate.experiment.objectives import exceeds
from specscope.evaluate.verdict.shared_batch import ClassDelay, ClassTimes
from specscope.evaluate.verdict.verdict import Action, Confidence, Grade, Verdict
from specscope.evidence.read import Evidence
from specscope.gate.along_load import look_along_load
from specscope.gate.in_question import open_line, tables_in_question
from specscope.gate.places import lay_out
from specscope.gate.replayed import same_epoch, with_replays
from specscope.gate.rules import GateRules, Move, TablesThatRan, judge, rest
from specscope.policy.stored import Change, history
from specscope.policy.table import REPLAYED, Basis, Cell, GateTable, State
from specscope.replay.result import ReplayResult


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The recommended table.

    flags: points to check before you apply it. epoch, experiment: source of the verdicts behind the
    moves. assessment: all judgements.
    """

    assessment: Assessment
    epoch: str
    experiment: JudgedExperiment | None
    old: GateTable
    new: GateTable
    moves: tuple[Move, ...]
    flags: tuple[str, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The verdicts behind the moves."""
        return _of_epoch(self.experiment, self.epoch)

    @property
    def delays(self) -> tuple[ClassDelay, ...]:
        """Latencies of the classes with a limit, in batches shared under the table."""
        return tuple(one for one in self.assessment.delays if one.epoch == self.epoch)

    @property
    def class_times(self) -> tuple[ClassTimes, ...]:
        """Times of each class in batches shared under the table, by arm."""
        return tuple(one for one in self.assessment.class_times if one.epoch == self.epoch)

    @property
    def ran_alone(self) -> bool:
        """Whether its verdicts come from several classes that each ran alone. Such verdicts may not
        hold in a batch that these classes share."""
        classes = {verdict.segment.class_ for verdict in self.verdicts}
        return self.experiment is not None and self.experiment.kind == "cohort" and len(classes) > 1

    def confidence(self, move: Move) -> Confidence:
        """Confidence of a move: that of its verdict.

        It is medium if the move changes the draft length of one class that ran alone.
        """
        verdict = move.place.verdict
        known = verdict.grade is Grade.REPLAYED or not (self.ran_alone and move.changes)
        return verdict.confidence if known else Confidence.MEDIUM

    @property
    def changes(self) -> list[Move]:
        """Moves that change a draft length."""
        return [move for move in self.moves if move.changes]

    @property
    def routes(self) -> list[str]:
        """Classes that the shared batch cannot serve well."""
        alone = {m.place.verdict.segment.class_ or "" for m in self.moves if m.rule == "route"}
        return sorted(alone | {one.class_ for one in self.delays if one.action is Action.ROUTE})


def recommendation(
    evidence: Evidence,
    *,
    now: int,
    default_k: int | None = None,
    allowances: Mapping[str, float] | None = None,
    closed_loop: bool = False,
    epoch: str | None = None,
    replays: Sequence[ReplayResult] = (),
    explained: bool = True,
) -> Recommendation:
    """Judge evidence, then recommend. See `assess.assess_in_force` and `recommend`."""
    judged = assess_in_force(
        evidence, default_k, allowances, closed_loop=closed_loop, explained=explained
    )
    return recommend(
        judged,
        history(evidence.policies),
        now=now,
        epoch=epoch,
        default_k=default_k or 0,
        replays=replays,
    )


def recommend(
    assessment: Assessment,
    changes: Sequence[Change] = (),
    *,
    now: int,
    epoch: str | None = None,
    default_k: int = 0,
    rules: GateRules | None = None,
    replays: Sequence[ReplayResult] = (),
) -> Recommendation:
    """Decide a move for every place with a verdict, then combine the moves into a table.

    epoch: epoch of the verdicts (default: the latest). default_k: draft length in force without a
    table. changes: tables that were in force, oldest first. now: ns since 1970. Only verdicts with
    enough pairs, and replays that a person accepted, change the table.
    """
    rules = rules or GateRules()
    chosen = epoch or (assessment.epochs[-1] if assessment.epochs else "")
    experiment = assessment.newest(chosen)
    current = assessment.table or GateTable((), default_k)
    allowances = assessment.allowances
    moves = []
    for place in lay_out(
        _of_epoch(experiment, chosen), experiment.design if experiment else "cohort"
    ):
        verdict = place.verdict
        old_k = current.k(place.state) if verdict.current is None else verdict.current
        too_slow = _too_slow(verdict, old_k, allowances)
        move = judge(place, old_k, rules, too_slow, _tables(experiment, chosen, current))
        changed_at = last_change(changes, None if move.table else place.state)
        fresh = 0 if changed_at is None else _pairs_since(experiment, verdict, changed_at)
        moves.append(rest(move, changed_at, fresh, now, rules))
    moves, flags = look_along_load(moves)
    usable = [one for one in replays if same_epoch(one, chosen)]
    moves, more = with_replays(moves, usable, current, rules)
    moves = [_rested(move, changes, now, rules) for move in moves]
    flags += more
    cells = [cell for move in moves if _said(move) for cell in _cells(move, allowances)]
    changed = any(move.changes for move in moves)
    return Recommendation(
        assessment=assessment,
        epoch=chosen,
        experiment=experiment,
        old=current,
        new=current.with_first(tuple(_merged(cells))) if changed else current,
        moves=tuple(moves),
        flags=tuple(flags),
        notes=(
            *(f"epoch {name} was left out" for name in assessment.epochs if name != chosen),
            *(f"a replay of epoch {r.epoch} was left out" for r in replays if r not in usable),
            *_other_kinds(assessment, experiment, chosen),
            *assessment.notes,
            *_caveats(experiment, moves),
            *_in_question(experiment, moves, rules),
        ),
    )


def _of_epoch(experiment: JudgedExperiment | None, epoch: str) -> tuple[Verdict, ...]:
    verdicts = experiment.verdicts if experiment else ()
    return tuple(verdict for verdict in verdicts if verdict.epoch == epoch)


def _other_kinds(
    assessment: Assessment, experiment: JudgedExperiment | None, epoch: str
) -> list[str]:
    others = sum(
        one.blocks.get(epoch, 0) for one in assessment.experiments if one is not experiment
    )
    return [f"{others} blocks of other experiments are left out"] if others else []


def _caveats(experiment: JudgedExperiment | None, moves: Sequence[Move]) -> list[str]:
    caveats = []
    grades = {move.place.verdict.grade for move in moves if move.changes}
    if experiment and experiment.kind == "cohort" and grades - {Grade.REPLAYED}:
        caveats.append(
            "these classes ran alone: run the table as an arm in a shared batch before all "
            "replicas follow (`gate recommend --out FILE`, `gate calibrate --arms "
            "k0,current,FILE`)"
        )
    if Grade.REPLAYED in grades:
        caveats.append(
            "cells marked `replayed` are based on a replay: confirm them with `--hold-out` blocks"
        )
    return caveats


def _in_question(
    experiment: JudgedExperiment | None, moves: Sequence[Move], rules: GateRules
) -> list[str]:
    """Tables that ran and may still be better than what a move puts in force."""
    tables = sorted({arm for _, arm in experiment.tables}) if experiment else []
    lines = [
        open_line(*one)
        for move in moves
        if move.changes and move.table is None
        for one in tables_in_question(move.place.verdict, tables).items()
    ]
    rest = f"a cell that changes now rests for {rules.flip_days:.0f} days"
    return [f"{line}; {rest}: let the experiment go on first" for line in dict.fromkeys(lines)]


def _too_slow(verdict: Verdict, k: int, allowances: Mapping[str, float]) -> bool:
    """Whether a draft length exceeds the class's latency limit, with confidence."""
    allowance_ms = allowances.get(verdict.segment.class_ or "")
    return any(a.arm == f"k{k}" and exceeds(a.tpot_p95_ms, allowance_ms) for a in verdict.arms)


def _rested(move: Move, history: Sequence[Change], now: int, rules: GateRules) -> Move:
    """Hold back a change from a replay while its cell is frozen; new pairs are not required."""
    if move.place.verdict.grade is not Grade.REPLAYED:
        return move
    return rest(move, last_change(history, move.place.state), rules.new_pairs, now, rules)


def _tables(experiment: JudgedExperiment | None, epoch: str, current: GateTable) -> TablesThatRan:
    """The tables of the arms, and the arm that ran the table in force."""
    ran = experiment.tables if experiment else {}
    by_arm = {arm: table for (name, arm), table in ran.items() if name == epoch}
    same = [arm for arm, table in by_arm.items() if table == current]
    alone = f"k{current.default_k}"
    return TablesThatRan(
        by_arm=by_arm,
        in_force=next(iter(same), None if current.cells else alone),
        by_class=any(cell.class_ is not None for cell in current.cells),
    )


def _cells(move: Move, allowances: Mapping[str, float]) -> list[Cell]:
    """The cells of a move with their basis; for a table, its own cells within the place."""
    basis = _basis(move, allowances)
    if move.table is None:
        return [replace(move.place.with_k(move.new_k), basis=basis)]
    every = (*move.table.cells, Cell(move.table.default_k))
    within = (cell.within(move.place.with_k(cell.k)) for cell in every)
    return [replace(cell, basis=basis) for cell in within if cell is not None]


def _basis(move: Move, allowances: Mapping[str, float]) -> Basis:
    verdict, one = move.place.verdict, move.evidence
    return Basis(
        grade=verdict.grade,
        arm=one.arm if one else None,
        baseline=one.baseline if one else None,
        ratio=one.value if one else None,
        low=one.low if one else None,
        high=one.high if one else None,
        count=one.pairs if one else verdict.pairs,
        primary=verdict.primary,
        route=move.rule == "route",
        tpot_ms=allowances.get(verdict.segment.class_ or ""),
    )


def last_change(history: Sequence[Change], state: State | None) -> int | None:
    """Time of the last change of a state's draft length; None without a change.

    state: None for any draft length of the table.
    """
    found = None
    for before, after in pairwise(history):
        if state is None:
            changed = before.table != after.table
        else:
            changed = before.table.k(state) != after.table.k(state)
        if changed:
            found = after.created_at
    return found


def _pairs_since(experiment: JudgedExperiment | None, verdict: Verdict, ns: int) -> int:
    if experiment is None:
        return 0
    return sum(at >= ns for at in experiment.begun.get((verdict.epoch, verdict.segment), ()))


def _said(move: Move) -> bool:
    """Only decided moves change the table; other cells stay."""
    return move.changes or move.rule == "keep"


def _merged(cells: Sequence[Cell]) -> list[Cell]:
    """Merge neighbouring cells of one kind of traffic with equal k."""
    merged: list[Cell] = []
    for cell in cells:
        last = merged[-1] if merged else None
        if last is not None and _adjoin(last, cell):
            assert last.batch is not None
            assert cell.batch is not None
            merged[-1] = replace(
                last, batch=(last.batch[0], cell.batch[1]), basis=_weaker(last, cell)
            )
        else:
            merged.append(cell)
    return merged


def _weaker(left: Cell, right: Cell) -> Basis | None:
    """The basis of the less certain one of two merged cells."""
    bases = [basis for basis in (left.basis, right.basis) if basis is not None]
    return max(bases, key=lambda b: (b.grade == REPLAYED, -(b.low or 0.0)), default=None)


def _adjoin(left: Cell, right: Cell) -> bool:
    same = (left.k, left.class_, left.context, left.output) == (
        right.k,
        right.class_,
        right.context,
        right.output,
    )
    return (
        same
        and left.batch is not None
        and right.batch is not None
        and (left.batch[1] == right.batch[0])
    )
