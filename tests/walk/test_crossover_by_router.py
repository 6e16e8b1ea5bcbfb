"""A crossover that really runs: two rings, a router, two deploys, and the verdict of real code."""

import pytest
import torch
from known_cost import Cost, Machine, VirtualClock
from two_sides import deploy, faster, tokens_per_s

from specscope.evaluate.verdict.crossover import judge_crossovers
from specscope.evidence.read import read
from specscope.gate.recommend import recommendation
from specscope.gate.swap import Swap, crossover_policy
from specscope.policy.stored import read_policies, write_policy
from specscope.store.connection import Store
from specscope.store.migrate import migrate
from specscope.store.roll import roll

pytestmark = pytest.mark.slow
COST = Cost(step=20_000, query=200, context=0.5, draft=1_000)
HARDWARE, K, PAIRS = 1.1, 4, 21  # the left machine is faster by itself
RATES, CLIENTS = {"easy": 0.85, "hard": 0.4}, {"easy": 4, "hard": 2}
COSTS = {"left": faster(COST, HARDWARE), "right": COST}
TRUTH = sum(tokens_per_s(COST, RATES[name], K, n) for name, n in CLIENTS.items()) / sum(
    tokens_per_s(COST, RATES[name], 0, n) for name, n in CLIENTS.items()
)


@pytest.fixture(scope="module")
def readings(tmp_path_factory):
    """What the gate reads after the first deploy, and after another with the sides swapped."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("crossover")
    (folder / "rings").mkdir()
    began = VirtualClock(Machine(0, 0.0, 0.0, 0.0)).unix_ns()
    found = []
    with Store.open(f"chdb://{folder}/store") as store:
        migrate(store)
        for name, ks in (("/1", {"left": 0, "right": K}), ("/2", {"left": K, "right": 0})):
            calibrate(store, began)
            began = deploy(folder / "rings", store, name, COSTS, ks, RATES, CLIENTS, began, PAIRS)
            roll(store, everything=True)
            found.append(read(store))
    return found


def calibrate(store, now):
    """As `gate calibrate --crossover` does in each deploy: a policy of its own, the same sides."""
    swap = Swap(("left",), ("right",), block_s=1, seed=3)
    body = crossover_policy(read_policies(store), swap, now=now, default_k=K)
    write_policy(store, body, "walk", now)


@pytest.fixture(scope="module")
def judged(readings):
    """The one crossover, as it looks after each deploy."""
    return [judge_crossovers(r.crossings, closed_loop=True)[0] for r in readings]


def holds(estimate, truth):
    return estimate.low < truth < estimate.high


def test_the_gain_and_the_hardware_are_told_apart_once_the_sides_were_swapped(judged):
    verdict, joint = judged[1].verdict, judged[1].joint
    (gain,) = joint.estimates

    assert (verdict.action, verdict.k) == ("keep", K)
    assert (verdict.grade, verdict.confidence, verdict.pairs) == ("measured", "high", 2 * PAIRS)
    assert verdict.metric.startswith("output tokens per second")
    assert (gain.arm, gain.baseline) == (f"k{K}", "clean")
    assert holds(gain, TRUTH)
    assert gain.high / gain.low < 1.2
    (hardware,) = joint.hardware
    assert holds(hardware, HARDWARE)
    assert not holds(hardware, 1.0)
    assert not joint.confounded


def test_before_the_swap_the_hardware_is_in_the_gain_and_nothing_is_decided(judged):
    verdict, joint = judged[0].verdict, judged[0].joint
    (mixed,) = joint.estimates

    assert (verdict.action, verdict.grade, verdict.flags) == (
        "not_comparable", "none", ("NOT_SWAPPED",),
    )  # fmt: skip
    assert joint.hardware == ()
    assert joint.confounded == {(f"k{K}", "clean")}
    assert holds(mixed, TRUTH / HARDWARE)  # the side that drafts stands on the slower machine


def test_each_pair_gave_each_side_both_streams(readings):
    (crossing,) = readings[1].crossings
    streams = {}
    for block in crossing.blocks:
        streams.setdefault((block.replica, block.pair // 2), []).append(block.classes)

    assert {tuple(sorted(served)) for served in streams.values()} == {(("easy",), ("hard",))}
    assert len(streams) == 4 * PAIRS
    assert crossing.policies == (1, 2)


def test_outputs_of_the_sides_are_compared_and_speculation_left_them_alone(readings):
    (crossing,) = readings[1].crossings

    assert {(one.class_, one.arm, one.state) for one in crossing.outputs} == {
        (name, f"k{K}", "equal") for name in CLIENTS
    }
    assert all(one.compared and one.twins for one in crossing.outputs)


def test_the_gate_says_so_and_clients_that_wait_are_no_open_traffic(readings):
    closed = recommendation(readings[1], now=0, closed_loop=True)
    opened = recommendation(readings[1], now=0)

    assert [one.action for one in closed.assessment.crossovers] == ["keep"]
    assert [one.segment.load for one in closed.assessment.crossovers] == [
        "2-4"
    ]  # three at once, on average
    assert [one.flags for one in opened.assessment.crossovers] == [("SAMPLE_RATIO",)]
    assert closed.moves == ()
