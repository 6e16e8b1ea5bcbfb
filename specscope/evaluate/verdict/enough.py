"""Missing evidence: for a decision, and for a decision that may change a gate."""

from __future__ import annotations

from collections.abc import Sequence

from specscope.evaluate.experiment import contrast
from specscope.evaluate.experiment.blocks import BASELINE
from specscope.evaluate.experiment.pairs import Pair
from specscope.evaluate.verdict.choice import Choice, Rules
from specscope.evaluate.verdict.comparisons import Comparisons
from specscope.evaluate.verdict.verdict import Reason, Why, because


def lacking(pairs: Sequence[Pair], choice: Choice, rules: Rules) -> list[Reason]:
    """Evidence that the chosen arm, or every arm if none is chosen, lacks before a gate may
    change."""
    lacking = []
    chosen = [one for one in choice.speedups if one.arm == choice.arm]
    for one in chosen or choice.speedups:
        blocks = [p.blocks[one.arm] for p in pairs if one.arm in p.blocks and BASELINE in p.blocks]
        for have, least, unit in (
            (one.pairs, rules.min_pairs, "pairs"),
            (sum(block.requests for block in blocks), rules.min_requests, "requests"),
            (sum(block.request_rounds for block in blocks), rules.min_rounds, "rounds"),
        ):
            if have < least:
                lacking.append(because(Why.THIN, one.arm, have=have, least=least, unit=unit))
    return lacking


def pairs_needed(
    comparisons: Comparisons,
    choice: Choice,
    rules: Rules,
    decided: bool,
    current: int | None = None,
) -> int:
    """Expected total number of pairs until the action is decided.

    One winner decides it, and so does a loss of the draft length in force. Only without both must
    every arm be settled. Arms that cannot change the action need no pairs.
    """
    if decided or not choice.speedups:
        return rules.min_pairs
    compared = {one.arm: one for one in comparisons.speedups}
    needs = {
        one.arm: contrast.pairs_needed(
            compared[one.arm].contrast, one.level, rules.smallest_effect, rules.looked_at_often
        )
        for one in choice.speedups
        if one.arm in choice.undecided
    }
    known = {arm: need for arm, need in needs.items() if need is not None}
    gains = [
        known[one.arm]
        for one in choice.speedups
        if one.arm in known and one.arm in choice.best and one.value > 1.0 + rules.smallest_effect
    ]
    in_force = [known[one.arm] for one in choice.speedups if one.arm in known and one.k == current]
    if gains:
        return max(rules.min_pairs, min(gains))
    if current and in_force and max(one.value for one in choice.speedups) < 1.0:
        return max(rules.min_pairs, min(in_force))
    return max([rules.min_pairs, *known.values()])
