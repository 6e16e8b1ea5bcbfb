"""A ratio of two arms with its interval and its test. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Estimate:
    """A ratio of throughputs, its interval and its test.

    value: arm over baseline, > 1 is faster. level: joint level of all claims of one decision. low,
    high: the interval at that level; None if its coverage is not known yet. p: p-value of no
    difference; None if the interval is the test. implied: whether two other comparisons decide it
    (faster than an arm that beats the baseline). held_equal: the differences in traffic that the
    value is corrected for, in words; then raw is the uncorrected ratio of sums.
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
        """Whether the arm differs with confidence, by its test or else by its interval."""
        if self.implied:
            return True
        if self.p is not None:
            return self.p <= (1.0 - self.level) * (1.0 + 1e-9)
        return self.low is not None and self.high is not None and not self.low <= 1.0 <= self.high

    @property
    def wins(self) -> bool:
        """Whether the arm is faster than the baseline, with confidence."""
        return self.value > 1.0 and self.differs

    @property
    def loses(self) -> bool:
        """Whether the arm is slower than the baseline, with confidence."""
        return self.value < 1.0 and self.differs

    def within(self, effect: float) -> bool:
        """Whether the whole interval lies within a share of `effect` around 1."""
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
