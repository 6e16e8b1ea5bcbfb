"""Traffic that arms did not share, and queues that they did: in simulated experiments."""

from dataclasses import replace

import numpy as np
import pytest
from block_records import rows
from planted import EASY, HARD, LATENCY, PARTLY_SATURATED, bursts_of_a_day, steady, wandering

from specscope.evaluate.experiment.backlog import find_backlog
from specscope.evaluate.experiment.checks import SRM_LEVEL, sample_ratio_p
from specscope.evaluate.experiment.pairs import pairs_of
from specscope.evaluate.verdict.choice import Rules
from specscope.evaluate.verdict.decide import decide

OFTEN = Rules(looked_at_often=True)
MIXED = replace(
    LATENCY,
    kinds=(EASY, HARD),
    rate=bursts_of_a_day(12.0),
    share=wandering(0.8, 0.5),
    slots=48,
    pairs=40,
)


def worlds(scenario, count, seed=0):
    recorded = scenario.experiment(count, seed)
    return [rows(recorded, world, scenario.kinds) for world in range(count)]


def test_a_router_that_is_blind_is_rarely_blamed_however_bursty_the_traffic_is():
    blamed = 0
    for blocks, parts in worlds(MIXED, 40):
        pairs = pairs_of(blocks, parts, "switchback")
        looks = (pairs[:count] for count in range(1, 41, 3))
        blamed += any(sample_ratio_p(seen, "k4", "k0", True) < SRM_LEVEL for seen in looks)

    assert blamed <= 1


def test_a_router_that_sends_easy_requests_to_one_arm_is_found():
    unfair = replace(MIXED, rate=steady(12.0), share=None, seen={4: (0.8, 0.2), 0: (0.4, 0.6)})
    for blocks, parts in worlds(unfair, 3):
        for verdict in decide(blocks, parts, OFTEN, design="switchback"):
            assert (verdict.action, verdict.flags) == ("not_comparable", ("SAMPLE_RATIO",))


def test_half_again_as_many_requests_to_one_arm_are_found_under_a_queue():
    unfair = replace(PARTLY_SATURATED, pairs=24, more={4: 1.5})
    for blocks, parts in worlds(unfair, 2):
        assert sample_ratio_p(pairs_of(blocks, parts, "switchback"), "k4", "k0") < SRM_LEVEL


def test_one_pair_blames_nobody():
    (blocks, parts), *_ = worlds(replace(LATENCY, pairs=1), 1)
    uneven = [replace(b, requests=60 if b.arm == "k0" else 104) for b in blocks]

    assert sample_ratio_p(pairs_of(uneven, parts, "switchback"), "k4", "k0") == 1.0


def test_a_queue_that_only_target_only_builds_is_said_with_the_ratio_of_capacities():
    for blocks, parts in worlds(replace(PARTLY_SATURATED, pairs=24), 3):
        (verdict,) = decide(blocks, parts, OFTEN, design="switchback")
        reason = next(one for one in verdict.reasons if one.code == "backlog")
        assert verdict.flags == ()
        assert reason["share"] > 0.5
        assert 0.9 < reason["capacity_low"] < reason["capacity"] < 1.59  # the truth, from below


@pytest.mark.parametrize("rate", [12.0, 60.0])
def test_arms_that_both_keep_up_or_both_queue_share_no_backlog(rate):
    scenario = replace(LATENCY, rate=steady(rate), slots=24, pairs=12)
    for blocks, parts in worlds(scenario, 2):
        assert find_backlog(pairs_of(blocks, parts, "switchback")[2:], "k4") is None


def test_a_simulated_world_is_of_its_seed():
    one, two = (LATENCY.experiment(2, 3, pairs=2) for _ in range(2))

    assert all(np.array_equal(one.sums[name], two.sums[name]) for name in one.sums)
