"""The reasons of a verdict as codes with numbers. `words` has the sentences."""

from __future__ import annotations

from collections.abc import Sequence

from specscope.evaluate.causes.diagnosis import NO_SINGLE_FIX, Diagnosis
from specscope.evaluate.experiment.blocks import BASELINE, LeftOut
from specscope.evaluate.experiment.estimate import Estimate
from specscope.evaluate.experiment.objectives import METRICS, exceeds
from specscope.evaluate.experiment.summary import ArmSummary
from specscope.evaluate.outputs.copies import OutputCheck
from specscope.evaluate.verdict.choice import Choice
from specscope.evaluate.verdict.verdict import Action, Reason, Why, because


def reasons_of(
    *,
    action: Action,
    choice: Choice,
    arms: Sequence[ArmSummary],
    thin: Sequence[Reason],
    pairs_needed: int | None,
    left_out: Sequence[tuple[LeftOut, int]],
    effect: float,
    allowance_ms: float | None = None,
    metric: str = METRICS["throughput"],
) -> list[Reason]:
    """The deciding reasons, the missing evidence and the dropped pairs, without speedups.

    metric: the metric of the speedups, in words.
    """
    reasons = _because(action, choice, effect)
    reasons += _beyond_allowance(arms, allowance_ms)
    reasons += _against_break_even(choice.speedups, arms, metric)
    if action in (Action.INCONCLUSIVE, Action.COLLECT_BASELINE) and pairs_needed:
        reasons.append(because(Why.PAIRS_NEEDED, pairs=pairs_needed))
    else:
        reasons += thin
    reasons += [because(Why.LEFT_OUT, reason=code, pairs=count) for code, count in left_out]
    return reasons


def of_cause(diagnosis: Diagnosis) -> Reason | None:
    """The cause of an arm's loss with its evidence, or the competing causes with their odds.

    None if the arm does not lose, or if too few pairs ran.
    """
    rivals = diagnosis.cause_odds
    if not rivals:
        return None
    if diagnosis.primary is None:
        return because(
            Why.CAUSES,
            diagnosis.arm,
            causes=tuple(one.cause for one in rivals),
            odds=tuple(one.odds for one in rivals),
            speedups=tuple(one.speedup for one in rivals),
            needs=tuple(dict.fromkeys(need for one in rivals for need in one.needs)),
        )
    if diagnosis.primary == NO_SINGLE_FIX:
        gains = ", ".join(
            f"{r.cause} {r.speedup:.2f}" for r in diagnosis.repairs if r.part == r.cause
        )
        return because(Why.NO_SINGLE_FIX, diagnosis.arm, repairs=gains, odds=rivals[0].odds)
    repair = next(one for one in diagnosis.repairs if one.cause == diagnosis.primary)
    return because(
        Why.CAUSE,
        diagnosis.arm,
        cause=repair.cause,
        odds=rivals[0].odds,
        speedup=rivals[0].speedup,
        **repair.numbers,
    )


def of_outputs(check: OutputCheck) -> Reason:
    """How often an arm's outputs differ from target-only's."""
    return because(
        Why.OUTPUTS,
        check.arm,
        state=check.state,
        differing=check.differing,
        compared=check.compared,
        twins_differing=check.twins_differing,
        twins=check.twins,
    )


def _because(action: Action, choice: Choice, effect: float) -> list[Reason]:
    if action is Action.COLLECT_BASELINE:
        return [because(Why.NO_BASELINE)]
    if action is Action.NO_DIFFERENCE:
        losing = tuple(one.arm for one in choice.speedups if one.loses and not one.within(effect))
        slower = [because(Why.SURELY_SLOWER, arms=losing)] if losing else []
        return [because(Why.NO_GAIN, effect=effect), *slower]
    if action is Action.DISABLE:
        return [_of_disable(choice)]
    if action is Action.INCONCLUSIVE and not choice.speedups:
        return [because(Why.TIME_UNKNOWN if choice.undecided else Why.NO_ARM)]
    if action is Action.INCONCLUSIVE:
        return [because(Why.UNDECIDED, arms=choice.undecided)]
    rivals = tuple(arm for arm in choice.best if arm != choice.arm)
    if action.gains and rivals:
        return [because(Why.RIVALS, choice.arm, arms=rivals)]
    return []


def _of_disable(choice: Choice) -> Reason:
    if any(one.wins for one in choice.speedups):
        return because(Why.NONE_WITHIN_ALLOWANCE)
    if choice.undecided:
        return because(Why.NOT_IN_FORCE, arms=choice.undecided)
    everywhere = all(one.loses for one in choice.speedups)
    return because(Why.ALL_LOSE if everywhere else Why.CURRENT_LOSES)


def _beyond_allowance(arms: Sequence[ArmSummary], allowance_ms: float | None) -> list[Reason]:
    return [
        because(Why.BEYOND_ALLOWANCE, a.arm, p95_ms=a.tpot_p95_ms.value, allowance_ms=allowance_ms)
        for a in arms
        if a.tpot_p95_ms is not None and exceeds(a.tpot_p95_ms, allowance_ms)
    ]


def break_even(arm: ArmSummary, speedup: Estimate, metric: str) -> float | None:
    """Tokens per round at which an arm equals its baseline.

    More tokens per round reduce all time per output token except prefill. So the result is None if
    prefill alone takes as long as the baseline. For metrics other than throughput the share of
    prefill is unknown, and all time counts.
    """
    tokens = arm.tokens_per_round.value
    total = sum(arm.ms_per_token.values())
    prompts = arm.ms_per_token.get("prefill", 0.0) if metric == METRICS["throughput"] else 0.0
    spare = total * speedup.value - prompts
    return tokens * (total - prompts) / spare if spare > 0.0 else None


def _against_break_even(
    speedups: Sequence[Estimate], arms: Sequence[ArmSummary], metric: str
) -> list[Reason]:
    """A reason with tokens per round and the cost of a round in target-only steps, from the same
    blocks."""
    by_name = {arm.arm: arm for arm in arms}
    reasons = []
    for one in speedups:
        arm = by_name.get(one.arm)
        if arm is None or not arm.k or one.baseline != BASELINE:
            continue
        needed = break_even(arm, one, metric)
        if needed is not None:
            tokens = arm.tokens_per_round.value
            reasons.append(
                because(Why.BREAK_EVEN, one.arm, tokens_per_round=tokens, break_even=needed)
            )
    return reasons
