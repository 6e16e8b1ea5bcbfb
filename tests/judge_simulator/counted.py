"""How often intervals hold the truth, in many simulated experiments."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
from block_records import rows
from planted import Scenario, true_log_ratio
from scipy import stats

from specscope.evaluate.experiment.contrast import Estimate
from specscope.evaluate.experiment.measures import Measure
from specscope.evaluate.experiment.objectives import METRICS, objective_for
from specscope.evaluate.experiment.offered import offered_to
from specscope.evaluate.experiment.pairs import Pair, pairs_of

CHUNK = 100  # worlds of one process at a time
LOOKS = tuple(range(10, 49, 2))
LEVEL = 0.95


@dataclass
class Count:
    """Of one scenario: intervals that were given, held the truth, and all the rest.

    errors: of the estimate, log ratio minus the truth; z: in standard errors, which the interval's
    half-width tells. looks: of the sequence.
    """

    given: int = 0
    held: int = 0
    sequences: int = 0
    sequences_held: int = 0
    runs: int = 0
    errors: list[float] | None = None
    first: list[int] | None = None  # pairs at which a sequence first excluded no effect


def estimates(pairs: Sequence[Pair], scenario: Scenario, often: bool) -> Estimate | None:
    """The product's estimate of k over k0, alone."""
    objective = objective_for(scenario.design, [b for p in pairs for b in p.blocks.values()])
    assert METRICS[objective] == METRICS[scenario.metric], (scenario.name, objective)
    offered = offered_to(pairs) if scenario.design == "switchback" else None
    arm = f"k{scenario.lengths[-1]}"
    return Measure(objective, offered, scenario.design != "cohort").estimate(
        pairs, arm, "k0", LEVEL, often
    )


def count(scenario: Scenario, truth: float, job: tuple[int, int], sequence: bool = True) -> Count:
    """Simulate worlds from a seed on and look at each. job: (worlds, seed)."""
    worlds, seed = job
    recorded = scenario.experiment(worlds, seed)
    truths = (
        true_log_ratio(scenario, scenario.lengths[-1], worlds, seed, own=True)
        if scenario.own_truth
        else np.full(worlds, truth)
    )
    found = Count(errors=[], first=[])
    arms = len(scenario.lengths)
    for world in range(worlds):
        found.runs += 1
        blocks, parts = rows(recorded, world, scenario.kinds, arms)
        pairs = pairs_of(blocks, parts, scenario.design)
        one = estimates(pairs, scenario, often=False)
        if one is not None:
            found.errors.append(float(np.log(one.value) - truths[world]))
        if one is not None and one.low is not None:
            found.given += 1
            found.held += bool(one.low <= np.exp(truths[world]) <= one.high)
        if not sequence:
            continue
        looks = (estimates(pairs[:n], scenario, often=True) for n in LOOKS if n <= len(pairs))
        shown = [(e, e.pairs) for e in looks if e is not None and e.low is not None]
        found.sequences += bool(shown)
        found.sequences_held += bool(shown) and all(
            e.low <= np.exp(truths[world]) <= e.high for e, _ in shown
        )
    return found


def campaign(
    scenario: Scenario, runs: int, processes: int, seed: int = 10_000, sequence: bool = True
) -> Count:
    """All runs of a scenario, over processes."""
    last = scenario.lengths[-1]
    truth = (
        float("nan")
        if scenario.own_truth
        else float(true_log_ratio(scenario, last, 150, seed - 5000, own=False)[0])
    )
    jobs = [(min(CHUNK, runs - at), seed + 13 * at) for at in range(0, runs, CHUNK)]
    whole = Count(errors=[], first=[])
    work = partial(count, scenario, truth, sequence=sequence)
    pool = ProcessPoolExecutor(processes) if processes > 1 else None
    for one in pool.map(work, jobs) if pool else map(work, jobs):
        for name in ("given", "held", "sequences", "sequences_held", "runs"):
            setattr(whole, name, getattr(whole, name) + getattr(one, name))
        whole.errors += one.errors
    if pool:
        pool.shutdown()
    return whole


def limits(held: int, given: int) -> tuple[float, float]:
    """Exact 95 % limits of a share (Clopper and Pearson)."""
    if not given:
        return 0.0, 1.0
    low = stats.beta.ppf(0.025, held, given - held + 1) if held else 0.0
    high = stats.beta.ppf(0.975, held + 1, given - held) if held < given else 1.0
    return float(low), float(high)
