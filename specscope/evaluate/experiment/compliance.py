"""Check that an arm ran its draft length: a cap, a guardrail or a schedule may shorten drafts.

The hook names a block after its arm, so only the proposals show the engine's behaviour. They are
counted per request-round that drafted. A lookup drafter that finds nothing proposes nothing in that
round, and still complies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from specscope.evaluate.experiment.blocks import arm_k
from specscope.evaluate.experiment.pairs import Pair

# Text that ends, and a lookup that matches near the end of its text, shorten some drafts. Below
# this share of the arm's length it was another length, or a mixture of lengths, that ran.
COMPLIES = 0.6


@dataclass(frozen=True, slots=True)
class ShortArm:
    """An arm that drafted less than its length. drafted: tokens per round that drafted."""

    arm: str
    k: int
    drafted: float


def with_arms_that_ran(pairs: Sequence[Pair]) -> tuple[list[Pair], list[ShortArm]]:
    """Remove the blocks of arms that did not run. Returns the pairs and these arms.

    All pairs belong to one segment. A pair that keeps a single block stays.
    """
    short = [one for arm in _arms(pairs) if (one := _short(pairs, arm)) is not None]
    if not short:
        return list(pairs), []
    gone = {one.arm for one in short}
    kept = [
        replace(pair, blocks={arm: block for arm, block in pair.blocks.items() if arm not in gone})
        for pair in pairs
    ]
    return [pair for pair in kept if pair.blocks], short


def drafted_per_round(pairs: Sequence[Pair], arm: str) -> float | None:
    """Tokens proposed per drafting request-round, or in the longest draft of a round if that is
    more.

    Drafters that stop by themselves differ within a round; under a cap all drafts are equal. None
    if the arm has no round; 0 if it never proposed.
    """
    ran = [pair for pair in pairs if arm in pair.blocks]
    blocks = [pair.blocks[arm] for pair in ran]
    proposed = sum(block.proposed for block in blocks)
    rounds = sum(block.request_rounds for block in blocks)
    if not rounds:
        return None
    if not proposed:
        return 0.0
    drafting = sum(_first_tested(part.tested) for pair in ran for part in pair.parts.get(arm, ()))
    own = proposed / min(drafting or rounds, rounds)
    slots = [block.full_tokens for block in blocks]
    longest = sum(slot or 0 for slot in slots) / rounds - 1.0 if None not in slots else 0.0
    return max(own, longest)


def _short(pairs: Sequence[Pair], arm: str) -> ShortArm | None:
    k, drafted = arm_k(arm), drafted_per_round(pairs, arm)
    if not k or drafted is None or drafted >= COMPLIES * k:
        return None
    return ShortArm(arm, k, drafted)


def _first_tested(tested: Sequence[int]) -> int:
    return tested[0] if tested else 0


def _arms(pairs: Sequence[Pair]) -> list[str]:
    return sorted({arm for pair in pairs for arm in pair.blocks})
