"""Compare two arms of a segment: the metric, and the traffic that the comparison corrects for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from specscope.evaluate.experiment import contrast, objectives
from specscope.evaluate.experiment.estimate import Estimate
from specscope.evaluate.experiment.objectives import Objective
from specscope.evaluate.experiment.offered import Offered
from specscope.evaluate.experiment.pairs import Pair
from specscope.evaluate.statistics import randomisation, serial
from specscope.evaluate.statistics.ratio import LogRatio


@dataclass(frozen=True)
class ArmContrast:
    """Two arms over the pairs that ran both.

    plain: the uncorrected contrast. adjusted: the contrast corrected for `held`; None without it.
    """

    arm: str
    baseline: str
    plain: LogRatio
    adjusted: LogRatio | None = None
    held: str = ""
    looked_at_often: bool = False

    @property
    def contrast(self) -> LogRatio:
        """The contrast that decides: the adjusted one, if there is one."""
        return self.adjusted or self.plain

    @cached_property
    def p(self) -> float | None:
        """p-value of no difference; None for a single pair looked at once."""
        return randomisation.p_value(self.contrast, self.looked_at_often)

    def at(self, level: float) -> Estimate:
        """The estimate, its interval and its claims at a level."""
        arms, often = (self.arm, self.baseline), self.looked_at_often
        raw = contrast.estimate(self.plain, *arms, level, often)
        if self.adjusted is None:
            return raw
        better = contrast.estimate(self.adjusted, *arms, level, often)
        return replace(better, raw=raw, held_equal=self.held)


@dataclass(frozen=True, slots=True)
class Measure:
    """The way of comparing two arms.

    objective: the metric. offered: traffic to correct for; None for no correction. serial: whether
    neighbouring pairs may be correlated, because the traffic drifts."""

    objective: Objective = "throughput"
    offered: Offered | None = None
    serial: bool = False

    def compare(
        self, pairs: Sequence[Pair], arm: str, baseline: str, looked_at_often: bool = False
    ) -> ArmContrast | None:
        """Compare an arm with a baseline, without a level yet. None if no pair knows both."""
        contrasts = self._both(pairs, arm, baseline)
        return contrasts and ArmContrast(arm, baseline, *contrasts, looked_at_often=looked_at_often)

    def estimate(
        self,
        pairs: Sequence[Pair],
        arm: str,
        baseline: str,
        level: float,
        looked_at_often: bool = False,
    ) -> Estimate | None:
        """The ratio with its interval, and the uncorrected ratio if it was corrected for
        traffic."""
        contrast = self.compare(pairs, arm, baseline, looked_at_often)
        return None if contrast is None else contrast.at(level)

    def _both(
        self, pairs: Sequence[Pair], arm: str, baseline: str
    ) -> tuple[LogRatio, LogRatio | None, str] | None:
        known = objectives.comparable(pairs, arm, baseline, self.objective)
        plain = objectives.measure(known, arm, baseline, self.objective)
        if plain is None:
            return None
        held = self.offered and self.offered.hold_equal(plain, known, arm, baseline)
        adjusted = held.contrast if held else None
        if self.serial:
            boots = {pair.key[:4]: place for place, pair in enumerate(known)}
            lines = [boots[pair.key[:4]] for pair in known]
            plain = serial.widened(plain, lines)
            adjusted = adjusted and serial.widened(adjusted, lines)
        return plain, adjusted, held.what if held else ""
