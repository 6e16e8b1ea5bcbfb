"""How often the evaluator's intervals hold the truth of simulated experiments.

Fails if a fixed interval's coverage of nominal 95 % lies surely outside 93..97 %, or if the lower
95 % limit of a sequence's simultaneous coverage lies under 94 %.

Run: python bench/judge_coverage.py --runs 2000 --processes 2
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "judge_simulator"))

from counted import campaign, limits
from planted import SCENARIOS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", help="scenarios whose name has this in it")
    parser.add_argument("--pairs", type=int, help="of each run, instead of the scenario's")
    parser.add_argument("--no-sequences", action="store_true")
    args = parser.parse_args()
    failures = []
    for scenario in SCENARIOS:
        if args.only and args.only not in scenario.name:
            continue
        if args.pairs:
            scenario = replace(scenario, pairs=args.pairs)
        began = time.perf_counter()
        found = campaign(scenario, args.runs, args.processes, sequence=not args.no_sequences)
        low, high = limits(found.held, found.given)
        under, _ = limits(found.sequences_held, found.sequences)
        errors = np.array(found.errors)
        said = {
            "scenario": scenario.name, "pairs": scenario.pairs, "runs": found.runs,
            "given": found.given,
            "fixed": round(found.held / max(1, found.given), 4),
            "limits": [round(low, 4), round(high, 4)],
            "bias": round(float(errors.mean()), 4), "sd": round(float(errors.std()), 4),
            "sequence": round(found.sequences_held / max(1, found.sequences), 4),
            "sequences": found.sequences, "lower": round(under, 4),
            "s": round(time.perf_counter() - began),
        }  # fmt: skip
        print(json.dumps(said), flush=True)
        if high < 0.93 or low > 0.97:
            failures.append(f"{scenario.name}: fixed intervals cover {said['fixed']}")
        if not args.no_sequences and under < 0.94:
            failures.append(f"{scenario.name}: sequences cover at least {said['lower']}")
    print("\n".join(failures) or "intervals cover as they say")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
