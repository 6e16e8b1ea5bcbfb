"""Two sides behind a router: how often a difference is found, and how often one that is not there.

It shares no code with the evaluator. A side yields tokens at its configuration's true rate; its
hardware differs by a constant, the time of a pair by a drift of 10 % that both share, and each
side's two blocks by a noise of their own that leaves 8 % to a pair's log ratio. The configurations
are swapped half-way. The verdict is asked for after every pair.

Run: python tests/gate/side_campaign.py --runs 1000 (`make sides`).
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass
from multiprocessing import Pool

import numpy as np

from specscope.evaluate.experiment.blocks import BlockTime
from specscope.evaluate.verdict.crossover import Crossing, judge_crossovers

PAIR_SD = 0.08
PAIRS = 40  # in all, half of them in each deploy
SIDES = {"r0": "left", "r1": "right"}
BEGAN = 1_800_000_000 * 10**9


@dataclass(frozen=True)
class Run:
    """found_at, lost_at: pairs after which the drafting side was called better, or worse; None if
    it never was."""

    found_at: int | None
    lost_at: int | None


def run(effect: float, seed: int, hardware: float = 1.1, every: int = 1) -> Run:
    """One crossover of `clean` and `k4`, whose true ratio is `effect`.

    every: pairs between two looks.
    """
    random = np.random.default_rng(seed)
    blocks: list[BlockTime] = []
    found, lost = None, None
    for pair in range(PAIRS):
        arms = ("clean", "k4") if pair < PAIRS // 2 else ("k4", "clean")
        drift = random.normal(0, 0.1)
        for side, arm in enumerate(arms):
            rate = (effect if arm == "k4" else 1.0) * (hardware if side == 0 else 1.0)
            rate *= math.exp(drift + random.normal(0, PAIR_SD / math.sqrt(2)))
            blocks += [_block(side, arm, 2 * pair + half, rate) for half in (0, 1)]
        if pair < PAIRS // 2 + 1 or (pair + 1) % every:
            continue  # before both deploys have two pairs, nothing tells the hardware
        ran = {(block.replica, block.boot): block.arm for block in blocks}
        (judged,) = judge_crossovers(
            [Crossing((1,), SIDES, tuple(blocks), ran, closed_loop=True)]  # type: ignore[arg-type]
        )
        for one in judged.verdict.speedups:
            told = (one.arm, one.baseline) not in judged.joint.confounded
            if told and one.wins and found is None:
                found = pair + 1
            if told and one.loses and lost is None:
                lost = pair + 1
    return Run(found, lost)


def _block(side: int, arm: str, number: int, rate: float) -> BlockTime:
    k = 4 if arm == "k4" else 0
    rows = int(1e6 * rate / (1 + 0.4 * k))
    began = BEGAN + number * 120 * 10**9
    return BlockTime(
        epoch="e", policy=1, replica=f"r{side}", boot=f"b{side}{arm}", pair=number, arm=arm,
        requests=100, rounds=rows // 8, request_rounds=rows, classes=("sql",), k=k, wall_us=100e6,
        emitted=int(1e6 * rate), proposed=k * rows, accepted=int(1e6 * rate) - rows,
        first_at=began, last_at=began + 100 * 10**9,
    )  # fmt: skip


def main() -> int:
    """Both counts; fails if either bar is missed."""
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--runs", type=int, default=1000)
    options.add_argument("--processes", type=int, default=2)
    args = options.parse_args()
    with Pool(args.processes) as pool:
        alike = pool.starmap(run, [(1.0, seed) for seed in range(args.runs)])
        planted = pool.starmap(run, [(1.05, 10**6 + seed) for seed in range(args.runs)])
    false = np.mean([one.found_at is not None or one.lost_at is not None for one in alike])
    found = np.mean([one.found_at is not None for one in planted])
    wrong = np.mean([one.lost_at is not None for one in planted])
    sys.stdout.write(
        f"two identical configurations: {false:.1%} of {args.runs} runs ever named a winner\n"
        f"a planted 5 %: found within {PAIRS} pairs in {found:.1%}, wrong sign in {wrong:.1%}\n"
    )
    return int(false > 0.05 or found < 0.8)


if __name__ == "__main__":
    sys.exit(main())
