"""`make fuzz`: many inputs for each of the doors that strangers have; prints what became of them.

    python tests/fuzz/campaign.py [--payloads N] [--policies N] [--statements N] [--seed N]

Ends with 1 if anything but a refusal came of an input, or memory grew.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fuzz import payloads, policies, statements

GROWTH_MIB = 96  # between a fifth of the inputs and all of them


def resident_mib() -> float:
    """Memory of this process. [MiB]"""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


def attack(name: str, count: int, seed: int, one: Callable[[random.Random], str]) -> bool:
    """Try `count` inputs; False if one was not withstood."""
    ends: Counter[str] = Counter()
    started, early = time.monotonic(), 0.0
    for number in range(count):
        draw = random.Random(f"{name} {seed} {number}")
        try:
            ends[one(draw)] += 1
        except Exception as error:
            print(f"{name}: input {number} of seed {seed}: {error!r}", flush=True)
            return False
        if number == count // 5:
            early = resident_mib()
    grown = resident_mib() - early
    spent = time.monotonic() - started
    print(f"{name}: {count} in {spent:.0f} s, {dict(ends)}, memory +{grown:.0f} MiB", flush=True)
    return grown < GROWTH_MIB


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--payloads", type=int, default=2_000_000)
    parser.add_argument("--policies", type=int, default=8_000_000)
    parser.add_argument("--statements", type=int, default=500_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    held = not args.payloads or attack(
        "payloads", args.payloads, args.seed, lambda draw: payloads.check(payloads.damaged(draw))
    )
    held &= not args.policies or attack(
        "policies", args.policies, args.seed, lambda draw: policies.check(policies.odd_policy(draw))
    )
    if args.statements:
        with tempfile.TemporaryDirectory() as folder:
            engine = statements.Engine(Path(folder))
            held &= attack(
                "statements", args.statements, args.seed,
                lambda draw: engine.check(engine.statement(draw)),
            )  # fmt: skip
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
