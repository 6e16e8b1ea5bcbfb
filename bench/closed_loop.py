"""The loop closed on real models: is the engine better off under the gate that it led to?

The bundled pair serves four classes on this processor, 16 clients that wait for their answers. The
hook's gate follows policies on the control page; the engine is never restarted. First cohorts of
each class run at every draft length, in random order; then `gate recommend`'s table serves all
classes together, in blocks by turns with every single draft length. Says what the table gives
over the best single length, with an interval from the pairs, and how long each class waits for its
tokens against its allowance: what it waits at k = 0, times `--allowance`. A class that exceeds it
must be one that the gate routes. Fails where the table is surely slower than a single length, or a
class surely exceeds its allowance and is not routed.

Run: python bench/closed_loop.py (about ten minutes on an idle machine)
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from random import Random

import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "walk"))

from known_cost import HookedEngine
from mixed_traffic import Site

from specscope.engine.api import SamplingParams, fixed_gate
from specscope.engine.decode.drafters.draft_model import ModelDrafter
from specscope.engine.decode.timing import SystemClock
from specscope.engine.pair import bundled_prompts, load_bundled
from specscope.evaluate.experiment import contrast, objectives
from specscope.evaluate.experiment.checks import usable_pairs
from specscope.evaluate.experiment.pairs import pairs_of
from specscope.evaluate.verdict import words
from specscope.evaluate.verdict.choice import Rules
from specscope.evaluate.verdict.decide import decide
from specscope.evaluate.verdict.shared_batch import judge_delays
from specscope.evidence.classes import read_class_blocks
from specscope.evidence.read import read, read_blocks
from specscope.gate.recommend import recommendation
from specscope.gate.show import recommendation_lines, table_lines
from specscope.policy.stored import checked, write_policy
from specscope.store.connection import Store
from specscope.store.migrate import migrate
from specscope.store.roll import roll

PROMPT, SHORTEST, LONGEST, CLIENTS = 48, 20, 32, 16


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

    def ask(label: str, _id: str) -> tuple[list[int], SamplingParams]:
        length = random.randint(SHORTEST, LONGEST)
        params = SamplingParams(temperature=1.0, seed=random.getrandbits(31), max_new_tokens=length)
        return random.choice(prompts[label]), params

    return Site(hooked, store, sorted(prompts), arms, ask)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--arms", default="0,1,2,4,8", help="draft lengths, 0 among them")
    arguments.add_argument("--pairs", type=int, default=22, help="of blocks, in each experiment")
    arguments.add_argument("--block-s", type=float, default=1.2)
    arguments.add_argument("--allowance", type=float, default=1.25, help="times the wait at k = 0")
    arguments.add_argument("--seed", type=int, default=1)
    args = arguments.parse_args()
    arms = [int(text) for text in args.arms.split(",")]
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        rings = Path(folder) / "rings"
        rings.mkdir()
        with Store.open(f"chdb://{folder}/store") as store:
            migrate(store)
            write_policy(store, cohort_policy(arms), "cohorts", time.time_ns())
            site = bundled_site(rings, store, arms, args.seed)
            calibrate(site, arms, args.pairs, args.seed)
            roll(store, everything=True)
            found = recommendation(read(store), default_k=0, now=time.time_ns())
            print("\n".join(recommendation_lines(found)))
            print("in force:", *table_lines(found.new), sep="\n    ")
            names = ("current", *site.names)
            policy = site.hold_out(found.new, args.pairs, args.block_s, names)
            site.hooked.close(store)
            roll(store, everything=True)
            failed = not throughput(store, policy, site.names)
            return int(not delays(store, policy, args.allowance) or failed)


def cohort_policy(arms: list[int]) -> dict[str, object]:
    """What the cohorts ran under: no table."""
    return checked(
        {
            "policy": 1,
            "kind": "cohort",
            "seed": 0,
            "arms": [{"name": f"k{k}", "k": k} for k in arms],
            "block_ms": None,
            "burn_in_ms": None,
            "first_pair": 1,
            "share": 1.0,
            "table": [],
            "default_k": 0,
        }
    )


def calibrate(site: Site, arms: list[int], pairs: int, seed: int) -> None:
    """Cohorts of one class, from empty to empty: in each pair the same requests at every length."""
    random, hooked, policy_gate, pair = Random(seed), site.hooked, site.hooked.gate, 0
    for _ in range(pairs):
        for label in random.sample(site.labels, len(site.labels)):
            pair += 1
            cohort = [site.clients.make(label, "") for _ in range(CLIENTS)]
            for k in random.sample(arms, len(arms)):
                hooked.gate = fixed_gate(k)
                hooked.recorder.block(1, pair, f"k{k}")
                for place, (prompt, params) in enumerate(cohort):
                    hooked.engine.submit(f"{pair}/{place}/{k}", prompt, params, label)
                while hooked.engine.step():
                    pass
                hooked.recorder.block(0, 0, "")
    hooked.gate = policy_gate
    hooked.drain(site.store)


def throughput(store: Store, policy: int, single: tuple[str, ...]) -> bool:
    """Print the table against every single length; whether it is not surely slower than one."""
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
    return not any(gain.loses for gain in gains)


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
