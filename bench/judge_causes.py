"""How often causes of loss are named right, in many simulated experiments of each plant.

    python bench/judge_causes.py --runs 200 --out causes.jsonl [--only NAME …]

Each plant runs alone and, if it has a model card, with easy and hard traffic in the store. A line
of the output is one plant: right, tie (more causes than were planted stand together, with them),
wrong (another cause stands alone) and none (the loss is not decided).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests/judge_simulator"))

from plants import SINGLE, TIES, Plant, beside, outcome, verdicts_of  # noqa: E402

CHUNK = 10


def main() -> int:
    """Run the campaign; 1 if a single cause is named under 95 %, or a tie is told as one cause in
    more than 5 %."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--pairs", type=int, default=24)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument(
        "--only", nargs="*", default=[], help="plants whose name holds one of these"
    )
    parser.add_argument("--out", type=Path, help="append a JSON line a plant")
    args = parser.parse_args()
    missed = 0
    for name, one in _plants(args.only):
        counts = campaign(one, args.runs, args.pairs, args.processes)
        single = len(one.causes) == 1
        good = (
            counts["right"] >= 0.95 * args.runs if single else counts["wrong"] <= 0.05 * args.runs
        )
        missed += not good
        row = {"plant": name, "causes": one.causes, "runs": args.runs, **counts, "good": good}
        print(json.dumps(row), flush=True)
        if args.out:
            with args.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
    return int(missed > 0)


def campaign(one: Plant, runs: int, pairs: int, processes: int) -> Counter[str]:
    """Outcomes of so many experiments."""
    jobs = [(seed, min(CHUNK, runs - seed)) for seed in range(0, runs, CHUNK)]
    work = partial(_count, one, pairs)
    if processes == 1:
        found = list(map(work, jobs))
    else:
        with ProcessPoolExecutor(processes) as pool:
            found = list(pool.map(work, jobs))
    return sum(found, Counter(dict.fromkeys(("right", "tie", "wrong", "none"), 0)))


def _count(one: Plant, pairs: int, job: tuple[int, int]) -> Counter[str]:
    seed, worlds = job
    verdicts = verdicts_of(one, worlds, pairs, 100_000 + seed)
    return Counter(outcome(one, verdict) for verdict in verdicts)


def _plants(only: list[str]) -> list[tuple[str, Plant]]:
    found = []
    for name, one in (SINGLE | TIES).items():
        if only and not any(part in name for part in only):
            continue
        found.append((name, one))
        if one.card is not None and not one.others:
            found.append((f"{name}, beside easy and hard", beside(one)))
    return found


if __name__ == "__main__":
    sys.exit(main())
