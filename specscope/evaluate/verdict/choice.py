"""Which draft length a segment should run, among those that ran.

Every tried k is compared, not only neighbours. Step cost is a staircase, so a search that stops at
the first decrease stops too early. An untried k is never chosen.
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
    """The parameters of a decision.

    level: joint level of all claims of one kind in one call (`comparisons`). smallest_effect:
    smaller differences, as a share, do not matter. looked_at_often: the evidence is read while it
    grows, so confidence sequences replace intervals. min_*: evidence that an arm needs before its
    verdict may change a gate. current: draft length in force for a segment at a mean batch, or one
    for all; None if unknown. objective: None lets the design choose. tpot_allowance_ms: limit of
    the 95th percentile of time per output token, by class.
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
        """Draft length in force for a segment. batch: mean sequences per round at k = 0."""
        if self.current is None or isinstance(self.current, int):
            return self.current
        return self.current(segment, batch)

    def allowance(self, class_: str | None) -> float | None:
        """Limit of the 95th percentile of time per output token of a class. [ms]"""
        return (self.tpot_allowance_ms or {}).get(class_ or "")


@dataclass(frozen=True, slots=True)
class Choice:
    """The decision for one segment.

    action: keep, set_k, disable, no_difference, route, collect_baseline or inconclusive. k: draft
    length to run; None if undecided. best: the fastest arm, and
    arms not proven to differ from it. speedups: every arm against k0. point_k: the fastest arm by
    point estimate. undecided: arms with neither a proven difference nor a proven small one.
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

    keep: the current draft length is among the best and beats target-only. set_k: another draft
    length is among the best and beats target-only. disable: every arm loses, or the current one
    loses and no other wins. no_difference: all differences are smaller than the smallest relevant
    effect. collect_baseline: no pair ran both k0 and an arm. inconclusive: not decided yet.
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
    """Arms that a test does not separate from the fastest, shortest draft first.

    An arm that shares no pair with the fastest is not among them.
    """
    behind = {two.arm: two for two in between if two.baseline == fastest.arm}
    return [
        one
        for one in speedups
        if one.arm == fastest.arm or (one.arm in behind and not behind[one.arm].loses)
    ]
