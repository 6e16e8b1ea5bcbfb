"""A new table from verdicts and the table in force, and everything that speaks against it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from specscope.evaluate.experiment.blocks import BASELINE
from specscope.evaluate.experiment.checks import Design, usable_pairs
from specscope.evaluate.experiment.objectives import exceeds
from specscope.evaluate.experiment.pairs import Pair, by_segment, pairs_of
from specscope.evaluate.verdict.choice import Rules
from specscope.evaluate.verdict.decide import decide
from specscope.evaluate.verdict.shared_batch import ClassDelay
from specscope.evaluate.verdict.untried import Untried
from specscope.evaluate.verdict.verdict import Verdict
from specscope.gate.along_load import look_along_load
from specscope.gate.evidence import Evidence
from specscope.gate.places import lay_out
from specscope.gate.replayed import same_epoch, with_replays
from specscope.gate.rules import GateRules, Move, judge, rest
from specscope.policy.stored import Change
from specscope.policy.table import REPLAYED, Basis, Cell, GateTable, State
from specscope.replay.result import Result


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What should be in force. flags: what a person should look at before applying it.

    delays: of the classes that have an allowance, in batches shared under the table in force.
    """

    epoch: str
    old: GateTable
    new: GateTable
    moves: tuple[Move, ...]
    flags: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...] = field(default=())
    crossovers: tuple[Verdict, ...] = ()
    """Of engines that cannot change k while they run: what to start them with."""
    delays: tuple[ClassDelay, ...] = ()
    untried: tuple[Untried, ...] = ()
    """Draft lengths that nobody ran; nothing recommends them."""
    of_hour: Mapping[str, float] = field(default_factory=dict)
    """Price of an hour of a replica, by epoch; empty where none was given."""

    @property
    def changes(self) -> list[Move]:
        """Moves that change a draft length."""
        return [move for move in self.moves if move.changes]

    @property
    def routes(self) -> list[str]:
        """Classes that cannot be served well in the shared batch."""
        alone = {m.place.verdict.segment.class_ or "" for m in self.moves if m.rule == "route"}
        return sorted(alone | {one.class_ for one in self.delays if one.action == "route"})


def recommend(
    evidence: Evidence,
    current: GateTable,
    history: Sequence[Change] = (),
    *,
    now: int,
    rules: GateRules | None = None,
    decision: Rules | None = None,
    design: Design = "cohort",
    replays: Sequence[Result] = (),
) -> Recommendation:
    """Judge every place that the evidence speaks about, then look at them together.

    history: tables that were in force, oldest first; now: ns since 1970. Only verdicts that
    rest on enough pairs change anything, and replays that a person has accepted.
    """
    rules = rules or GateRules()
    verdicts = decide(
        evidence.blocks, evidence.parts, decision, design, evidence.machines, evidence.outputs
    )
    pairs = _pairs(evidence, design)
    moves = []
    for place in lay_out(verdicts, design):
        mine = pairs.get((place.verdict.epoch, place.verdict.segment), ())
        old_k = current.k(place.state)
        move = judge(place, old_k, rules, _too_slow(place.verdict, old_k, decision))
        changed_at = last_change(history, place.state)
        fresh = 0 if changed_at is None else _pairs_since(mine, changed_at)
        moves.append(rest(move, changed_at, fresh, now, rules))
    moves, flags = look_along_load(moves)
    usable = [one for one in replays if same_epoch(one, evidence.epoch)]
    moves, more = with_replays(moves, usable, current, rules)
    moves = [_rested(move, history, now, rules) for move in moves]
    flags += more
    cells = [_cell(move, decision) for move in moves if _said(move)]
    changed = any(move.changes for move in moves)
    notes = tuple(f"epoch {name} was left out" for name in evidence.other_epochs)
    notes += tuple(
        f"a replay of epoch {one.epoch} was left out" for one in replays if one not in usable
    )
    return Recommendation(
        epoch=evidence.epoch,
        old=current,
        new=current.with_first(tuple(_merged(cells))) if changed else current,
        moves=tuple(moves),
        flags=tuple(flags),
        verdicts=tuple(verdicts),
        notes=notes,
    )


def _too_slow(verdict: Verdict, k: int, decision: Rules | None) -> bool:
    """Whether a draft length surely takes longer for a token than the class is allowed."""
    allowance_ms = decision.allowance(verdict.segment.class_) if decision else None
    return any(a.arm == f"k{k}" and exceeds(a.tpot_p95_ms, allowance_ms) for a in verdict.arms)


def _rested(move: Move, history: Sequence[Change], now: int, rules: GateRules) -> Move:
    """A replay brings no new pairs, but its cell rests as long as any other."""
    if move.place.verdict.grade != REPLAYED:
        return move
    return rest(move, last_change(history, move.place.state), rules.new_pairs, now, rules)


def _cell(move: Move, decision: Rules | None) -> Cell:
    """The cell of a move, with what it rests on."""
    verdict, one = move.place.verdict, move.evidence
    basis = Basis(
        grade=verdict.grade,
        arm=one.arm if one else None,
        baseline=one.baseline if one else None,
        ratio=one.value if one else None,
        low=one.low if one else None,
        high=one.high if one else None,
        count=one.pairs if one else verdict.pairs,
        primary=verdict.primary,
        route=move.rule == "route",
        tpot_ms=decision.allowance(verdict.segment.class_) if decision else None,
    )
    return replace(move.place.with_k(move.new_k), basis=basis)


def last_change(history: Sequence[Change], state: State) -> int | None:
    """When the draft length of a state last became another; None where it never did."""
    found = None
    for before, after in pairwise(history):
        if before.table.k(state) != after.table.k(state):
            found = after.created_at
    return found


def _pairs(evidence: Evidence, design: Design) -> Mapping[tuple[str, object], Sequence[Pair]]:
    closed_loop = design == "closed_loop"
    grouped = by_segment(pairs_of(evidence.blocks, evidence.parts, closed_loop=closed_loop))
    return {key: usable_pairs(pairs, design).pairs for key, pairs in grouped.items()}


def _pairs_since(pairs: Sequence[Pair], ns: int) -> int:
    return sum(
        BASELINE in pair.blocks and min(b.first_at for b in pair.blocks.values()) >= ns
        for pair in pairs
    )


def _said(move: Move) -> bool:
    """Only what was decided is written down; the rest stays as the table has it."""
    return move.changes or move.rule == "keep"


def _merged(cells: Sequence[Cell]) -> list[Cell]:
    """Neighbours of one kind of traffic with the same k become one cell."""
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
    """Of two cells that become one, what the less sure one rests on."""
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
