"""What a class may wait for its tokens, and what follows where no draft length keeps to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specscope.evaluate.experiment.blocks import BASELINE
from specscope.evaluate.experiment.objectives import exceeds
from specscope.evaluate.experiment.summary import ArmSummary
from specscope.evaluate.verdict.choice import Choice
from specscope.evaluate.verdict.verdict import Action


def keep_to_allowance(
    choice: Choice, arms: Sequence[ArmSummary], allowance_ms: float | None
) -> Choice:
    """Replace a choice that breaks the class's allowance on the 95th percentile of time per token.

    By the shortest winning draft length that keeps to it; else by target-only, if that does;
    else by `route`: this class cannot be served well in the shared batch. Arms whose times are
    unknown are taken to keep to it.
    """
    if allowance_ms is None or not choice.action.settles:
        return choice
    slow = {arm.arm for arm in arms if exceeds(arm.tpot_p95_ms, allowance_ms)}
    if (choice.arm or BASELINE) not in slow:
        return choice
    others = [e for e in choice.speedups if e.wins and e.arm not in slow]
    if others:
        return replace(choice, action=Action.SET_K, arm=others[0].arm, k=others[0].k)
    if BASELINE not in slow:
        return replace(choice, action=Action.DISABLE, arm=None, k=0)
    return replace(choice, action=Action.ROUTE, arm=None, k=None)
