"""Find the definition of an SGLang "accept rate" from its numbers.

Before PR#23530 (April 2026) it was accept length / draft tokens, with the bonus token on both
sides; later it is accepted / proposed. Both have two decimals, so one line often fits both. The
draft length is equal in all lines, which decides.
"""

from __future__ import annotations

from dataclasses import dataclass

WIDEST = 64
HALF_DIGIT = 0.00501


@dataclass(frozen=True, slots=True)
class Definition:
    """`name` is `bonus_included`, `strict` or `ambiguous`; k is the number of proposals."""

    name: str
    k: int | None


class RateDefinition:
    """The draft lengths that fit all (length, rate) pairs so far, under either definition."""

    def __init__(self) -> None:
        self._bonus = set(range(1, WIDEST + 1))
        self._strict = set(range(1, WIDEST))

    def see(self, length: float, rate: float) -> None:
        """Add one line. A pair with impossible values is ignored."""
        bonus = {n for n in self._bonus if _fits(length, rate, n)}
        strict = {k for k in self._strict if _fits(length - 1, rate, k)}
        if bonus or strict:
            self._bonus, self._strict = bonus, strict

    def settled(self) -> bool:
        """Whether one draft length under one definition remains."""
        return len(self._bonus) + len(self._strict) == 1

    def decide(self) -> Definition:
        """The remaining definition, or `ambiguous`."""
        if len(self._bonus) == 1 and not self._strict:
            return Definition("bonus_included", max(self._bonus) - 1)
        if len(self._strict) == 1 and not self._bonus:
            return Definition("strict", max(self._strict))
        if not self._bonus and self._strict:
            return Definition("strict", None)
        return Definition("ambiguous", None)


def _fits(tokens: float, rate: float, width: int) -> bool:
    """Whether tokens / width, with tokens known to two decimals, can be printed as rate."""
    return (tokens - HALF_DIGIT) / width <= rate + HALF_DIGIT and (
        tokens + HALF_DIGIT
    ) / width >= rate - HALF_DIGIT
