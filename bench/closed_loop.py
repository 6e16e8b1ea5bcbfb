"""The loop closed on real models: is the engine better off under the gate that it led to?

The bundled pair serves four classes in one batch on this processor, to 16 clients that wait for
their answers. Two classes are sampled and two are greedy, so that they keep unequal shares of their
drafts. Each repeats the same few requests, so every block serves nearly the same text. The engine
starts once; all that reaches it are policies on its control page. The commands of the product
decide:

1. single draft lengths and one table of unequal ones run in blocks by turns;
2. `gate propose` ranks all tables by the rounds of these blocks, or asks for more of them;
3. its table runs as an arm, beside the arms that it has to beat, until `gate watch` says that the
   experiment has its answer;
4. `gate recommend` and `gate apply` put a table in force, or leave it;
5. that table runs in blocks by turns with every single draft length.

Step 5 uses no block of the steps before. It says what the table gives over the best single length,
with an interval from the pairs, and how long each class waits for its tokens against its allowance:
the wait at k = 0, times `--allowance`. Fails unless the table is surely better than the best single
length, and each class that surely exceeds its allowance is one that the gate routes.

Run: python bench/closed_loop.py (about 25 minutes on an idle machine)
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from random import Random

import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "walk"))

from known_cost import HookedEngine
from mixed_traffic import Site

from specscope.cli import main as command
from specscope.engine.api import SamplingParams
from specscope.engine.decode.drafters.draft_model import ModelDrafter
from specscope.engine.decode.timing import SystemClock
from specscope.engine.pair import bundled_prompts, load_bundled
from specscope.evaluate.experiment import contrast, objectives
from specscope.evaluate.experiment.blocks import arm_k
from specscope.evaluate.experiment.checks import usable_pairs
from specscope.evaluate.experiment.pairs import pairs_of
from specscope.evaluate.verdict import words
from specscope.evaluate.verdict.choice import Rules
from specscope.evaluate.verdict.decide import decide
from specscope.evaluate.verdict.shared_batch import judge_delays
from specscope.evidence.classes import read_class_blocks
from specscope.evidence.read import read, read_blocks
from specscope.gate.recommend import recommendation
from specscope.gate.show import table_lines
from specscope.gate.watch import look
from specscope.policy.stored import read_policies, table_in_force
from specscope.store.connection import Store
from specscope.store.migrate import migrate
from specscope.store.roll import roll
from specscope_agent.loss import rows_table

PROMPT, SHORTEST, LONGEST, CLIENTS = 48, 20, 32, 16
LEARN_AGAIN = 3  # times that the first arms run at most, until the engine is known
PART = 20  # pairs between two looks at the proposed table
REQUESTS = 16  # that each class repeats: as many as a block serves of it
TEMPERATURE = {"json": 1.0, "sql": 1.0}  # 0 of every other class


def bundled_site(rings: Path, store: Store, arms: list[int], seed: int) -> Site:
    """The bundled engine behind the hook, with clients that take its held-out prompts."""
    pair, random = load_bundled(), Random(seed)
    prompts: dict[str, list[list[int]]] = {}
    for one in bundled_prompts():
        prompts.setdefault(one.label, []).append(pair.encode(one.text)[:PROMPT])
    assert pair.draft is not None
    hooked = HookedEngine(
        rings, "bundled", pair.target, ModelDrafter(pair.draft), SystemClock(),
        k_max=max(arms), slots=CLIENTS, capacity=PROMPT + LONGEST,
    )  # fmt: skip

    requests = {
        label: cycle([(prompt, drawn(label, random)) for prompt in random.sample(own, REQUESTS)])
        for label, own in prompts.items()
    }

    def ask(label: str, _id: str) -> tuple[list[int], SamplingParams]:
        return next(requests[label])

    return Site(hooked, store, sorted(prompts), arms, ask)


def drawn(label: str, random: Random) -> SamplingParams:
    """How one of the requests is answered."""
    return SamplingParams(
        temperature=TEMPERATURE.get(label, 0.0),
        seed=random.getrandbits(31),
        max_new_tokens=random.randint(SHORTEST, LONGEST),
    )


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--arms", default="0,1,2,4", help="draft lengths, 0 among them")
    arguments.add_argument(
        "--learn",
        type=int,
        default=12,
        help="pairs between two proposals, of which there are three",
    )
    arguments.add_argument(
        "--prove", type=int, default=100, help="most pairs of the proposed table"
    )
    arguments.add_argument("--confirm", type=int, default=60, help="pairs of the table in force")
    arguments.add_argument("--block-s", type=float, default=1.6)
    arguments.add_argument("--allowance", type=float, default=1.25, help="times the wait at k = 0")
    arguments.add_argument("--seed", type=int, default=1)
    args = arguments.parse_args()
    arms = [int(text) for text in args.arms.split(",")]
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        where = f"chdb://{folder}/store"
        Path("rings").mkdir()
        with Store.open(where) as store:
            migrate(store)
            site = bundled_site(Path("rings").resolve(), store, arms, args.seed)
            store.insert("boot", rows_table("boot", [dict(site.hooked.reader.boot)]))
            Path("unequal.json").write_text(json.dumps(unequal(site.labels, max(arms))))
        proven = decide_by_product(site, where, [*site.names, "unequal.json"], args)
        with Store.open(where) as site.store:
            table = table_in_force(read_policies(site.store), time.time_ns(), 0)
            print("in force:", *table_lines(table), sep="\n    ")
            single = tuple(
                sorted({*site.names, *(arm for arm in proven if arm_k(arm) is not None)})
            )
            policy = site.hold_out(table, args.confirm, args.block_s, ("current", *single))
            site.hooked.close(site.store)
            roll(site.store, everything=True)
            better = throughput(site.store, policy, single)
            return int(not delays(site.store, policy, args.allowance) or not better)


def unequal(labels: Sequence[str], longest: int) -> dict[str, object]:
    """A table that drafts for half of the classes: only unequal rows show what an engine saves."""
    half = sorted(labels)[::2]
    return {"table": [{"class": label, "k": longest} for label in half], "default_k": 0}


def decide_by_product(
    site: Site, where: str, first: Sequence[str], args: argparse.Namespace
) -> list[str]:
    """The first arms, `gate propose`, its experiment, `gate recommend` and `gate apply`.

    Each prints its lines. As an operator would, it runs the first arms again while the proposal
    says that more pairs are needed, and the experiment until it has its answer. Returns the arms of
    that experiment.
    """
    for _ in range(LEARN_AGAIN):
        with Store.open(where) as site.store:
            site.run_arms(first, args.learn, args.block_s)
        gate(where, "propose", "--out", "proposed.json")
        if (file := Path("proposed.json")).exists():
            proposal = json.loads(file.read_text())["proposal"]
            if proposal["settled"]:
                break
    if not file.exists():
        sys.exit("nothing was proposed: run more pairs (--learn)")
    arms = proposal["arms"]
    with Store.open(where) as site.store:
        begins = site.start_arms(arms, args.prove, args.block_s)
    for pairs in range(PART, args.prove + PART, PART):
        with Store.open(where) as site.store:
            site.run_pairs(begins, min(pairs, args.prove), len(arms), args.block_s)
        gate(where, "watch", "--once")
        with Store.open(where) as store:
            if look(store).exhausted:
                break
    gate(where, "recommend", "--closed-loop", "--out", "advice.json")
    gate(where, "apply", "advice.json")
    return list(arms)


def gate(where: str, *words: str) -> int:
    """A command of the product, on a store; its exit code. Its lines are printed."""
    print("$ specscope gate", *words)
    code = command(["gate", *words, "--store", where])
    sys.stdout.flush()
    return code


def throughput(store: Store, policy: int, single: tuple[str, ...]) -> bool:
    """Print the table against every single length; whether it is surely better than all."""
    blocks, parts = read_blocks(store, f"policy = {policy}")
    for verdict in decide(blocks, parts, Rules(looked_at_often=True), "closed_loop"):
        print(f"{verdict.segment}: {verdict.action}, best {', '.join(verdict.best)}")
        print("".join(f"    {line}\n" for line in words.explain(verdict)), end="")
    pairs = usable_pairs(pairs_of(blocks, parts), "closed_loop").pairs
    gains = []
    for arm in single:
        found = objectives.measure(pairs, "current", arm, "throughput")
        if found is not None:
            gains.append(contrast.estimate(found, "current", arm, 0.95))
    best = min(gains, key=lambda gain: gain.value)
    for gain in gains:
        mark = " (the best single length)" if gain is best else ""
        print(f"{words.estimate(gain)}{mark}")
    return all(gain.low is not None and gain.low > 1.0 for gain in gains)


def delays(store: Store, policy: int, times: float) -> bool:
    """Print each class's wait against its allowance; whether all that exceed it are routed."""
    rows = [row for row in read_class_blocks(store) if row.policy == policy]
    at_k0 = {
        one.class_: one.tpot_p95_ms["k0"].value
        for one in judge_delays(rows, Rules(tpot_allowance_ms=dict.fromkeys(classes(rows), 1e9)))
        if "k0" in one.tpot_p95_ms
    }
    allowed = {label: times * value for label, value in at_k0.items()}
    found = recommendation(read(store), now=time.time_ns(), closed_loop=True, allowances=allowed)
    for one in found.delays:
        print(f"{one.class_}: {one.action}: {one.reason}")
    exceeding = {
        one.class_
        for one in found.delays
        if (low := one.tpot_p95_ms["current"].low) is not None and low > one.allowance_ms
    }
    print("routed:", ", ".join(found.routes) or "none")
    return exceeding <= set(found.routes)


def classes(rows) -> set[str]:
    return {row.class_ for row in rows}


if __name__ == "__main__":
    sys.exit(main())
