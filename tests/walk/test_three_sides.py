"""Two drafters and target-only at once: three engines behind one router, and the real verdict."""

import dataclasses

import pytest
import torch
from known_cost import Cost, Machine, VirtualClock
from two_sides import deploy, tokens_per_s

from specscope.evaluate.verdict.crossover import judge_crossovers
from specscope.evidence.crossovers import crossings
from specscope.evidence.read import read, read_bodies
from specscope.gate.swap import Swap, crossover_policy
from specscope.policy.stored import read_policies, write_policy
from specscope.store.connection import Store
from specscope.store.migrate import migrate
from specscope.store.roll import roll

pytestmark = pytest.mark.slow
COST = Cost(step=20_000, query=200, context=0.5, draft=1_000)
SIDES = ("left", "right", "third")
K, PAIRS = 4, 21  # of each deploy: whichever of them is the noisiest, 20 is the first look
DRAFTERS = {"sharp": {"easy": 0.9, "hard": 0.6, "odd": 0.6},
            "blunt": {"easy": 0.6, "hard": 0.2, "odd": 0.2}}  # fmt: skip
CLIENTS = {"easy": 3, "hard": 2, "odd": 2}
ROTATED = (("clean", "sharp", "blunt"), ("sharp", "blunt", "clean"), ("blunt", "clean", "sharp"))
SWAP = Swap(("left",), ("right",), block_s=1, seed=3, differs=("drafter",), third=("third",))


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Evidence of three deploys, each configuration on each side once, and the policies."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("three")
    (folder / "rings").mkdir()
    began = VirtualClock(Machine(0, 0.0, 0.0, 0.0)).unix_ns()
    with Store.open(f"chdb://{folder}/store") as store:
        migrate(store)
        for number, ran in enumerate(ROTATED):
            body = crossover_policy(read_policies(store), SWAP, now=began, default_k=K)
            write_policy(store, body, "walk", began)
            drafts = {
                side: (name, DRAFTERS[name])
                for side, name in zip(SIDES, ran, strict=True)
                if name in DRAFTERS
            }
            began = deploy(
                folder / "rings", store, f"/{number}", dict.fromkeys(SIDES, COST),
                {side: K if side in drafts else 0 for side in SIDES},
                dict.fromkeys(CLIENTS, 0.5), CLIENTS, began, PAIRS, drafts,
            )  # fmt: skip
        roll(store, everything=True)
        yield read(store), read_bodies(store)


def test_each_pair_gave_two_sides_both_of_their_streams_and_the_third_its_own(found):
    (crossing,) = found[0].crossings
    streams = {}
    for block in crossing.blocks:
        streams.setdefault((block.pair // 2, block.replica), set()).add(block.classes)

    assert len(crossing.sides) == 3
    by_pair = {}
    for (pair, _), served in streams.items():
        by_pair.setdefault(pair, []).append(len(served))
    assert all(sorted(counts) == [1, 2, 2] for counts in by_pair.values())
    assert len(by_pair) == len(ROTATED) * PAIRS


def test_both_drafters_are_judged_against_target_only_and_against_each_other(found):
    (crossing,) = found[0].crossings
    (judged,) = judge_crossovers([crossing], closed_loop=True)

    speed = {
        name: sum(tokens_per_s(COST, rates[label], K, n, 6000) for label, n in CLIENTS.items())
        for name, rates in (*DRAFTERS.items(), ("clean", dict.fromkeys(CLIENTS, 0.0)))
    }
    estimates = {(one.arm, one.baseline): one for one in judged.joint.estimates}
    sharp, blunt = (next(a for a, _ in estimates if name in a) for name in DRAFTERS)
    assert judged.joint.confounded == frozenset()
    assert estimates[sharp, "clean"].wins
    assert judged.verdict.best == (sharp,)
    between = estimates.get((sharp, blunt)) or estimates[blunt, sharp].reversed()
    assert between.wins
    assert estimates[sharp, "clean"].value > estimates[blunt, "clean"].value
    assert speed["sharp"] > speed["blunt"]


@pytest.mark.parametrize(
    ("column", "value", "part"),
    [("engine_version", "9.9", "version"), ("target", "another", "target"),
     ("tensor_parallel", 2, "placement")],
)  # fmt: skip
def test_a_difference_of_the_third_side_that_was_not_declared_is_refused_by_name(
    found, column, value, part
):
    evidence, bodies = found
    boots = [boot | {column: value} if boot["replica"] == "third" else boot
             for boot in evidence.boots]  # fmt: skip
    blocks = [block for one in evidence.crossings for block in one.blocks]
    plain = [dataclasses.replace(block, arm="current", void=None) for block in blocks]

    verdicts = [one.verdict for one in judge_crossovers(crossings(plain, bodies, boots))]

    refused = {
        reason.arm for verdict in verdicts for reason in verdict.reasons
        if reason.code == "undeclared"
    }  # fmt: skip
    assert part in refused
    assert all(verdict.action == "not_comparable" for verdict in verdicts)
