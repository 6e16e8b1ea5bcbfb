"""Each limit of the experiment's checks, loads and statistics, from both sides."""

import math
from dataclasses import replace

import numpy as np
import pytest
from block_rows import Kind, rows

from specscope.evaluate.experiment.checks import sample_ratio_p, twin_check
from specscope.evaluate.experiment.loads import Trend, by_segment, trend
from specscope.evaluate.experiment.measures import Measure
from specscope.evaluate.experiment.objectives import objective_for, saturation
from specscope.evaluate.experiment.pairs import Pair, pairs_of
from specscope.evaluate.statistics import randomisation, sequential, serial
from specscope.evaluate.statistics.ratio import LogRatio
from specscope.evaluate.verdict.comparisons import arms_of
from specscope.evaluate.verdict.flags import find_flags
from specscope.evaluate.verdict.verdict import Flag

WIN = Kind({0: 1.0, 4: 3.0}, {0: 10.0, 4: 15.0})


def pairs(count=20, noise=0.0):
    return pairs_of(*rows({"sql": WIN}, pairs=count, noise=noise))


def changed(some, arm="k4", **columns):
    """Pairs with columns of one arm's blocks set, by value or by `block -> value`."""
    return [
        replace(pair, blocks={**pair.blocks, arm: replace(pair.blocks[arm], **{
            name: value(pair.blocks[arm]) if callable(value) else value
            for name, value in columns.items()
        })})
        for pair in some
    ]  # fmt: skip


def test_arms_are_compared_without_twins_and_engines_that_only_a_crossover_runs():
    (pair, *_) = pairs(1)
    names = ["k8", "k0", "k2", "current", "current+sql:k0", "k4'", "clean"]
    ran = Pair(pair.key, dict.fromkeys(names, pair.blocks["k4"]), {}, pair.segment)

    assert arms_of([ran]) == ["k2", "k8", "current", "current+sql:k0"]


@pytest.mark.parametrize(
    ("waiting", "weight"), [(0.05, 0.0), (0.08, 0.2), (0.125, 0.5), (0.2, 1.0), (3.0, 1.0)]
)
def test_an_engine_is_saturated_from_a_twentieth_to_a_fifth_of_requests_waiting(waiting, weight):
    blocks = [b for pair in pairs(2) for b in pair.blocks.values()]
    # Running requests and waiting ones are both summed over rounds.
    queued = [replace(b, request_rounds=100_000, waiting=round(waiting * 100_000)) for b in blocks]

    assert saturation(queued) == pytest.approx(weight)
    expected = {0.0: "latency", 1.0: "throughput"}.get(weight) or pytest.approx(weight)
    assert objective_for("switchback", queued) == expected
    assert objective_for("cohort", queued) == "throughput"


@pytest.mark.parametrize(
    ("busy", "weight"), [(0.3, 0.0), (0.7, 0.0), (0.75, 0.25), (0.8, 0.5), (0.9, 1.0), (1.0, 1.0)]
)
def test_without_a_queue_seven_to_nine_tenths_of_busy_time_tell(busy, weight):
    blocks = [b for pair in pairs(2) for b in pair.blocks.values()]
    spans = [replace(b, first_at=0, last_at=10**9, wall_us=busy * 1e6) for b in blocks]

    assert saturation(spans) == pytest.approx(weight)


@pytest.mark.parametrize(("share", "p"), [(0.05, 2.0**-19), (0.125, 2.0**-9.5), (0.2, 1.0)])
def test_requests_out_of_a_queue_count_for_less_the_longer_it_is(share, p):
    """The growth of the queue is not known here."""
    queued = pairs()
    for arm in ("k0", "k4"):
        queued = changed(queued, arm, waiting=lambda b: round(share * b.request_rounds))
    unequal = changed(queued, requests=12)

    assert sample_ratio_p(unequal, "k4", "k0") == pytest.approx(p, rel=0.05)


@pytest.mark.parametrize(("uneven", "flagged"), [(10, False), (12, True)])
def test_a_router_is_blamed_below_one_in_a_thousand(uneven, flagged):
    some = pairs()
    sent = [*changed(some[:uneven], requests=12), *some[uneven:]]

    assert sample_ratio_p(sent, "k4", "k0") == pytest.approx(2.0 ** (1 - uneven))
    flags = find_flags(sent, ["k4"], "switchback", 0.95)
    assert flags == ({Flag.SAMPLE_RATIO} if flagged else set())


@pytest.mark.parametrize(("rare", "blamed"), [(4, False), (6, True)])
def test_a_kind_of_a_twentieth_of_all_requests_is_held_equal(rare, blamed):
    """What one arm is sent instead is lost in the noise of two frequent kinds."""
    noise = np.tile([20, -20], 10)
    kinds = {"admitted_kinds": ("a", "b", "rare"), "requests": 100}
    sent = [
        changed(
            changed([pair], "k0", admitted_counts=(50, 50, 0), **kinds),
            admitted_counts=(50 + n - rare, 50 - n - rare, 2 * rare),
            **kinds,
        )[0]
        for pair, n in zip(pairs(), noise.tolist(), strict=True)
    ]

    assert sample_ratio_p(sent, "k4", "k0") == (0.0 if blamed else 1.0)


@pytest.mark.parametrize(("count", "told"), [(19, False), (20, True)])
def test_twins_are_compared_from_20_pairs_on(count, told):
    some = pairs(count, noise=0.02)
    twins = [replace(p, blocks={"k0": p.blocks["k0"], "k0'": p.blocks["k0"]}) for p in some]

    found = twin_check(twins, "k0")

    assert (found is not None) is told
    assert found is None or (found.pairs, found.passed) == (20, True)


# --- loads


def along(loads, slope=1.0, turn=10.0):
    """Pairs at loads; the log speedup is `slope` times the log of the load over `turn`."""
    found = []
    for pair, load in zip(pairs(len(loads)), loads, strict=True):
        base, slow = pair.blocks["k0"], math.exp(-slope * math.log(load / turn))
        (one,) = changed([pair], wall_us=base.wall_us * slow)
        found.append(replace(one, offered=float(load)))
    return found


@pytest.mark.parametrize(
    ("loads", "told"),
    [
        (np.linspace(5, 20, 11), False),
        (np.linspace(5, 20, 12), True),
        (np.linspace(10, 14.9, 12), False),
        (np.linspace(10, 15.1, 12), True),
    ],
)
def test_a_line_takes_12_pairs_and_loads_that_differ_by_half(loads, told):
    line = trend([(along(loads), "throughput")], "k4")

    assert (line is not None) is told
    if line:
        assert line.slope == pytest.approx(1.0)
        assert line.crossing == pytest.approx(10.0)


@pytest.mark.parametrize("slope", [1.0, -1.0])
@pytest.mark.parametrize(("light", "parts"), [(5, [24]), (6, [6, 18])])
def test_a_turn_either_way_cuts_a_bucket_with_six_pairs_on_each_side(slope, light, parts):
    loads = [*np.linspace(5, 8, light), *np.linspace(12, 15, 24 - light)]

    found = by_segment(along(loads, slope), "cohort")

    assert sorted(map(len, found.values())) == parts


@pytest.mark.parametrize(
    ("level", "slope", "spread", "turns"),
    [
        (0.0, 1.0, 0.01, True),
        (0.0, -1.0, 0.01, True),
        (1.0, 1.0, 0.01, False),
        (-1.0, -1.0, 0.01, False),
        (0.0, 1.0, 1.0, False),
    ],
)
def test_a_line_turns_if_it_surely_wins_at_one_end_and_loses_at_the_other(
    level, slope, spread, turns
):
    line = Trend("k4", level, slope, spread * np.eye(2), 10.0, 5.0, 20.0, 24)

    assert line.turns is turns


# --- statistics


def of_scores(scores, delta=0.1, own=()):
    scores = np.asarray(scores, dtype=float)
    se = math.sqrt(len(scores) / (len(scores) - 1) * float(scores @ scores))
    return LogRatio(delta, se, scores, own=np.asarray(own, dtype=float))


def test_signs_have_a_tenth_of_the_error_and_the_sequence_nine_tenths():
    uneven = 0.01 * np.tile([1.0, -1.0], 6)
    signs = of_scores(uneven, own=np.ones(12))  # too few pairs for a sequence
    sequence = of_scores(0.0003 * np.tile([1.0, -1.0], 15), 0.01, own=-np.ones(30))

    assert sequential.p_value(signs) == 1.0
    p = randomisation.p_value(signs, looked_at_often=True)
    assert p == pytest.approx(10.0 / randomisation.sign_e_value(np.ones(12)))
    p = randomisation.p_value(sequence, looked_at_often=True)
    assert 2.0**-29 < p < 1.0
    assert p == pytest.approx(sequential.p_value(sequence) / 0.9)


def test_signs_against_the_ratio_of_the_sums_do_not_speak_for_it():
    opposed = of_scores(0.01 * np.tile([1.0, -1.0], 6), -0.1, own=np.ones(12))

    assert randomisation.p_value(opposed, looked_at_often=True) == 1.0


def test_no_order_of_the_arms_is_rarer_than_all_pairs_alike():
    sure = LogRatio(1.0, 0.0, np.zeros(24), own=np.ones(24))

    assert sequential.p_value(sure) == 0.0
    assert randomisation.p_value(sure, looked_at_often=True) == 2.0**-23


def wave(pairs, share, lines=1):
    """Scores of which a share of the variance is half a cosine over the line, the rest signs."""
    slow = math.sqrt(2.0 * share) * np.cos(np.pi * (np.arange(pairs) + 0.5) / pairs)
    return np.tile(slow + math.sqrt(1.0 - share) * (-1.0) ** np.arange(pairs), lines) / pairs


def test_a_memory_counts_up_to_nine_tenths():
    bend = 2.0 * 1.01**2 / 400 * (1.9 / 0.1**2 - 1.0)  # of the inflation, by its estimate's error
    assert serial.inflation([wave(400, 1.0)]) == pytest.approx(1.9 / 0.1 + bend)
    assert serial.inflation([wave(400, 0.0)]) == pytest.approx(1.0, rel=0.1)


def test_waves_count_as_far_as_neighbours_show_a_memory():
    """Of 400 pairs 16 waves are seen. A slow wave of a quarter of the variance makes them 6.25
    times what independent pairs have; weights of neighbours come to 1.4, of which 0.8 is trust."""
    scores = of_scores(wave(400, 0.25))

    wider = serial.widened(scores, [0] * 400)

    assert serial.inflation([scores.scores]) == pytest.approx(1.4, rel=0.02)
    assert (wider.se / scores.se) ** 2 == pytest.approx(1.4 + 0.8 * (6.25 - 1.4), rel=0.03)


def test_traffic_that_may_wander_has_an_error_for_what_neighbours_share():
    some = pairs(40)
    slow = np.exp(0.1 * np.cos(np.pi * (np.arange(40) + 0.5) / 40))
    wandering = [
        changed([pair], wall_us=pair.blocks["k0"].wall_us * s)[0]
        for pair, s in zip(some, slow, strict=True)
    ]

    alone = Measure("throughput").compare(wandering, "k4", "k0").plain
    wide = Measure("throughput", serial=True).compare(wandering, "k4", "k0").plain
    apart = [replace(p, key=(*p.key[:3], f"b{p.key[4]}", 1)) for p in wandering]
    boots = Measure("throughput", serial=True).compare(apart, "k4", "k0").plain

    assert alone.worth is None
    assert (wide.se / alone.se) ** 2 >= 19.0
    assert wide.worth == 1.0
    # Pairs of different starts of the engine are no neighbours: what is left is a bias of 1 / 40.
    assert (boots.se / alone.se) ** 2 == pytest.approx(1.025 / 0.975, rel=0.01)
