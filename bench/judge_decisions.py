"""How many pairs the judge needs to a decision, and whether it is right, over named truths.

Simulated experiments with target-only and drafts of 2 and 4, looked at every fourth pair. A
decision is the first verdict that a gate may be changed on; a run without one counts with all of
its pairs. A truth is clear if the best arm lies more than 5 % from target-only. Fails if a sign is
wrong, or if under 95 % of the decisions on clear truths are right: speculation on with a length
within 2 % of the best, or off.

Run: python bench/judge_decisions.py --runs 40
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from statistics import mean, median

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "judge_simulator"))

from block_records import rows
from planted import (
    CLOSED,
    EASY,
    HARD,
    LATENCY,
    UNEQUAL,
    Cost,
    Noise,
    Scenario,
    bursts_of_a_day,
    true_log_ratio,
    wandering,
)  # fmt: skip

from specscope.evaluate.verdict.choice import Rules
from specscope.evaluate.verdict.decide import decide

LOOKS = range(4, 57, 4)
CLEAR, CLOSE = 0.05, 0.02
ARMS = {"lengths": (0, 2, 4), "pairs": LOOKS[-1]}


def latency(name: str, draft: float, **changes: object) -> Scenario:
    """Open traffic of one class. draft: of a draft step. [ms]"""
    plan = {"kinds": (HARD,), "cost": Cost(draft=draft), **ARMS, **changes}
    return replace(LATENCY, name=name, **plan)


GRID = (
    latency("two lengths win alike", 0.9, kinds=LATENCY.kinds),
    latency("the longer draft wins", 0.5, kinds=(EASY,)),
    latency("the shorter draft gains a little", 1.7),
    latency("nothing gains", 1.95),
    latency("both lose a little", 2.2),
    latency("both lose", 4.0),
    latency("a gain under stalls", 0.9, noise=Noise(stalls=0.02)),
    latency("gains that differ", 0.9, noise=UNEQUAL),
    latency("a gain in bursts of a mix", 0.9, kinds=(EASY, HARD), slots=48,
            rate=bursts_of_a_day(12.0), share=wandering(0.8, 0.5)),
    replace(CLOSED, name="clients: the shorter gains a little", kinds=(HARD,),
            cost=Cost(draft=1.6), **ARMS),
    replace(CLOSED, name="clients: both lose", kinds=(HARD,), cost=Cost(draft=4.0), **ARMS),
)  # fmt: skip


def truth_of(scenario: Scenario, worlds: int = 60) -> dict[int, float]:
    """Speedup of each arm over target-only in the long run."""
    return {0: 1.0} | {
        k: 2.718281828 ** float(true_log_ratio(scenario, k, worlds, 99, own=False)[0])
        for k in scenario.lengths
        if k
    }


def outcomes(scenario: Scenario, runs: int, seed: int) -> Iterable[tuple[int, str, int | None]]:
    """Pairs to the first decision of each run, its action and length; `open` if there is none."""
    recorded = scenario.experiment(runs, seed)
    rules = Rules(looked_at_often=True)
    for world in range(runs):
        yield _first(scenario, rows(recorded, world, scenario.kinds, len(scenario.lengths)), rules)


def _first(scenario: Scenario, everything: tuple, rules: Rules) -> tuple[int, str, int | None]:  # type: ignore[type-arg]
    blocks, parts = everything
    for pairs in LOOKS:
        seen = [b for b in blocks if b.pair <= pairs], [p for p in parts if p.pair <= pairs]
        verdict = max(decide(*seen, rules, scenario.design), key=lambda one: one.pairs)
        if verdict.applicable:
            return pairs, str(verdict.action), verdict.k
    return LOOKS[-1], "open", None


def grade(truth: dict[int, float], action: str, k: int | None) -> str:
    """right, wrong (a sign), close (a length that is not the best, or no difference), or open."""
    best = max(truth[n] for n in truth if n)
    if action == "open":
        return "open"
    if action in ("set_k", "keep"):
        gain = truth[k or 0]
        if gain < 1.0 - 0.002:
            return "wrong"
        return "right" if gain > best / (1 + CLOSE) else "close"
    if action == "disable":
        return "wrong" if best > 1.002 else "right"
    return "right" if abs(best - 1.0) < CLOSE else "close"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--minutes", type=float, default=1e9, help="start nothing after")
    args = parser.parse_args()
    end = time.monotonic() + 60 * args.minutes
    clear, right, wrong = 0, 0, 0
    for scenario in GRID:
        if args.only not in scenario.name or time.monotonic() > end:
            continue
        truth = truth_of(scenario)
        found = list(outcomes(scenario, args.runs, args.seed))
        grades = Counter(grade(truth, action, k) for _, action, k in found)
        pairs = [count for count, _, _ in found]
        is_clear = abs(max(truth[2], truth[4]) - 1.0) > CLEAR
        if is_clear:
            clear += args.runs - grades["open"]
            right += grades["right"]
        wrong += grades["wrong"]
        print(json.dumps({
            "truth": scenario.name, "k2": round(truth[2], 3), "k4": round(truth[4], 3),
            "clear": is_clear, "pairs": [median(pairs), round(mean(pairs), 1)],
            **{name: grades[name] for name in ("right", "close", "open", "wrong")},
            "actions": Counter(f"{a} {'' if k is None else k}".strip() for _, a, k in found),
        }), flush=True)  # fmt: skip
    print(f"{right} of {clear} decisions on clear truths right, {wrong} wrong signs")
    return 1 if wrong or right < 0.95 * clear else 0


if __name__ == "__main__":
    sys.exit(main())
