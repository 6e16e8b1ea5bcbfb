"""Two sides whose traffic a router swaps, in a simulation with a known truth."""

import math

import numpy as np
import pytest

from specscope.evaluate.experiment.blocks import BlockTime, LeftOut
from specscope.evaluate.experiment.crossover import crossover, deploys_of, swap_pairs

SIDES = {"r0": "left", "r1": "right"}
RATE = {"clean": 0.0, "k0": math.log(0.9), "k4": math.log(1.3)}  # log speed of configurations
TRUTH = {
    ("k4", "clean"): 1.3, ("k0", "clean"): 0.9, ("k4", "k0"): 1.3 / 0.9,
}  # fmt: skip


def blocks(deploys, pairs=20, seed=0, hardware=0.1, streams=0.3, drift=0.2, noise=0.03, rate=RATE):
    """Blocks of both sides over some deploys, each (left, right): what they ran.

    hardware: log speed of left over right; streams: log cost of a token of stream a over one of
    b; drift: sd of the log slowness of a time; noise: of a block.
    """
    random = np.random.default_rng(seed)
    made = []
    for deploy, arms in enumerate(deploys):
        for pair in range(deploy * pairs, (deploy + 1) * pairs):
            swapped = int(random.integers(2))
            for half in (0, 1):
                shared = random.normal(0, drift)
                for side, arm in enumerate(arms):
                    stream = (half + swapped + side) % 2
                    slow = shared + random.normal(0, noise) + streams * (stream == 0)
                    speed = rate[arm] + hardware * (side == 0) - slow
                    made.append(block(arm, side, 2 * pair + half, math.exp(speed), random))
    return made


def block(arm, side, number, speed, random):
    tokens = int(20_000 * math.exp(random.normal(0, 0.1)))
    return BlockTime(
        epoch=f"e-{arm}", policy=5, replica=f"r{side}", boot=f"b-{side}-{arm}", pair=number,
        arm=arm, requests=200, rounds=1000, request_rounds=8000, classes=("sql",), k=0,
        wall_us=1e4 * tokens / speed, emitted=tokens,
    )  # fmt: skip


def found(made, **kwargs):
    pairs, left_out = swap_pairs(made, SIDES)
    assert left_out == {}
    return crossover(deploys_of(pairs, "throughput"), **kwargs)


SWAPPED = [("clean", "k4"), ("k4", "clean")]
THREE = [("clean", "k4"), ("k4", "k0"), ("k0", "clean")]


def test_streams_and_time_cancel_and_a_swap_takes_the_hardware_out():
    one = found(blocks(SWAPPED, noise=0.0, drift=0.5, streams=1.0, hardware=0.3, pairs=400))

    assert one.of("k4", "clean").value == pytest.approx(1.3, rel=0.03)
    assert one.hardware[0].value == pytest.approx(math.exp(0.3), rel=0.03)
    assert one.confounded == frozenset()


def test_one_deploy_alone_holds_the_hardware_and_says_so():
    one = found(blocks([("k4", "clean")], noise=0.001, drift=0.0, streams=0.0, hardware=0.3))

    assert one.hardware == ()
    assert one.confounded == {("k4", "clean")}
    assert one.of("k4", "clean").value == pytest.approx(1.3 * math.exp(0.3), rel=0.02)


def test_two_sides_alike_tell_the_hardware_for_the_deploy_that_differs():
    one = found(blocks([("clean", "clean"), ("k4", "clean")], noise=0.001, drift=0.0, streams=0.0))

    assert one.confounded == frozenset()
    assert one.of("k4", "clean").value == pytest.approx(1.3, rel=0.02)


def test_what_shares_a_side_is_compared_without_a_swap():
    one = found(blocks([("k4", "clean"), ("k4", "k0")], noise=0.001, drift=0.0, streams=0.0))

    assert ("k0", "clean") not in one.confounded
    assert ("k4", "clean") in one.confounded
    assert one.of("k0", "clean").value == pytest.approx(0.9, rel=0.02)


@pytest.mark.parametrize("deploys", [SWAPPED, [*THREE, ("k4", "clean")]], ids=["two", "three"])
def test_the_interval_covers_the_truth(deploys):
    hits = dict.fromkeys(TRUTH, 0)
    for seed in range(200):
        one = found(blocks(deploys, pairs=12, seed=seed))
        for pair, truth in TRUTH.items():
            if (estimate := one.of(*pair)) is not None:
                hits[pair] += estimate.low <= truth <= estimate.high

    told = {pair: count / 200 for pair, count in hits.items() if count}
    assert len(told) == (1 if deploys is SWAPPED else 3)
    assert all(0.92 <= share <= 0.985 for share in told.values()), told


def test_looking_after_every_pair_is_rarely_wrong():
    wrong = 0
    for seed in range(60):
        made = blocks(SWAPPED, pairs=60, seed=seed, rate=dict.fromkeys(RATE, 0.0))
        pairs, _ = swap_pairs(made, SIDES)
        first, second = pairs[:60], pairs[60:]
        for count in range(20, 61, 8):
            looks = deploys_of([*first[:count], *second[:count]], "throughput")
            one = crossover(looks, looked_at_often=True).of("k4", "clean")
            if one.low is not None and (one.wins or one.loses):
                wrong += 1
                break

    assert wrong <= 0.05 * 60


def test_a_sequential_look_too_early_has_no_interval():
    one = found(blocks(SWAPPED, pairs=9), looked_at_often=True)

    assert (one.of("k4", "clean").low, one.of("k4", "clean").high) == (None, None)


def test_a_pair_that_is_not_whole_is_left_out_with_its_reason():
    made = blocks(SWAPPED, pairs=6)
    late = [b for b in made if not (b.pair == 3 and b.replica == "r1")]
    odd = [
        BlockTime(**{**_plain(b), "arm": "k0"}) if (b.pair, b.replica) == (4, "r0") else b
        for b in late
    ]
    void = [
        BlockTime(**{**_plain(b), "void": LeftOut.GUARDRAIL}) if b.pair == 7 else b for b in odd
    ]

    pairs, left_out = swap_pairs(void, SIDES)

    assert len(pairs) == 9
    assert left_out == {
        LeftOut.ONE_STREAM: 1,
        LeftOut.TWO_CONFIGURATIONS: 1,
        LeftOut.GUARDRAIL: 1,
    }


@pytest.mark.parametrize("wall_us", [None, 0.0, 1e-9, float("nan"), float("inf")])
def test_a_block_whose_time_is_no_time_leaves_its_pair_out(wall_us):
    made = [
        BlockTime(**{**_plain(b), "wall_us": wall_us}) if (b.pair, b.replica) == (4, "r0") else b
        for b in blocks(SWAPPED, pairs=6)
    ]

    pairs, left_out = swap_pairs(made, SIDES)

    assert len(deploys_of(pairs, "throughput")) == 2
    assert left_out == {LeftOut.NOT_MEASURED: 1}


def _plain(block):
    return {name: getattr(block, name) for name in BlockTime.__dataclass_fields__}


def test_order_of_rows_and_rows_sent_twice_change_nothing():
    made = blocks(THREE)
    mixed = [made[i] for i in np.random.default_rng(1).permutation(len(made))]

    assert found(made).estimates == found([*mixed, *mixed[:30]]).estimates


def test_replicas_of_a_side_are_added_up():
    made = blocks(SWAPPED)
    twins = [
        BlockTime(**{**_plain(b), "replica": b.replica + "x"}) for b in made if b.replica == "r0"
    ]
    sides = {**SIDES, "r0x": "left"}

    pairs, left_out = swap_pairs([*made, *twins], sides)
    one = crossover(deploys_of(pairs, "throughput"))

    assert left_out == {}
    assert one.of("k4", "clean").value == pytest.approx(found(made).of("k4", "clean").value)


def test_nothing_and_single_pairs_give_nothing():
    assert found([]).estimates == ()
    assert found(blocks(SWAPPED, pairs=1)).estimates == ()


# --- three sides ---------------------------------------------------------------------------

THREE_SIDES = {"r0": "left", "r1": "right", "r2": "third"}
ROTATED = [("clean", "a", "b"), ("a", "b", "clean"), ("b", "clean", "a")]
SPEEDS = {"clean": 0.0, "a": math.log(1.2), "b": math.log(1.3)}
MACHINES = (0.1, 0.0, -0.15)  # log speed of the sides' hardware


def three(pairs, seed=0, noise=0.03, deploys=ROTATED):
    """Blocks of three sides: each pair swaps the streams of two, and the third keeps its own."""
    random = np.random.default_rng(seed)
    made = []
    for deploy, arms in enumerate(deploys):
        for pair in range(deploy * pairs, (deploy + 1) * pairs):
            one, other = ((0, 1), (0, 2), (1, 2))[pair % 3]
            first = int(random.integers(2))
            for half in (0, 1):
                streams = [0, 1, 2]
                if half ^ first:
                    streams[one], streams[other] = other, one
                shared = random.normal(0, 0.2)
                for side, arm in enumerate(arms):
                    slow = shared + random.normal(0, noise) + 0.3 * streams[side]
                    speed = SPEEDS[arm] + MACHINES[side] - slow
                    made.append(block(arm, side, 2 * pair + half, math.exp(speed), random))
    return made


def test_three_sides_tell_each_two_configurations_and_each_machine_apart():
    pairs, left_out = swap_pairs(three(60), THREE_SIDES)
    one = crossover(deploys_of(pairs, "throughput"))

    assert left_out == {}
    assert [pair.sides for pair in pairs[:3]] == [
        ("left", "right"), ("left", "third"), ("right", "third"),
    ]  # fmt: skip
    assert one.confounded == frozenset()
    for arm, baseline in (("a", "clean"), ("b", "clean"), ("b", "a")):
        truth = math.exp(SPEEDS[arm] - SPEEDS[baseline])
        found_ = one.of(arm, baseline)
        assert found_.low < truth < found_.high
        assert found_.wins
    for side in one.hardware:
        one_, other = (("left", "right", "third").index(n) for n in (side.arm, side.baseline))
        assert side.low < math.exp(MACHINES[one_] - MACHINES[other]) < side.high
    assert len(one.hardware) == 3


def test_three_sides_before_they_were_exchanged_hold_the_hardware():
    pairs, _ = swap_pairs(three(30, deploys=ROTATED[:1]), THREE_SIDES)
    one = crossover(deploys_of(pairs, "throughput"))

    assert one.confounded == {("a", "clean"), ("b", "clean"), ("b", "a")}
    assert one.hardware == ()


def test_intervals_of_three_sides_hold_the_truth_as_often_as_they_say():
    held = []
    for seed in range(120):
        pairs, _ = swap_pairs(three(12, seed, noise=0.05), THREE_SIDES)
        one = crossover(deploys_of(pairs, "throughput"))
        for arm, baseline in (("a", "clean"), ("b", "clean"), ("b", "a")):
            truth = math.exp(SPEEDS[arm] - SPEEDS[baseline])
            held.append(one.of(arm, baseline).low < truth < one.of(arm, baseline).high)

    assert 0.92 <= np.mean(held) <= 0.98
