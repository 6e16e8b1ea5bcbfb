"""How good the proposed tables are, and how often a table is called better that is not.

Run: python tests/gate/proposal_campaign.py --runs 100 [--out FILE] (`make proposals`). Each line of
the file is one engine and seed; a run that was cut goes on where the file ends.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gate.four_engines import CLASSES, ENGINES, SWITCHES, EngineKind, experiments, truth

from specscope.evaluate.proposal.ranking import Proposal, propose
from specscope.evidence.read import Evidence
from specscope.gate.recommend import recommendation
from specscope.policy.arms import PolicyArm
from specscope.policy.stored import HoldOut, StoredPolicy, next_table
from specscope.policy.table import Cell, GateTable

FIRST = {"k0": (0,) * 4, "k2": (2,) * 4, "k4": (4,) * 4, "sharp": (0, 4, 0, 4)}
"""The arms that a model is fitted to: a few uniform ones, and one of unequal lengths."""
TRIPLES = 6
NEAR = 0.98
LOOKS = (20, 25, 30, 40)
OFF = GateTable((), 0)


@dataclass
class Reach:
    """Proposals of one engine. reached: each one's true throughput over the best table's."""

    reached: list[float]
    covered: list[bool]

    @property
    def near(self) -> float:
        """Share of the runs whose table reaches 98 % of the best."""
        return float(np.mean(np.array(self.reached) >= NEAR))


def reach(engine: EngineKind, runs: int, seed: int, rows: int = 400_000) -> Reach:
    """Proposals from experiments of six rounds of the first arms, against the truth."""
    proposals = [
        propose(one.rounds, one.parts) for one in experiments(engine, FIRST, TRIPLES, runs, seed)
    ]
    chosen = [lengths_of(one) for one in proposals]
    rates, best = truth(engine, [*SWITCHES, *chosen], rows)
    singles, rates = rates[: len(SWITCHES)], rates[len(SWITCHES) :]
    covered = [
        bool(one.gain.low <= rate / singles[one.single] <= one.gain.high)
        for one, rate in zip(proposals, rates, strict=True)
        if len(set(lengths_of(one))) > 1
    ]
    return Reach([float(rate / best) for rate in rates], covered)


def lengths_of(proposal: Proposal) -> tuple[int, ...]:
    """A proposal's lengths in the simulator's order of classes."""
    return tuple(proposal.lengths[name] for name in CLASSES)


def called_better(
    engine: EngineKind, table: tuple[int, ...], switch: int, runs: int, seed: int,
    looks: tuple[int, ...] = LOOKS,
) -> int:  # fmt: skip
    """Runs in which the table is called better than a switch, or adopted, at any look."""
    arms = {"k0": (0,) * 4, f"k{switch}": (switch,) * 4, "gate": table}
    called = 0
    for one in experiments(engine, arms, max(looks), runs, seed):
        called += any(_says_better(one, table, f"k{switch}", pairs) for pairs in looks)
    return called


def _says_better(records, table, switch, pairs) -> bool:
    gate = GateTable(tuple(Cell(k, name) for name, k in zip(CLASSES, table, strict=True)), 0)
    hold_out = HoldOut(1.0, 1.0, 0.0, ("k0", switch, "gate"), 100, (PolicyArm("gate", table=gate),))
    body = next_table([], OFF, now=0, hold_out=hold_out) | {"policy": 2}
    found = recommendation(
        Evidence(
            tuple(one for one in records.blocks if one.pair <= pairs),
            tuple(one for one in records.parts if one.pair <= pairs),
            policies=(StoredPolicy(2, 0, "blocks", body, ""),),
        ),
        now=10**18,
        closed_loop=True,
    )
    contrasts = [one for verdict in found.verdicts for one in verdict.between]
    better = any(one.wins for one in contrasts if (one.arm, one.baseline) == ("gate", switch))
    return better or any(move.rule == "adopt" for move in found.moves)


def main() -> int:
    """Counts by engine; fails where proposals are poor or a table is called better too often."""
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--runs", type=int, default=100, help="of each engine")
    options.add_argument("--at-once", type=int, default=10, help="runs of a seed")
    options.add_argument("--out", type=Path, default=Path("build/proposals.jsonl"))
    args = options.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    lines = args.out.read_text().splitlines() if args.out.exists() else []
    done = {(line["engine"], line["seed"]): line for line in map(json.loads, lines)}
    for seed in range(-(-args.runs // args.at_once)):
        for engine in ENGINES:
            if (engine.name, seed) in done:
                continue
            one = reach(engine, args.at_once, 100 + seed)
            line = {
                "engine": engine.name, "seed": seed, "reached": one.reached,
                "covered": one.covered,
                "called": called_better(engine, (1, 1, 1, 1), 1, args.at_once, 900 + seed),
                "runs": args.at_once,
            }  # fmt: skip
            with args.out.open("a") as file:
                file.write(json.dumps(line) + "\n")
            done[engine.name, seed] = line
    failed = False
    for engine in ENGINES:
        mine = [line for (name, _), line in done.items() if name == engine.name]
        reached = [value for line in mine for value in line["reached"]]
        covered = [value for line in mine for value in line["covered"]]
        runs, called = sum(line["runs"] for line in mine), sum(line["called"] for line in mine)
        near = float(np.mean(np.array(reached) >= NEAR))
        held = f"{np.mean(covered):.1%} of {len(covered)}" if covered else "none"
        sys.stdout.write(
            f"{engine.name}: {near:.1%} of {runs} proposals reach {NEAR:.0%} of the best table "
            f"(the worst {min(reached):.3f}); the predicted gain's interval holds the truth in "
            f"{held}; an equal table is called better in {called} of {runs}\n"
        )
        failed |= near < 0.9 or called > 0.05 * runs
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
