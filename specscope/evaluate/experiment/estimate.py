"""The result of a comparison: a ratio of two arms and its interval. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Estimate:
    """A ratio of throughputs with the interval that decides about it.

    value: arm over baseline, > 1 is faster. low, high: at `level`, which is widened so that
    all intervals of one decision hold together; None where they cannot be known (one pair, or
    a sequential look that comes too early). held_equal: traffic that was held equal between the
    arms, in words; then raw is the plain ratio of sums, with its own interval.
    """

    arm: str
    value: float
    low: float | None
    high: float | None
    pairs: int
    level: float
    baseline: str
    k: int | None = None
    held_equal: str = ""
    raw: Estimate | None = None

    @property
    def wins(self) -> bool:
        """Faster than the baseline, whatever the interval leaves open."""
        return self.low is not None and self.low > 1.0

    @property
    def loses(self) -> bool:
        """Slower than the baseline, whatever the interval leaves open."""
        return self.high is not None and self.high < 1.0

    def within(self, effect: float) -> bool:
        """Whether any difference is smaller than `effect`, a share, in both directions."""
        if self.low is None or self.high is None:
            return False
        return self.low > 1.0 / (1.0 + effect) and self.high < 1.0 + effect
