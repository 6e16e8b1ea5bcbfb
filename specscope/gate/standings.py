"""The standing of each autopilot arm against the table in force, and whether to stop it.

Stopping an arm needs less evidence than changing a gate: the traffic loses nothing, and the arm
returns after a change. So each arm has its own one-sided test, with at most 5 % wrong stops. Both
tests hold at any time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import special

from specscope.evaluate.experiment import objectives
from specscope.evaluate.experiment.blocks import BASELINE, IN_FORCE
from specscope.evaluate.experiment.estimate import Estimate
from specscope.evaluate.experiment.pairs import Pair
from specscope.evaluate.statistics import randomisation, sequential
from specscope.evaluate.statistics.ratio import LogRatio
from specscope.evaluate.verdict.verdict import Verdict
from specscope.gate.recommend import Recommendation
from specscope.gate.rules import GateRules
from specscope.policy.autopilot import AutopilotState
from specscope.policy.table import GateTable

GAIN = GateRules().up  # an arm that cannot gain as much never changes the table
STOP_ALPHA = 0.05  # chance that an arm is stopped wrongly, of each arm and each way to stop
SHARES = (0.4, 0.2, 0.4)  # of it: of the signs, of Student's test, of the sequence
FIRST_T = 4  # pairs from which Student's test speaks
FEW = 5  # pairs of a kind of traffic, below which its point estimate keeps no arm


@dataclass(frozen=True, slots=True)
class ArmStanding:
    """An arm compared with the table in force.

    lost: upper limit of its lost share of capacity, 0..1. why: reason to stop it; empty if it
    continues.
    """

    name: str
    lost: float
    why: str = ""


def standings_of(
    state: AutopilotState, table: GateTable, advice: Recommendation | None
) -> list[ArmStanding]:
    """Every arm compared with the table in force: its possible loss, and whether to stop it."""
    incumbent = incumbent_of(table)
    names = dict.fromkeys((BASELINE, *(arm.name for arm in state.arms)))
    verdicts = advice.verdicts if advice else ()
    return [
        ArmStanding(
            name,
            _lost_at_most(name, incumbent, verdicts, state.worst),
            "" if name == BASELINE else reason_to_stop(contrasts_of(advice, name, incumbent)),
        )
        for name in names
        if name != incumbent
    ]


def incumbent_of(table: GateTable) -> str:
    """The arm that runs the table in force."""
    return BASELINE if table == GateTable((), 0) else IN_FORCE


def contrasts_of(advice: Recommendation | None, arm: str, rival: str) -> list[LogRatio]:
    """Contrasts of two arms in each kind of traffic, pairs in the order of time."""
    if advice is None or advice.experiment is None or advice.experiment.paired is None:
        return []
    ran = advice.experiment.paired
    contrasts = []
    for (epoch, _), usable in ran.usable.items():
        if epoch == advice.epoch and usable.pairs:
            blocks = [block for pair in usable.pairs for block in pair.blocks.values()]
            objective = objectives.objective_for(ran.design, blocks)
            contrasts.append(objectives.measure(in_time(usable.pairs), arm, rival, objective))
    return [one for one in contrasts if one is not None]


def behind_chosen(advice: Recommendation, names: Sequence[str]) -> dict[str, str]:
    """The named arms that are not better than the chosen arms, with reasons.

    A gate changes at most once a week. So the first arm with a proven gain is not taken while
    another may gain more. The chosen arms themselves have no reason.
    """
    chosen = {move.place.verdict.arm or "" for move in advice.changes}
    behind = {}
    for name in names:
        whys = [reason_to_stop(contrasts_of(advice, name, one), one) for one in chosen]
        if name in chosen or any(one in ("", name) for one in chosen):
            behind[name] = ""
        elif all(whys):
            behind[name] = whys[0]
    return behind


def in_time(pairs: Sequence[Pair]) -> list[Pair]:
    """Pairs by their beginning."""
    return sorted(pairs, key=lambda pair: min(block.first_at for block in pair.blocks.values()))


def reason_to_stop(contrasts: Sequence[LogRatio], rival: str = "the table in force") -> str:
    """The reason to stop an arm; empty if it should continue.

    contrasts: with its rival, by kind of traffic. An arm stops if it loses with confidence in one
    kind and looks better in none. It also stops if it gains less than 3 % with confidence in every
    kind.
    """
    if not contrasts:
        return ""
    alpha = STOP_ALPHA / len(contrasts)  # that it loses in one kind of several
    hopes = any(one.delta > 0.0 and one.pairs >= FEW for one in contrasts)
    if not hopes and any(surely_below(one, 0.0, alpha) for one in contrasts):
        least = min(contrasts, key=lambda one: one.delta)
        return f"it loses with 95 % confidence, {least.ratio:.3f} of {rival}"
    if all(surely_below(one, math.log1p(GAIN), STOP_ALPHA) for one in contrasts):
        most = max(contrasts, key=lambda one: one.delta)
        return f"it cannot gain {GAIN:.0%}, {most.ratio:.3f} of {rival}"
    return ""


def surely_below(contrast: LogRatio, edge: float, alpha: float) -> bool:
    """One-sided test that an arm's log ratio lies below an edge, valid at any time.

    Three tests share alpha: a sign test around the edge, from the first pair; Student's t at each
    look before the first look of the sequence, which finds large losses; and the sequence from 20
    pairs.
    """
    by_signs, by_student, by_sequence = (share * alpha for share in SHARES)
    if randomisation.loss_e_value(contrast.own - edge) >= 1.0 / by_signs:
        return True
    looks = range(FIRST_T, sequential.FIRST_LOOK)
    if contrast.pairs in looks and contrast.se:
        t = (contrast.delta - edge) / contrast.se
        return bool(special.stdtr(contrast.freedom, t) < by_student / len(looks))
    # Each side of an interval has half of its error.
    limits = sequential.interval(contrast, 2.0 * by_sequence, sequential.FIRST_LOOK)
    return limits is not None and limits[1] < edge


def _lost_at_most(name: str, incumbent: str, verdicts: Sequence[Verdict], worst: float) -> float:
    """Upper limit of the loss over segments, weighted by pairs; a segment without an interval
    counts as the worst."""
    known = [(verdict.pairs, _against(verdict, name, incumbent)) for verdict in verdicts]
    met = [(pairs, one) for pairs, one in known if one is not None]
    total = sum(pairs for pairs, _ in met)
    if not total:
        return worst
    return sum(pairs * _lost(one, worst) for pairs, one in met) / total


def _lost(one: Estimate, worst: float) -> float:
    return worst if one.low is None else min(worst, max(0.0, 1.0 - one.low))


def _against(verdict: Verdict, arm: str, incumbent: str) -> Estimate | None:
    for one in (*verdict.speedups, *verdict.between):
        if (one.arm, one.baseline) == (arm, incumbent):
            return one
        if (one.arm, one.baseline) == (incumbent, arm):
            return one.reversed()
    return None
