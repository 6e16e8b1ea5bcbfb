"""What evidence still lacks: before a decision, and before a decision may change a gate."""

from __future__ import annotations

from collections.abc import Sequence

from specscope.evaluate.experiment import contrast
from specscope.evaluate.experiment.blocks import BASELINE
from specscope.evaluate.experiment.pairs import Pair
from specscope.evaluate.verdict.choice import Choice, Rules
from specscope.evaluate.verdict.comparisons import Comparisons
from specscope.evaluate.verdict.verdict import Reason, Why, because


def lacking(pairs: Sequence[Pair], choice: Choice, rules: Rules) -> list[Reason]:
    """What evidence lacks before it may change a gate: the chosen arm's, or every arm's if the
    choice is none of them."""
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
    """Pairs in all after which an action should be decided, if everything stays as it looks.

    One winner is enough, and so is a loss of the draft length in force. Only without both must
    every arm be settled: an arm that cannot change the action asks for nothing.
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
