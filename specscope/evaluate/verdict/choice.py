"""Which draft length a segment should run, among those that ran.

Every k that was tried is compared, not only neighbours: step cost is a staircase, and a search
that stops at the first decrease stops too early. An untried k is never chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from specscope.evaluate.experiment import contrast
from specscope.evaluate.experiment.blocks import BASELINE, arm_k
from specscope.evaluate.experiment.estimate import Estimate
from specscope.evaluate.experiment.measures import Measure
from specscope.evaluate.experiment.objectives import Objective
from specscope.evaluate.experiment.pairs import Pair
from specscope.evaluate.experiment.segments import Segment
from specscope.evaluate.statistics.multiplicity import bonferroni
from specscope.evaluate.verdict.verdict import Action


@dataclass(frozen=True, slots=True)
class Rules:
    """How a decision is made.

    level: of all intervals of one call together. smallest_effect: differences below this share
    do not matter. looked_at_often: the evidence is read while it grows, so confidence
    sequences take the place of intervals. min_*: what an arm needs before its verdict may
    change a gate. current: draft length in force for a segment at a mean batch, or one for
    all; None if unknown. objective: None to let the design choose. tpot_allowance_ms: by class,
    the allowed 95th percentile of time per output token.
    """

    level: float = 0.95
    smallest_effect: float = 0.02
    looked_at_often: bool = False
    min_pairs: int = 20
    min_requests: int = 30
    min_rounds: int = 300
    current: int | Callable[[Segment, float], int] | None = None
    objective: Objective | None = None
    tpot_allowance_ms: Mapping[str, float] | None = None

    def current_k(self, segment: Segment, batch: float) -> int | None:
        """Draft length in force for a segment. batch: mean sequences a round at k = 0."""
        if self.current is None or isinstance(self.current, int):
            return self.current
        return self.current(segment, batch)

    def allowance(self, class_: str | None) -> float | None:
        """Allowed 95th percentile of time per output token of a class. [ms]"""
        return (self.tpot_allowance_ms or {}).get(class_ or "")


@dataclass(frozen=True, slots=True)
class Choice:
    """What one segment's pairs say.

    action: keep, set_k, disable, no_difference, route, collect_baseline or inconclusive. k: draft
    length to run; None where nothing is decided. best: arms that cannot be told from the
    fastest. speedups: of every arm against k0. point_k: the fastest arm by point estimate.
    """

    action: Action
    arm: str | None
    k: int | None
    best: tuple[str, ...]
    speedups: tuple[Estimate, ...]
    point_k: int
    undecided: tuple[str, ...] = ()


def arms_of(pairs: Sequence[Pair]) -> list[str]:
    """Arms compared with k0, shortest draft first, tables last; no twins, no one-cell arms."""
    names = {arm for pair in pairs for arm in pair.blocks}
    names -= {BASELINE, "clean"}
    plain = [arm for arm in names if "+" not in arm and not arm.endswith("'")]
    return sorted(plain, key=lambda arm: (arm_k(arm) is None, arm_k(arm) or 0, arm))


def choose(
    pairs: Sequence[Pair],
    rules: Rules,
    comparisons: int,
    current: int | None = None,
    measure: Measure | None = None,
) -> Choice:
    """Decide a segment, each interval at the level at which `comparisons` hold together.

    keep: the current draft length is among the best and beats target-only. set_k: another
    does. disable: speculation loses in every arm, or in the current one while no other wins.
    no_difference: nothing that matters either way. collect_baseline: no pair ran k0 beside an
    arm. inconclusive: not decided yet. measure: by default throughput, with nothing held equal.
    """
    measure = measure or Measure()
    level = bonferroni(rules.level, max(1, comparisons))
    speedups = []
    for arm in arms_of(pairs):
        found = measure.estimate(pairs, arm, BASELINE, level, rules.looked_at_often)
        if found is not None:
            speedups.append(found)
    if not arms_of(pairs):
        return Choice(Action.INCONCLUSIVE, None, None, (), (), 0)
    if not speedups and any(contrast.log_ratio(pairs, a, BASELINE) for a in arms_of(pairs)):
        return Choice(Action.INCONCLUSIVE, None, None, (), (), 0, tuple(arms_of(pairs)))
    if not speedups:
        return Choice(Action.COLLECT_BASELINE, None, None, (), (), 0)
    fastest = max(speedups, key=lambda e: (e.value, -(e.k or 0)))
    rivals = bonferroni(rules.level, max(1, len(speedups) - 1))
    best = _best_set(pairs, fastest, speedups, rivals, rules.looked_at_often, measure)
    point_k = (fastest.k or 0) if fastest.value > 1.0 else 0
    verdict = _judge(speedups, best, rules.smallest_effect, current)
    return Choice(
        action=verdict[0],
        arm=verdict[1].arm if verdict[1] else None,
        k=verdict[1].k if verdict[1] else 0 if verdict[0] is Action.DISABLE else None,
        best=tuple(e.arm for e in best),
        speedups=tuple(speedups),
        point_k=point_k,
        undecided=tuple(
            e.arm for e in speedups if not (e.wins or e.loses or e.within(rules.smallest_effect))
        ),
    )


def cells_of(pairs: Sequence[Pair]) -> list[str]:
    """Arms that change one cell of the table in force, compared with `current`."""
    return sorted({a for pair in pairs for a in pair.blocks if a.startswith("current+")})


def count_comparisons(segments: Iterable[Sequence[Pair]]) -> int:
    """Segments times arms: how many intervals must hold together."""
    return sum(len(arms_of(pairs)) + len(cells_of(pairs)) for pairs in segments)


def estimate_cells(
    pairs: Sequence[Pair], rules: Rules, comparisons: int, measure: Measure
) -> list[Estimate]:
    """What each changed cell does to the whole replica, all else as it is."""
    level = bonferroni(rules.level, max(1, comparisons))
    found = [
        measure.estimate(pairs, arm, "current", level, rules.looked_at_often)
        for arm in cells_of(pairs)
    ]
    return [one for one in found if one is not None]


def estimate_between(
    pairs: Sequence[Pair], rules: Rules, comparisons: int, measure: Measure
) -> list[Estimate]:
    """Each two draft lengths that ran against each other, both ways."""
    level = bonferroni(rules.level, max(1, comparisons))
    lengths = [arm for arm in arms_of(pairs) if arm_k(arm)]
    found = [
        measure.estimate(pairs, arm, other, level, rules.looked_at_often)
        for arm in lengths
        for other in lengths
        if arm != other
    ]
    return [one for one in found if one is not None]


def _judge(
    speedups: Sequence[Estimate], best: Sequence[Estimate], effect: float, current: int | None
) -> tuple[Action, Estimate | None]:
    winners = [e for e in best if e.wins and not e.within(effect)]
    if winners:
        running = [e for e in winners if current is not None and e.k == current]
        chosen = running[0] if running else winners[0]
        same = bool(running) or (chosen.k is None and chosen.arm == "current")
        return (Action.KEEP if same else Action.SET_K), chosen
    settled = all(e.loses or e.within(effect) for e in speedups)
    running = [e for e in speedups if current and e.k == current]
    if any(e.loses and not (settled and e.within(effect)) for e in running):
        return Action.DISABLE, None
    if settled:
        idle = any(e.within(effect) for e in speedups)
        return (Action.NO_DIFFERENCE if idle else Action.DISABLE), None
    return Action.INCONCLUSIVE, None


def _best_set(
    pairs: Sequence[Pair],
    fastest: Estimate,
    speedups: Sequence[Estimate],
    level: float,
    looked_at_often: bool,
    measure: Measure,
) -> list[Estimate]:
    """Arms that the pairs cannot tell from the fastest, shortest draft first."""
    kept = []
    for one in speedups:
        if one.arm == fastest.arm:
            kept.append(one)
            continue
        behind = measure.estimate(pairs, one.arm, fastest.arm, level, looked_at_often)
        if behind is not None and not behind.loses:
            kept.append(one)
    return kept
