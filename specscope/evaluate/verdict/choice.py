"""Which draft length a segment should run, among those that ran.

Every k that was tried is compared, not only neighbours: step cost is a staircase, and a search
that stops at the first decrease stops too early. An untried k is never chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from specscope.evaluate.experiment.blocks import IN_FORCE
from specscope.evaluate.experiment.estimate import Estimate
from specscope.evaluate.experiment.objectives import Objective
from specscope.evaluate.experiment.segments import Segment
from specscope.evaluate.verdict.comparisons import Estimates
from specscope.evaluate.verdict.verdict import Action


@dataclass(frozen=True, slots=True)
class Rules:
    """How a decision is made.

    level: of all claims of one kind in one call together (`comparisons`). smallest_effect:
    differences below this share do not matter. looked_at_often: the evidence is read while it
    grows, so confidence sequences take the place of intervals. min_*: what an arm needs before
    its verdict may change a gate. current: draft length in force for a segment at a mean batch,
    or one for all; None if unknown. objective: None to let the design choose. tpot_allowance_ms:
    by class, the allowed 95th percentile of time per output token.
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
    length to run; None if nothing is decided. best: arms that cannot be told from the
    fastest. speedups: of every arm against k0. point_k: the fastest arm by point estimate.
    undecided: arms of which nothing is sure, neither a difference nor that it is small.
    """

    action: Action
    arm: str | None
    k: int | None
    best: tuple[str, ...]
    speedups: tuple[Estimate, ...]
    point_k: int
    undecided: tuple[str, ...] = ()


def choose(estimates: Estimates, rules: Rules, current: int | None = None) -> Choice:
    """Decide a segment.

    keep: the current draft length is among the best and beats target-only. set_k: another
    does. disable: speculation loses in every arm, or in the current one while no other wins.
    no_difference: nothing that matters either way. collect_baseline: no pair ran k0 beside an
    arm. inconclusive: not decided yet.
    """
    speedups = estimates.speedups
    if not estimates.arms:
        return Choice(Action.INCONCLUSIVE, None, None, (), (), 0)
    if not speedups and estimates.together:
        return Choice(Action.INCONCLUSIVE, None, None, (), (), 0, estimates.arms)
    if not speedups:
        return Choice(Action.COLLECT_BASELINE, None, None, (), (), 0)
    fastest = max(speedups, key=lambda e: (e.value, -(e.k or 0)))
    best = _best_set(fastest, speedups, estimates.between)
    point_k = (fastest.k or 0) if fastest.value > 1.0 else 0
    action, chosen = _judge(speedups, best, rules.smallest_effect, current)
    return Choice(
        action=action,
        arm=chosen.arm if chosen else None,
        k=chosen.k if chosen else 0 if action is Action.DISABLE else None,
        best=tuple(e.arm for e in best),
        speedups=speedups,
        point_k=point_k,
        undecided=tuple(
            e.arm for e in speedups if not (e.differs or e.within(rules.smallest_effect))
        ),
    )


def _judge(
    speedups: Sequence[Estimate], best: Sequence[Estimate], effect: float, current: int | None
) -> tuple[Action, Estimate | None]:
    winners = [e for e in best if e.wins and not e.within(effect)]
    if winners:
        # The arm that follows the table in force runs what is in force, whatever `current` says
        # of the one draft length that stands for it.
        tables = [e for e in winners if e.arm == IN_FORCE]
        running = tables or [e for e in winners if current is not None and e.k == current]
        chosen = running[0] if running else winners[0]
        return (Action.KEEP if running else Action.SET_K), chosen
    settled = all(e.loses or e.within(effect) for e in speedups)
    running = [e for e in speedups if current and e.k == current]
    if any(e.loses and not (settled and e.within(effect)) for e in running):
        return Action.DISABLE, None
    if settled:
        idle = any(e.within(effect) for e in speedups)
        return (Action.NO_DIFFERENCE if idle else Action.DISABLE), None
    return Action.INCONCLUSIVE, None


def _best_set(
    fastest: Estimate, speedups: Sequence[Estimate], between: Sequence[Estimate]
) -> list[Estimate]:
    """Arms that a test cannot tell from the fastest, shortest draft first.

    An arm that never met the fastest in a pair is not known to equal it.
    """
    behind = {two.arm: two for two in between if two.baseline == fastest.arm}
    return [
        one
        for one in speedups
        if one.arm == fastest.arm or (one.arm in behind and not behind[one.arm].loses)
    ]
