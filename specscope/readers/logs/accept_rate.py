"""Which definition an SGLang "accept rate" follows, found from the numbers themselves.

Before PR#23530 (April 2026) it was accept length / draft tokens, bonus counted on both sides; later
it is accepted / proposed. Both are printed with two decimals, so one line often fits both; the
width of the draft is the same in all lines, which settles it.
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
    """The widths that still fit all (length, rate) pairs seen so far, under either definition."""

    def __init__(self) -> None:
        self._bonus = set(range(1, WIDEST + 1))
        self._strict = set(range(1, WIDEST))

    def see(self, length: float, rate: float) -> None:
        """Take in one line. A pair that fits nothing (impossible values) changes nothing."""
        bonus = {n for n in self._bonus if _fits(length, rate, n)}
        strict = {k for k in self._strict if _fits(length - 1, rate, k)}
        if bonus or strict:
            self._bonus, self._strict = bonus, strict

    def settled(self) -> bool:
        """Whether one width under one definition is left."""
        return len(self._bonus) + len(self._strict) == 1

    def decide(self) -> Definition:
        """What is left, or `ambiguous`."""
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
