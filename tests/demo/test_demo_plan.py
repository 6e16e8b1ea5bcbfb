"""The demonstration's plan: what makes its pairs comparable."""

from collections import Counter, defaultdict

import pytest

from specscope.demo.plan import FULL, LOADS, replicate
from specscope.evaluate.verdict.choice import Rules

ARMS = FULL.arms
PROMPTS = {"json": 40, "prose": 48, "python": 33, "sql": 40}


def pairs(number, seed=1):
    grouped = defaultdict(list)
    for block in replicate(number, PROMPTS, seed=seed, arms=ARMS):
        grouped[block.pair].append(block)
    return grouped


@pytest.mark.parametrize("number", range(5))
def test_a_pair_holds_every_arm_once_with_the_same_requests_and_seeds(number):
    for blocks in pairs(number).values():
        assert sorted(block.k for block in blocks) == sorted(ARMS)
        assert len({(b.label, b.load, b.prompts, b.seeds) for b in blocks}) == 1
        assert len(blocks[0].prompts) == len(blocks[0].seeds) == blocks[0].load.requests


def test_every_class_runs_under_every_load_in_each_replicate():
    seen = {(blocks[0].label, blocks[0].load) for blocks in pairs(3).values()}

    assert seen == {(label, load) for label in PROMPTS for load in LOADS}


def test_no_pair_number_comes_twice():
    numbers = [pair for number in range(20) for pair in pairs(number)]

    assert len(numbers) == len(set(numbers))
    assert min(numbers) == 1


def test_each_arm_comes_first_about_equally_often():
    first = Counter(blocks[0].k for number in range(50) for blocks in pairs(number).values())

    expected = 50 * len(PROMPTS) * len(LOADS) / len(ARMS)
    assert all(abs(count - expected) < 5 * expected**0.5 for count in first.values())


def test_replicates_read_different_prompts_until_all_were_read():
    light = LOADS[0]
    replicates = PROMPTS["python"] // light.requests

    read = [
        prompt
        for number in range(replicates)
        for blocks in pairs(number).values()
        if blocks[0].label == "python" and blocks[0].load == light
        for prompt in blocks[0].prompts
    ]

    assert len(set(read)) == len(read) == replicates * light.requests


def test_the_same_seed_plans_the_same_blocks():
    again = list(replicate(2, PROMPTS, seed=9, arms=ARMS))

    assert list(replicate(2, PROMPTS, seed=9, arms=ARMS)) == again
    assert list(replicate(2, PROMPTS, seed=10, arms=ARMS)) != again


def test_the_full_demonstration_gathers_enough_for_its_own_gate():
    bars = Rules()

    assert FULL.replicates >= bars.min_pairs
    for load in LOADS:
        assert FULL.replicates * load.requests >= bars.min_requests
        # Even if every draft of the longest length were kept whole.
        rounds = load.output_tokens / (max(FULL.arms) + 1)
        assert FULL.replicates * load.requests * rounds >= 0.7 * bars.min_rounds
