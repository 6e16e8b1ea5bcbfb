"""Weeks of the autopilot on simulated replicas: what it spends, finds and how long it takes.

It shares no code with the evaluator: a block yields tokens at its arm's true rate, times a drift
that its pair shares and a noise of its own. Which pairs run is drawn by the policy's own hash, as a
hook would. The budget is kept if the true loss of a week stays within it.

Run: python tests/gate/autopilot_weeks.py --weeks 1000 [--out FILE] (`make autopilot`).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing import Pool
from pathlib import Path

import numpy as np

from specscope.evaluate.experiment.blocks import BlockPart, BlockTime
from specscope.evidence.read import Evidence
from specscope.gate.autopilot import first_step, next_step, worth_a_look
from specscope.gate.sight import sight_of
from specscope.gate.standings import behind_chosen, incumbent_of, standings_of
from specscope.policy.arms import PolicyArm
from specscope.policy.autopilot import AutopilotState, autopilot_state
from specscope.policy.stored import HoldOut, StoredPolicy, next_table
from specscope.policy.table import GateTable, State
from specscope_hook.gate import Gate

BLOCK_S = 120.0
BEGAN = 1_800_000_000 * 10**9
SECOND = 10**9
TRAFFIC = State("chat", context=100, output=100, batch=16)


@dataclass(frozen=True)
class Scenario:
    """True tokens per second of each draft length, and of each after the truth has changed.

    in_force: the table's. noise: of a block, beside the drift of 10 % that a pair shares: 8 % of a
    pair's log ratio.
    """

    name: str
    rates: dict[int, float]
    in_force: int
    later: dict[int, float] | None = None
    changes_at_h: float = 84.0
    noise: float = 0.057
    replicas: int = 8
    budget: float = 0.01
    deploys: bool = False

    def rate(self, k: int, hours: float) -> float:
        """True rate at a time."""
        late = self.later is not None and hours >= self.changes_at_h
        return (self.later if late else self.rates)[k]  # type: ignore[index]


SCENARIOS = (
    Scenario("a small winner, bad arms", {0: 1.0, 1: 1.06, 2: 0.92, 4: 0.75, 8: 0.55}, in_force=0),
    Scenario("short drafts gain, long ones lose", {0: 1.0, 1: 1.08, 2: 1.04, 4: 0.85, 8: 0.6}, 0),
    Scenario("every length loses", {0: 1.0, 1: 0.98, 2: 0.95, 4: 0.88, 8: 0.65}, in_force=0),
    Scenario("a winner in the middle", {0: 1.0, 1: 1.03, 2: 1.07, 4: 0.92, 8: 0.75}, in_force=0),
    Scenario("the table in force is best", {0: 0.95, 1: 0.98, 2: 1.0, 4: 0.97, 8: 0.8}, in_force=2),
    Scenario("nothing differs", {0: 1.0, 1: 1.0, 2: 1.0, 4: 1.0, 8: 1.0}, in_force=0),
)
"""Equal allocation is undecided in all of them after 20 pairs, the least that a verdict takes."""
CLEAR = (
    Scenario("one clear winner", {0: 1.0, 1: 1.05, 2: 1.12, 4: 1.0, 8: 0.75}, in_force=0),
    Scenario("losers beside the best", {0: 0.85, 1: 0.96, 2: 1.0, 4: 0.93, 8: 0.6}, in_force=2),
)
DRIFTS = (
    Scenario(
        "the truth changes", {0: 1.0, 2: 1.0, 4: 0.8}, 0, later={0: 1.0, 2: 1.3, 4: 0.8}
    ),
    Scenario(
        "a deploy changes the truth", {0: 1.0, 2: 0.8, 4: 0.7}, 0,
        later={0: 1.0, 2: 1.3, 4: 0.7}, deploys=True,
    ),
)  # fmt: skip


@dataclass
class Week:
    """lost_s: seconds of capacity that were truly lost; capacity_s: that there were. blocks: of
    arms beside the table in force. over: whether the loss ever exceeded the budget of a day or
    of all hours so far. decided_h: when a table was proposed or applied, or nothing was left, and
    at_decision: blocks and seconds lost by then. covered: of each arm, when it stopped or the table
    was decided, whether the interval of its ratio held the truth. changed_h: when it started again
    after the truth had changed. pairs: of equal allocation, when all was decided.
    """

    lost_s: float = 0.0
    capacity_s: float = 0.0
    blocks: int = 0
    over: bool = False
    steps: list[str] = field(default_factory=list)
    table: GateTable = field(default_factory=GateTable)
    decided_h: float | None = None
    at_decision: tuple[int, float] | None = None
    covered: list[bool] = field(default_factory=list)
    changed_h: float | None = None
    pairs: int = 0


def week(
    scenario: Scenario, seed: int, applies: bool = True, hours: float = 168.0,
    until_decided: bool = False,
) -> Week:  # fmt: skip
    """A week of the autopilot."""
    random = np.random.default_rng(seed)
    table = GateTable((), scenario.in_force)
    arms = tuple(PolicyArm(f"k{k}") for k in scenario.rates if k not in (0, scenario.in_force))
    state = AutopilotState(arms, scenario.budget, 0.5, applies, BLOCK_S, 24.0, BEGAN, BEGAN, 2)
    put = StoredPolicy(1, BEGAN - 10**12, "table", {"policy": 1, **table.as_json()}, "")
    policies = [put]
    _put(policies, first_step(state, policies, table, scenario.replicas, BEGAN).body, BEGAN)
    blocks: list[BlockTime] = []
    parts: list[BlockPart] = []
    run = Week()
    now, end, looked = BEGAN, BEGAN + round(hours * 3600 * SECOND), (0, 0)
    while now < end:
        current = policies[-1]
        gate, span = Gate.from_policy(dict(current.body)), current.span
        step_ns = round(BLOCK_S * SECOND)
        if span is not None and span[0] <= now < span[1]:
            length = len(gate.arms) * round(BLOCK_S * SECOND)
            pair = now // length
            step_ns = (pair + 1) * length - now
            for replica in range(scenario.replicas):
                if gate.experimental(f"r{replica}", "b", pair):
                    _run(scenario, gate, replica, pair, now, random, run, blocks, parts, current)
        now += step_ns
        hour = (now - BEGAN) / 3.6e12
        state = autopilot_state(policies[-1].body)
        assert state is not None
        epoch = "late" if scenario.deploys and hour >= scenario.changes_at_h else "e"
        own = sum(block.policy >= state.first for block in blocks)
        if looked[0] != state.first:
            looked = state.first, 0
        moved = state.epoch and epoch != state.epoch
        if moved or worth_a_look(state, policies[-1].ended(now), own, looked[1]):
            looked = state.first, own
            in_force = policies[-1].table_at(now)
            evidence = Evidence(tuple(blocks), tuple(parts), policies=tuple(policies))
            sight = sight_of(evidence, state, in_force, scenario.replicas, epoch, now)
            step = next_step(state, policies[-1], policies, sight, now)
            if step is not None:
                run.steps.append(f"{hour:.1f} h {step.kind}: {step.why}")
                run.covered += _covered(scenario, state, in_force, step, sight)
                _put(policies, step.body, now)
                if step.kind == "restart" and run.changed_h is None and scenario.later:
                    run.changed_h = hour if hour >= scenario.changes_at_h else None
                if step.kind in ("apply", "propose", "rest") and run.decided_h is None:
                    run.decided_h, run.at_decision = hour, (run.blocks, run.lost_s)
                    if until_decided:
                        break
        allowed = scenario.budget * scenario.replicas * max(24.0, hour) * 3600
        run.over |= run.lost_s > allowed
    run.capacity_s = scenario.replicas * hours * 3600
    run.table = policies[-1].table_at(now)
    run.at_decision = run.at_decision or (run.blocks, run.lost_s)
    return run


def _covered(scenario, state, in_force, step, sight) -> list[bool]:
    """Of the arms about which a step says something, whether their intervals hold the truth."""
    if scenario.later or sight.advice is None:
        return []
    after = autopilot_state(step.body)
    assert after is not None
    stops = {name for name, _ in after.stopped} - {name for name, _ in state.stopped}
    decides = step.kind in ("apply", "propose")
    runs = in_force.k(TRAFFIC)
    estimates = {}
    for verdict in sight.advice.verdicts:
        for one in (*verdict.speedups, *verdict.between):
            truth = [
                scenario.rates[runs if name == "current" else int(name[1:])]
                for name in (one.arm, one.baseline)
            ]
            said = one.arm in stops or one.baseline in stops or decides
            if one.low is not None and one.high is not None and said:
                key = tuple(sorted((one.arm, one.baseline)))
                estimates[key] = one.low <= truth[0] / truth[1] <= one.high
    return list(estimates.values())


def equal_week(scenario: Scenario, seed: int, hours: float = 168.0) -> Week:
    """All arms in every pair until they are decided: no arm stops, and no budget holds.

    Each arm is decided by the autopilot's own tests.
    """
    random = np.random.default_rng(seed)
    table = GateTable((), scenario.in_force)
    names = tuple(f"k{k}" for k in scenario.rates)
    arms = tuple(PolicyArm(name) for name in names if name not in ("k0", f"k{scenario.in_force}"))
    state = AutopilotState(arms, 1.0, 0.5, True, BLOCK_S, 24.0, BEGAN, BEGAN, 1)
    run_arms = tuple(dict.fromkeys(("k0", incumbent_of(table), *(arm.name for arm in arms))))
    body = next_table([], table, now=BEGAN, hold_out=HoldOut(1.0, BLOCK_S, 30.0, run_arms))
    policies: list[StoredPolicy] = []
    _put(policies, body, BEGAN)
    gate, run = Gate.from_policy(dict(body)), Week()
    blocks: list[BlockTime] = []
    parts: list[BlockPart] = []
    stopped: set[str] = set()
    length, looked = len(gate.arms) * round(BLOCK_S * SECOND), 0
    for pair in range(gate.first_pair, gate.first_pair + round(hours * 3.6e12) // length):
        for replica in range(scenario.replicas):
            _run(
                scenario, gate, replica, pair, pair * length, random, run, blocks, parts,
                policies[0],
            )  # fmt: skip
            now = (pair + 1) * length
            if worth_a_look(state, False, len(blocks), looked):
                looked = len(blocks)
                evidence = Evidence(tuple(blocks), tuple(parts), policies=tuple(policies))
                sight = sight_of(evidence, state, table, scenario.replicas, "e", now)
                standings = standings_of(state, table, sight.advice)
                stopped |= {one.name for one in standings if one.why}
                left = [arm.name for arm in arms if arm.name not in stopped]
                if sight.advice and sight.advice.changes:
                    left = sorted(set(left) - set(behind_chosen(sight.advice, left)))
                if not left:
                    run.decided_h = (now - BEGAN) / 3.6e12
                    run.pairs = len(blocks) // len(gate.arms)
                    return run
    run.pairs = len(blocks) // len(gate.arms)
    return run


def right(scenario: Scenario, table: GateTable) -> bool:
    """Whether a table is within 3 % of the best arm's true rate at the end of the week."""
    k = table.k(TRAFFIC)
    rates = scenario.later or scenario.rates
    return rates[k] >= 0.97 * max(rates.values())


def _put(policies, body, now) -> None:
    policies.append(StoredPolicy(body["policy"], now, body["kind"], body, ""))


def _run(scenario, gate, replica, pair, now, random, run, blocks, parts, policy) -> None:
    drift = np.exp(random.normal(0, 0.1))
    hour = (now - BEGAN) / 3.6e12
    in_force = policy.table.k(TRAFFIC)
    epoch = "late" if scenario.deploys and hour >= scenario.changes_at_h else "e"
    for name in gate.order(f"r{replica}", "b", pair):
        k = in_force if name == "current" else int(name[1:])
        rate = scenario.rate(k, hour)
        run.lost_s += BLOCK_S * max(0.0, 1.0 - rate / scenario.rate(in_force, hour))
        run.blocks += k != in_force
        seconds = 0.7 * BLOCK_S
        tokens = 2000.0 * rate * seconds * drift * np.exp(random.normal(0, scenario.noise))
        where = {
            "epoch": epoch, "policy": policy.number, "replica": f"r{replica}", "boot": "b",
            "pair": pair, "arm": name,
        }  # fmt: skip
        rows = round(tokens / (1 + 0.5 * k))
        blocks.append(
            BlockTime(
                **where, requests=40, rounds=rows // 16, request_rounds=rows, classes=("chat",),
                k=k, wall_us=1e6 * seconds, n_q=rows * (k + 1), n_kv=rows * 500,
                proposed=rows * k, accepted=round(tokens) - rows if k else 0,
                emitted=round(tokens), first_at=now, last_at=now + round(seconds * 1e9),
                waiting=rows,
            )
        )  # fmt: skip
        parts.append(
            BlockPart(
                **where, class_="chat", context_bucket="0-1k", output_bucket="65-256", k=k,
                request_rounds=rows, proposed=rows * k, accepted=0, emitted=round(tokens),
                requests=40,
            )
        )  # fmt: skip
        now += round(BLOCK_S * 1e9)


def line_of(task: tuple[Scenario, int]) -> dict[str, object]:
    """One week as a line of the file."""
    scenario, seed = task
    one = week(scenario, seed)
    line: dict[str, object] = {
        "scenario": scenario.name, "seed": seed, "over": one.over,
        "lost": one.lost_s / one.capacity_s, "blocks": one.blocks, "decided_h": one.decided_h,
        "right": right(scenario, one.table), "covered": one.covered, "changed_h": one.changed_h,
    }  # fmt: skip
    if scenario in SCENARIOS:
        equal = equal_week(scenario, seed)
        line["until"] = [*(one.at_decision or ()), equal.blocks, equal.lost_s]
        line["equal_pairs"] = equal.pairs
    return line


def main() -> int:
    """Weeks of every scenario in turn; fails if one of the bars is missed."""
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--weeks", type=int, default=1000)
    options.add_argument("--processes", type=int, default=2)
    options.add_argument("--minutes", type=float, default=1e9, help="after which no week begins")
    options.add_argument("--out", type=Path, default=Path("build/autopilot.jsonl"))
    args = options.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    lines = args.out.read_text().splitlines() if args.out.exists() else []
    done = {(line["scenario"], line["seed"]): line for line in map(json.loads, lines)}
    every = (*SCENARIOS, *DRIFTS, *CLEAR)
    seeds = range(-(-args.weeks // len(every)))
    tasks = [(one, seed) for seed in seeds for one in every if (one.name, seed) not in done]
    end = time.monotonic() + 60 * args.minutes
    with Pool(args.processes) as pool, args.out.open("a") as file:
        for line in pool.imap_unordered(line_of, tasks):
            file.write(json.dumps(line) + "\n")
            file.flush()
            done[line["scenario"], line["seed"]] = line
            if time.monotonic() > end:
                pool.terminate()
                break
    return summary(every, list(done.values()))


def summary(every: Sequence[Scenario], lines: Sequence[dict]) -> int:
    """Print what the weeks came to; the number of bars that they miss."""
    held = 0
    for scenario in every:
        own = [line for line in lines if line["scenario"] == scenario.name]
        if not own:
            continue
        hours = [line["decided_h"] for line in own if line["decided_h"] is not None]
        sys.stdout.write(
            f"{scenario.name}: {len(own)} weeks, {np.mean([m['lost'] for m in own]):.2%} lost "
            f"(at most {max(m['lost'] for m in own):.2%}), over the budget in "
            f"{sum(m['over'] for m in own)}; decided in {len(hours)}, after "
            f"{np.median(hours) if hours else float('nan'):.0f} h in the middle; the right "
            f"table in {np.mean([m['right'] for m in own]):.0%}\n"
        )
        if scenario in SCENARIOS:
            blocks, lost, blocks_e, lost_e = np.sum([m["until"] for m in own], axis=0)
            fewer, less = 1 - blocks / blocks_e, 1 - lost / lost_e if lost_e else 0.0
            held += fewer >= 0.4 and less >= 0.6
            sys.stdout.write(
                f"    until it was decided: {blocks / len(own):.0f} blocks for "
                f"{blocks_e / len(own):.0f} with equal allocation, which takes "
                f"{np.median([m['equal_pairs'] for m in own]):.0f} pairs: {fewer:.0%} fewer, and "
                f"{less:.0%} less lost\n"
            )
        changed = [m["changed_h"] for m in own if m["changed_h"] is not None]
        if scenario.later:
            after = np.array(changed or [np.nan]) - scenario.changes_at_h
            sys.stdout.write(
                f"    the change was seen in {len(changed)}, after {np.median(after):.0f} h in the "
                f"middle and {np.quantile(after, 0.9):.0f} h in nine of ten\n"
            )
    over = sum(line["over"] for line in lines)
    covered = np.array([one for line in lines for one in line["covered"]])
    share, spread = covered.mean(), np.sqrt(covered.mean() * (1 - covered.mean()) / len(covered))
    weeks = np.mean([line["right"] for line in lines])
    sys.stdout.write(
        f"over the budget in {over} of {len(lines)} weeks; the right table in {weeks:.1%}; "
        "intervals at the stopping time hold the truth in "
        f"{share:.1%} of {len(covered)}; fewer blocks and "
        f"less lost in {held} of {len(SCENARIOS)} scenarios\n"
    )
    missed = (over > 0.01 * len(lines), share - 1.96 * spread < 0.94, held < 3)
    return sum(map(int, missed))


if __name__ == "__main__":
    sys.exit(main())
