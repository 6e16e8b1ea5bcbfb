"""How often intervals hold the truth, in many simulated experiments."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from block_records import rows
from plans import Array
from planted import Scenario, true_log_ratio
from scipy import stats

import specscope.evaluate
from specscope.evaluate.experiment.contrast import Estimate
from specscope.evaluate.experiment.measures import Measure
from specscope.evaluate.experiment.objectives import objective_for, weight_of
from specscope.evaluate.experiment.offered import offered_to
from specscope.evaluate.experiment.pairs import Pair, pairs_of

CHUNK = 200  # worlds that are simulated together
LOOKS = tuple(range(20, 49, 4))  # a sequence is never shown before 20 pairs
LEVEL = 0.95
TRUTH_WORLDS, TRUTH_SEED = 200, 5_000

Judge = Callable[[Sequence[Pair], Scenario, bool], Estimate | None]


@dataclass
class Count:
    """Of simulated experiments: intervals that were shown, and that held the truth.

    ran, ran_of: that held the truth of the traffic that ran, and of how many that was counted.
    errors, squares: sums over the shown, of the estimate's log ratio minus the truth.
    """

    runs: int = 0
    given: int = 0
    held: int = 0
    ran: int = 0
    ran_of: int = 0
    sequences: int = 0
    sequences_held: int = 0
    errors: float = 0.0
    squares: float = 0.0

    def add(self, other: Count) -> None:
        for name in (field.name for field in fields(Count)):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def failures(self, scenario: Scenario) -> list[str]:
        """Bars that these counts surely miss: 93..97 % of fixed intervals hold the truth; the lower
        95 % limit of the share of sequences that hold it at all looks is at least 94 %."""
        low, high = limits(self.held, self.given)
        found = []
        if not self.given or high < 0.93 or low > 0.97:
            found.append(f"{scenario.name}: fixed intervals cover {low:.4f} to {high:.4f}")
        if self.ran_of and limits(self.ran, self.ran_of)[1] < 0.93:
            found.append(f"{scenario.name}: {self.ran} of {self.ran_of} cover the traffic that ran")
        if self.sequences and lowest(self.sequences_held, self.sequences) < 0.94:
            found.append(f"{scenario.name}: {self.sequences_held} of {self.sequences} sequences")
        return found


def estimates(pairs: Sequence[Pair], scenario: Scenario, often: bool) -> Estimate | None:
    """The product's estimate of k over k0, alone."""
    objective = objective_for(scenario.design, [b for p in pairs for b in p.blocks.values()])
    assert round(weight_of(objective)) == weight_of(scenario.metric), (scenario.name, objective)
    offered = offered_to(pairs) if scenario.design == "switchback" else None
    arm = f"k{scenario.lengths[-1]}"
    return Measure(objective, offered, scenario.design != "cohort").estimate(
        pairs, arm, "k0", LEVEL, often
    )


def long_truth(scenario: Scenario, worlds: int = TRUTH_WORLDS) -> float:
    """log of what the longest draft gives over k0 in the long run of such traffic."""
    last = scenario.lengths[-1]
    halves = [
        true_log_ratio(scenario, last, min(CHUNK, worlds), TRUTH_SEED + at, own=False)[0]
        for at in range(0, worlds, CHUNK)
    ]
    return float(np.mean(halves))


def count(scenario: Scenario, truth: float, worlds: int, seed: int, own: bool = False) -> Count:
    """Simulate worlds from a seed on and look at each. truth: log ratio of the long run. own: hold
    intervals against the traffic that ran, too, which takes three times as long."""
    last = scenario.lengths[-1]
    ran = true_log_ratio(scenario, last, worlds, seed, own=True) if own else None
    return look(experiments(scenario, worlds, seed), scenario, truth, ran)


def experiments(scenario: Scenario, worlds: int, seed: int) -> list[list[Pair]]:
    """The pairs of each simulated experiment."""
    recorded, arms = scenario.experiment(worlds, seed), len(scenario.lengths)
    return [
        pairs_of(*rows(recorded, world, scenario.kinds, arms), scenario.design)
        for world in range(worlds)
    ]


def look(
    worlds: Sequence[list[Pair]], scenario: Scenario, truth: float, own: Array | None = None,
    judge: Judge = estimates,
) -> Count:  # fmt: skip
    """Count what a judge shows of experiments. own: [worlds] log ratio of the traffic that ran."""
    found = Count(runs=len(worlds))
    for world, pairs in enumerate(worlds):
        one = judge(pairs, scenario, False)
        if one is not None and one.low is not None and one.high is not None:
            error = float(np.log(one.value) - truth)
            found.given += 1
            found.held += bool(one.low <= np.exp(truth) <= one.high)
            if own is not None:
                found.ran_of += 1
                found.ran += bool(one.low <= np.exp(own[world]) <= one.high)
            found.errors, found.squares = found.errors + error, found.squares + error**2
        looks = (judge(pairs[:n], scenario, True) for n in LOOKS if n <= len(pairs))
        shown = [e for e in looks if e is not None and e.low is not None]
        found.sequences += bool(shown)
        found.sequences_held += bool(shown) and all(
            (e.low or 0.0) <= np.exp(truth) <= (e.high or np.inf) for e in shown
        )
    return found


def limits(held: int, given: int) -> tuple[float, float]:
    """Exact 95 % limits of a share (Clopper and Pearson)."""
    if not given:
        return 0.0, 1.0
    low = stats.beta.ppf(0.025, held, given - held + 1) if held else 0.0
    high = stats.beta.ppf(0.975, held + 1, given - held) if held < given else 1.0
    return float(low), float(high)


def lowest(held: int, given: int) -> float:
    """Exact lower 95 % limit of a share, on one side."""
    return float(stats.beta.ppf(0.05, held, given - held + 1)) if held else 0.0


class Kept:
    """Counts that runs wrote to a file, of this code only: a later run goes on where one ended."""

    def __init__(self, path: Path) -> None:
        self.path, self.code = path, code_digest()
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines() if path.exists() else []
        self._rows = [row for line in lines if (row := json.loads(line))["code"] == self.code]

    def truth(self, scenario: Scenario) -> float | None:
        return next((row["truth"] for row in self._of(scenario) if "truth" in row), None)

    def seeds(self, scenario: Scenario) -> set[int]:
        return {row["seed"] for row in self._of(scenario) if "seed" in row}

    def total(self, scenario: Scenario) -> Count:
        whole = Count()
        for row in self._of(scenario):
            if "seed" in row:
                whole.add(Count(**row["count"]))
        return whole

    def keep(self, scenario: Scenario, seed: int | None, result: Count | float) -> None:
        row: dict[str, Any] = {"code": self.code, "scenario": scenario.digest}
        row |= {"name": scenario.name}
        if isinstance(result, Count):
            row |= {"seed": seed, "count": asdict(result)}
        else:
            row |= {"truth": result}
        self._rows.append(row)
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def _of(self, scenario: Scenario) -> Iterable[dict[str, Any]]:
        return [row for row in self._rows if row["scenario"] == scenario.digest]


def code_digest() -> str:
    """Of every file that a count depends on: the simulator, and the evaluator's statistics."""
    product = Path(specscope.evaluate.__file__).parent
    files = [*Path(__file__).parent.glob("[!t]*.py")]
    files += [*product.glob("statistics/*.py"), *product.glob("experiment/*.py")]
    text = b"".join(file.read_bytes() for file in sorted(files))
    return hashlib.sha256(text).hexdigest()[:12]
