"""The right action from the real engine, for a grid of truths with known costs and acceptance.

Win, lose (for each of four planted reasons), tie, wrong draft length, and truths that change with
context and with load; see tests/walk/truths.py for what is right and what is wrong. Everything is
real but the clock: reference engine, adapter, recorder, ring, transposition, embedded store,
rollups, evaluator. Fails where the right action comes in under 95 % of the runs of a truth, or a
confident wrong one in more than the 5 % that the evaluator states, of a truth or of all; or if
`report`, `gate recommend`, `gate plan` and the verdict panel answer otherwise for any segment.

Run: python bench/truth_grid.py --runs 40
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "walk"))

from gate.screens import disagreements
from truths import TRUTHS, Score, Truth, scores

from specscope.store.connection import Store
from specscope.store.migrate import migrate

RIGHT, ERRORS = 0.95, 0.05


def counts(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counter.most_common())


def found_for(truth: Truth, seeds: Sequence[int]) -> tuple[dict[str, Score], list[str]]:
    """Scores of one truth's streams, from a store of its own, and screens that disagree."""
    with tempfile.TemporaryDirectory() as folder:
        rings = Path(folder) / "rings"
        rings.mkdir()
        with Store.open(f"chdb://{folder}/store") as store:
            migrate(store)
            found = scores([truth], seeds, rings, store)
        wrong = disagreements(f"chdb://{folder}/store")
    return {stream: score for (_, stream), score in found.items()}, wrong


def show(row: str, score: Score, notes: bool) -> None:
    """A stream's line, and below it what was said."""
    true = ", ".join(f"k{k} {value:.3f}" for k, value in score.speedups.items() if k)
    right, open_, bad = (score.outcomes[kind] for kind in ("right", "open", "wrong"))
    print(f"{row:36} {true:34} {right:5} {open_:5} {bad:5}")
    print(f"    actions: {counts(score.actions)}", flush=True)
    if score.primaries:
        print(f"    primary cause: {counts(score.primaries)}", flush=True)
    if notes:
        print("".join(f"    {note}\n" for note in score.notes), end="", flush=True)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--runs", type=int, default=20, help="of each truth")
    arguments.add_argument("--first", type=int, default=0, help="seed of the first run")
    arguments.add_argument("--truth", action="append", help="only truths of this name")
    arguments.add_argument("--notes", action="store_true", help="say why a run was not right")
    args = arguments.parse_args()
    torch.set_num_threads(1)
    began = time.perf_counter()
    failures, wrong, total = [], 0, 0
    print(f"{'truth':36} {'speedups':34} {'right':>5} {'open':>5} {'wrong':>5}")
    for truth in TRUTHS:
        if args.truth and truth.name not in args.truth:
            continue
        found, disagree = found_for(truth, range(args.first, args.first + args.runs))
        failures += [f"{truth.name}: {screen} disagrees with the report" for screen in disagree]
        for stream, score in found.items():
            row = f"{truth.name}, {stream}"
            show(row, score, args.notes)
            right, bad, runs = score.outcomes["right"], score.outcomes["wrong"], args.runs
            wrong, total = wrong + bad, total + runs
            if right < RIGHT * runs:
                failures.append(f"{row}: right in {right} of {runs}")
            if bad > ERRORS * runs:
                failures.append(f"{row}: wrong in {bad} of {runs}")
    print(f"{wrong} of {total} wrong with confidence; {time.perf_counter() - began:.0f} s")
    if wrong > ERRORS * total:
        failures.append(f"wrong in {wrong} of {total}")
    print("\n".join(failures) or f"right in {RIGHT:.0%} or more of every truth")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
