"""How two arms of a segment are compared: in which metric, and with what held equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from specscope.evaluate.experiment import contrast, objectives
from specscope.evaluate.experiment.estimate import Estimate
from specscope.evaluate.experiment.objectives import Objective
from specscope.evaluate.experiment.offered import Offered
from specscope.evaluate.experiment.pairs import Pair
from specscope.evaluate.statistics.ratio import LogRatio


@dataclass(frozen=True, slots=True)
class Measure:
    """objective: the metric. offered: traffic to hold equal; None where nothing may be."""

    objective: Objective = "throughput"
    offered: Offered | None = None

    def contrast(self, pairs: Sequence[Pair], arm: str, baseline: str) -> LogRatio | None:
        """log of how much better an arm is than the baseline; None where no pair knows both."""
        found = self._both(pairs, arm, baseline)
        return found and (found[1] or found[0])

    def estimate(
        self,
        pairs: Sequence[Pair],
        arm: str,
        baseline: str,
        level: float,
        looked_at_often: bool = False,
    ) -> Estimate | None:
        """The ratio with its interval; beside it the plain one, where traffic was held equal."""
        found = self._both(pairs, arm, baseline)
        if found is None:
            return None
        plain, adjusted, held = found
        raw = contrast.estimate(plain, arm, baseline, level, looked_at_often)
        if adjusted is None:
            return raw
        better = contrast.estimate(adjusted, arm, baseline, level, looked_at_often)
        return replace(better, raw=raw, held_equal=held)

    def _both(
        self, pairs: Sequence[Pair], arm: str, baseline: str
    ) -> tuple[LogRatio, LogRatio | None, str] | None:
        known = objectives.comparable(pairs, arm, baseline, self.objective)
        plain = objectives.measure(known, arm, baseline, self.objective)
        if plain is None:
            return None
        held = self.offered and self.offered.hold_equal(plain, known, arm, baseline)
        return (plain, held.contrast, held.what) if held else (plain, None, "")
