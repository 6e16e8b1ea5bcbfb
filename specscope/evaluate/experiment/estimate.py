"""A ratio of two arms with its interval and its test. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Estimate:
    """A ratio of throughputs, its interval, and the test that decides about it.

    value: arm over baseline, > 1 is faster. level: at which all claims of one decision hold
    together. low, high: the interval at that level; None if its coverage is not known yet. p: of
    the test that the arm changes nothing; None if the interval is the test. implied: decided by
    two other comparisons: faster than an arm that is faster than the baseline. held_equal: traffic
    that was held equal between the arms, in words; then raw is the plain ratio of sums.
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
    p: float | None = None
    implied: bool = False

    @property
    def differs(self) -> bool:
        """Whether the arm surely changes something, by its test or else by its interval."""
        if self.implied:
            return True
        if self.p is not None:
            return self.p <= (1.0 - self.level) * (1.0 + 1e-9)
        return self.low is not None and self.high is not None and not self.low <= 1.0 <= self.high

    @property
    def wins(self) -> bool:
        """Surely faster than the baseline."""
        return self.value > 1.0 and self.differs

    @property
    def loses(self) -> bool:
        """Surely slower than the baseline."""
        return self.value < 1.0 and self.differs

    def within(self, effect: float) -> bool:
        """Whether any difference is smaller than `effect`, a share, in both directions."""
        if self.low is None or self.high is None:
            return False
        return self.low > 1.0 / (1.0 + effect) and self.high < 1.0 + effect

    def reversed(self) -> Estimate:
        """The baseline over the arm."""
        return replace(
            self,
            arm=self.baseline,
            baseline=self.arm,
            value=1.0 / self.value,
            low=None if self.high is None else 1.0 / self.high,
            high=None if self.low is None else 1.0 / self.low,
            k=int(self.baseline[1:]) if self.baseline[1:].isdigit() else None,
            raw=None if self.raw is None else self.raw.reversed(),
        )
