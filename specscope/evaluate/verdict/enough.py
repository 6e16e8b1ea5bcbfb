"""What evidence still lacks: before a decision, and before a decision may change a gate."""

from __future__ import annotations

from collections.abc import Sequence

from specscope.evaluate.experiment import contrast
from specscope.evaluate.experiment.blocks import BASELINE
from specscope.evaluate.experiment.measures import Measure
from specscope.evaluate.experiment.pairs import Pair
from specscope.evaluate.statistics.multiplicity import bonferroni
from specscope.evaluate.verdict.choice import Choice, Rules
from specscope.evaluate.verdict.verdict import Reason, Why, because


def lacking(pairs: Sequence[Pair], choice: Choice, rules: Rules) -> list[Reason]:
    """What an arm still lacks before its evidence may change a gate."""
    lacking = []
    for one in choice.speedups:
        mine = [p.blocks[one.arm] for p in pairs if one.arm in p.blocks and BASELINE in p.blocks]
        for have, least, unit in (
            (one.pairs, rules.min_pairs, "pairs"),
            (sum(block.requests for block in mine), rules.min_requests, "requests"),
            (sum(block.rounds for block in mine), rules.min_rounds, "rounds"),
        ):
            if have < least:
                lacking.append(because(Why.THIN, one.arm, have=have, least=least, unit=unit))
    return lacking


def pairs_needed(
    pairs: Sequence[Pair],
    choice: Choice,
    rules: Rules,
    comparisons: int,
    decided: bool,
    measure: Measure,
) -> int | None:
    """Pairs that a decision should take in all, or enough evidence for one that is made."""
    if not choice.speedups:
        return rules.min_pairs
    if decided:
        return rules.min_pairs
    level = bonferroni(rules.level, max(1, comparisons))
    needs = [
        contrast.pairs_needed(
            measure.contrast(pairs, arm, BASELINE),
            level,
            rules.smallest_effect,
            rules.looked_at_often,
        )
        for arm in choice.undecided
    ]
    return max([rules.min_pairs, *(need for need in needs if need is not None)])
