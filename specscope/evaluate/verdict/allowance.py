"""The latency limit of a class (its allowance), and the action if no draft length meets it."""

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
    """Replace a choice whose 95th percentile of time per token exceeds the class's limit.

    The replacement is the shortest winning draft length within the limit, otherwise target-only if
    it is within the limit, otherwise `route`: the shared batch cannot serve this class well. Arms
    with unknown times count as within the limit.
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
