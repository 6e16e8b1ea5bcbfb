"""How often the evaluator's intervals hold the truth of simulated experiments.

Fails if a fixed interval's coverage of nominal 95 % lies surely outside 93..97 %, or if the lower
95 % limit of a sequence's simultaneous coverage lies under 94 %. Counts are kept in a file after
every two hundred experiments, so a run that is stopped, or has --minutes, is continued by the next.

Run: python bench/judge_coverage.py --runs 2000 --processes 2
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "judge_simulator"))

from counted import CHUNK, TRUTH_WORLDS, Count, Kept, count, limits, long_truth, lowest
from planted import SCENARIOS, Scenario

FIRST_SEED, STEP = 10_000, 13 * CHUNK
Job = tuple[Scenario, float | None, int]


def work(job: Job) -> tuple[Job, Count | float]:
    """The truth of a scenario if it is not known, else some of its experiments."""
    scenario, truth, seed = job
    if truth is None:
        return job, long_truth(scenario, TRUTH_WORLDS * (2 if scenario.own_truth else 1))
    own = scenario.own_truth and (seed - FIRST_SEED) % (4 * STEP) == 0
    return job, count(scenario, truth, CHUNK, seed, own)


def missing(kept: Kept, scenarios: Iterable[Scenario], runs: int) -> list[Job]:
    """What is still to be run: the scenario with the fewest runs first."""
    jobs = []
    for scenario in scenarios:
        truth, done = kept.truth(scenario), kept.seeds(scenario)
        if truth is None:
            jobs.append((-1, (scenario, None, 0)))
            continue
        for part in range(math.ceil(runs / CHUNK)):
            seed = FIRST_SEED + STEP * part
            if seed not in done:
                jobs.append((part, (scenario, truth, seed)))
    return [job for _, job in sorted(jobs, key=lambda pair: pair[0])]


def shown(scenario: Scenario, total: Count) -> str:
    """A line of figures."""
    low, high = limits(total.held, total.given)
    mean = total.errors / max(1, total.given)
    figures = {
        "scenario": scenario.name, "pairs": scenario.pairs, "runs": total.runs,
        "shown": total.given, "fixed": round(total.held / max(1, total.given), 4),
        "limits": [round(low, 4), round(high, 4)],
        "ran": [total.ran, total.ran_of],
        "bias": round(mean, 5),
        "sd": round(math.sqrt(max(0.0, total.squares / max(1, total.given) - mean**2)), 5),
        "sequences": total.sequences,
        "sequence": round(total.sequences_held / max(1, total.sequences), 4),
        "lower": round(lowest(total.sequences_held, total.sequences), 4),
    }  # fmt: skip
    return json.dumps(figures)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=2000, help="of each scenario")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", default="", help="scenarios whose name has this in it")
    parser.add_argument("--minutes", type=float, default=math.inf, help="start nothing after")
    parser.add_argument("--kept", type=Path, default=Path("build/judge_coverage.jsonl"))
    args = parser.parse_args()
    scenarios = [scenario for scenario in SCENARIOS if args.only in scenario.name]
    kept = Kept(args.kept)
    end = time.monotonic() + 60 * args.minutes
    with ProcessPoolExecutor(args.processes) as pool:
        while (jobs := missing(kept, scenarios, args.runs)) and time.monotonic() < end:
            for job, result in pool.map(work, jobs[: args.processes]):
                kept.keep(job[0], job[2], result)
    totals = {scenario.name: (scenario, kept.total(scenario)) for scenario in scenarios}
    for scenario, total in totals.values():
        print(shown(scenario, total), flush=True)
    failures = [line for scenario, total in totals.values() for line in total.failures(scenario)]
    short = [name for name, (_, total) in totals.items() if total.runs < args.runs]
    if short:
        failures.append(f"fewer than {args.runs} runs yet of: {', '.join(short)}")
    print("\n".join(failures) or "intervals cover as they say")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
