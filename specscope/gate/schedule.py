"""The best table that depends on the batch alone, for engines that support no more.

Every kind of traffic gets the same number of tokens at every load, so times per token add. Regret
is the throughput lost against the full table, as a share.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specscope.gate.rules import Move
from specscope.policy.table import REPLAYED, GateTable

Kind = tuple[str | None, str | None, str | None]


@dataclass(frozen=True, slots=True)
class Step:
    """Batches low..high (inclusive; None: all above) run k."""

    low: int
    high: int | None
    k: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """Steps from batch 1 without a gap. regret: lost share of the full table's throughput, 0..1;
    None if unknown, with the reason in `unknown`."""

    steps: tuple[Step, ...]
    regret: float | None
    unknown: tuple[str, ...] = ()

    @property
    def k_max(self) -> int:
        """Longest draft."""
        return max(step.k for step in self.steps)


def best_schedule(
    moves: Sequence[Move],
    classes: Sequence[str | None] | None = None,
    largest_batch: int | None = None,
    in_force: Sequence[int] = (),
) -> Schedule:
    """For every range of the batch, the best common k for all kinds of traffic.

    It considers decided traffic only, and draft lengths that all of this traffic tried at that
    load. If there is none, the shortest draft in force stays; so a decision on some traffic never
    disables speculation for undecided traffic. classes: limit to these; None for all.
    largest_batch: largest batch of the engine; steps above it are dropped. in_force: draft lengths
    that run now, used if no experiment ran.
    """
    chosen = [
        move for move in moves if classes is None or move.place.verdict.segment.class_ in classes
    ]
    kinds: dict[Kind, list[Move]] = defaultdict(list)
    for move in chosen:
        segment = move.place.verdict.segment
        kinds[segment.class_, segment.context, segment.output].append(move)
    if not kinds:
        return Schedule((Step(1, None, _shortest(in_force)),), None, ("no experiment ran",))
    cuts = sorted({low for move in chosen if (low := _low(move)) <= (largest_batch or low)} | {1})
    ks, full, reached = [], 0.0, 0.0
    unknown: dict[str, None] = {}
    for low in cuts:
        here = [_at(group, low) for group in kinds.values()]
        decided = [move for move in here if move.place.verdict.applicable]
        k, cost, best = _cheapest(decided)
        waiting = _shortest([move.new_k for move in here if move not in decided])
        if k is None:
            k = _shortest([move.new_k for move in here])
        elif k == 0 and waiting:
            k = waiting
            unknown[f"undecided traffic keeps k = {k} from batch {low} on"] = None
        ks.append(k)
        unknown |= dict.fromkeys(_untimed(move) for move in here if move not in decided)
        if decided and cost is None:
            unknown[f"no draft length was tried by all traffic from batch {low} on"] = None
        elif decided and best is None:
            unknown[f"a length of the full table never ran from batch {low} on"] = None
        reached += cost or 0.0
        full += best or 0.0
    regret = None if unknown else max(0.0, 1.0 - full / reached)
    return Schedule(_steps(cuts, ks), regret, tuple(unknown))


def _untimed(move: Move) -> str:
    """The reason for a missing time per token at each draft length."""
    verdict = move.place.verdict
    if verdict.grade == REPLAYED:
        return (
            f"{verdict.segment} is decided by a replay, which gives a ratio and no time per token"
        )
    return f"{verdict.segment} is not decided"


def pool_split(
    moves: Sequence[Move], table: GateTable | None = None
) -> tuple[list[str], list[str]]:
    """Two pools for a router: classes that speculate at some load, and classes that never do.

    table: source for classes without a move, because mixed traffic is judged as a whole.
    """
    speculates: dict[str, bool] = defaultdict(bool)
    moved = [(move.place.verdict.segment.class_, move.new_k) for move in moves]
    judged = {name for name, _ in moved}
    told = [(cell.class_, cell.k) for cell in (table.cells if table else ())]
    for name, k in [*moved, *(one for one in told if one[0] not in judged)]:
        if name is not None:
            speculates[name] |= k > 0
    return (
        sorted(name for name, on in speculates.items() if on),
        sorted(name for name, on in speculates.items() if not on),
    )


def _shortest(lengths: Sequence[int]) -> int:
    """The shortest draft above 0; 0 if there is none."""
    return min((k for k in lengths if k), default=0)


def _cheapest(here: Sequence[Move]) -> tuple[int | None, float | None, float | None]:
    """The common k with the least time per token, that time, and the full table's. [ms]

    None if there is no common k.
    """
    costs = [_ms_per_token(move) for move in here]
    if not costs:
        return None, None, None
    common = set.intersection(*(set(cost) for cost in costs))
    own = [_own_ms(move, cost) for move, cost in zip(here, costs, strict=True)]
    best = sum(value for value in own if value is not None) if None not in own else None
    if not common:
        return None, None, None
    totals = {k: sum(cost[k] for cost in costs) for k in common}
    k = min(sorted(totals), key=lambda k: totals[k])
    return k, totals[k], best


def _ms_per_token(move: Move) -> Mapping[int, float]:
    return {
        arm.k: 1e3 / arm.tokens_per_s
        for arm in move.place.verdict.arms
        if arm.k is not None and arm.tokens_per_s > 0
    }


def _own_ms(move: Move, by_length: Mapping[int, float]) -> float | None:
    """Time per token of the full table's draft length; None if it never ran. [ms]"""
    if move.table is None:
        return by_length.get(move.new_k)
    ran = (arm for arm in move.place.verdict.arms if arm.arm == move.place.verdict.arm)
    return next((1e3 / arm.tokens_per_s for arm in ran if arm.tokens_per_s > 0), None)


def _at(group: Sequence[Move], batch: int) -> Move:
    """The move of one kind of traffic for a batch; above all ranges, the last move."""
    below = [move for move in group if _low(move) <= batch]
    return max(below, key=_low) if below else min(group, key=_low)


def _low(move: Move) -> int:
    limits = move.place.cell.batch
    return max(1, limits[0]) if limits else 1


def _steps(cuts: Sequence[int], ks: Sequence[int]) -> tuple[Step, ...]:
    steps: list[Step] = []
    for index, (low, k) in enumerate(zip(cuts, ks, strict=True)):
        high = cuts[index + 1] - 1 if index + 1 < len(cuts) else None
        if steps and steps[-1].k == k:
            steps[-1] = Step(steps[-1].low, high, k)
        else:
            steps.append(Step(low, high, k))
    return tuple(steps)
