"""One traffic stays one segment, also where chance puts its pairs on both sides of an edge."""

import dataclasses
import math
import random
from collections import Counter

import numpy as np
import pytest
from block_rows import Kind, block, rows
from block_rows import part as part_of

from specscope.evaluate.experiment.loads import by_segment
from specscope.evaluate.experiment.pairs import pairs_of
from specscope.evaluate.verdict.decide import decide

WIN = Kind({0: 1.0, 4: 2.5}, {0: 1.0, 4: 1.6})


def open_traffic(rate, *, pairs=40, seed=0, burst=0.0, short=None):
    """Blocks that admit as many requests as arrive; `short` is the share of outputs up to 16."""
    drawn = np.random.default_rng(seed)
    times, parts = rows({"chat": WIN}, pairs=pairs, seed=seed)
    times = [
        dataclasses.replace(t, requests=int(drawn.poisson(rate * np.exp(drawn.normal(0, burst)))))
        for t in times
    ]
    if short is None:
        return times, parts
    split = []
    for part in parts:
        few = int(drawn.binomial(40, short)) / 40
        for bucket, share in (("1-16", few), ("17-64", 1 - few)):
            rounds = round(part.request_rounds * share)
            split.append(dataclasses.replace(part, output_bucket=bucket, request_rounds=rounds))
    return times, split


def sizes(times, parts):
    return Counter(
        {s: len(found) for s, found in by_segment(pairs_of(times, parts), "cohort").items()}
    )


@pytest.mark.parametrize(("rate", "burst"), [(62.0, 0.0), (65.0, 0.0), (60.0, 0.2), (16.5, 0.0)])
def test_traffic_at_an_edge_of_load_is_one_segment(rate, burst):
    apart = 0
    for seed in range(20):
        times, parts = open_traffic(rate, seed=seed, burst=burst)
        own = Counter(t.requests > (16 if rate < 20 else 64) for t in times)
        assert min(own.values()) > 5  # chance does put blocks on both sides
        found = sizes(times, parts)
        apart += sum(found.values()) - max(found.values())

    assert apart <= 0.05 * 20 * 40


def test_loads_that_truly_differ_stay_apart():
    low, parts = open_traffic(30.0, seed=1)
    high, _ = open_traffic(120.0, seed=2)
    high = [dataclasses.replace(t, pair=t.pair + 1000) for t in high]

    found = sizes([*low, *high], parts)

    assert {segment.load: n for (_, segment), n in found.items()} == {"17-64": 40, "65-256": 40}


def test_cohorts_on_both_sides_of_an_edge_are_as_many_as_the_driver_made():
    four, _ = rows({"chat": WIN}, requests=4, pairs=30)
    five, _ = rows({"chat": WIN}, requests=5, pairs=20)
    five = [dataclasses.replace(t, pair=t.pair + 1000) for t in five]

    found = sizes([*four, *five], [])

    assert {segment.load: n for (_, segment), n in found.items()} == {"2-4": 30, "5-16": 20}


@pytest.mark.parametrize(("short", "bucket"), [(0.93, "1-16"), (0.86, None), (0.5, None)])
def test_outputs_on_both_sides_of_an_edge_are_one_segment(short, bucket):
    apart, most = 0, Counter()
    for seed in range(20):
        found = sizes(*open_traffic(100.0, seed=seed, short=short))
        (_, segment), count = found.most_common(1)[0]
        most[segment.output] += 1
        apart += sum(found.values()) - count

    assert most.most_common(1)[0][0] == bucket
    assert apart <= 0.08 * 20 * 40


def test_segments_depend_on_the_set_of_rows_alone():
    times, parts = open_traffic(63.0, seed=3, short=0.9)
    whole = decide(times, parts, None, "switchback")

    shuffled = [*times, *times], [*parts, *parts]
    for given in shuffled:
        random.Random(4).shuffle(given)
    halves = []
    for t in times:
        part = t.requests // 2
        one = dataclasses.replace(t, requests=part, wall_us=t.wall_us / 2, emitted=t.emitted // 2)
        rest = {"requests": t.requests - part, "emitted": t.emitted - t.emitted // 2}
        halves += [one, dataclasses.replace(t, wall_us=t.wall_us / 2, **rest)]

    assert decide(*shuffled, None, "switchback") == whole
    assert [v.segment for v in decide(halves, parts, None, "switchback")] == [
        v.segment for v in whole
    ]


def test_an_arm_that_takes_longer_changes_no_segment():
    times, parts = open_traffic(64.0, seed=5, short=0.9)
    slower = [dataclasses.replace(t, wall_us=9 * t.wall_us) if t.k else t for t in times]

    assert sizes(times, parts) == sizes(slower, parts)


def test_a_bucket_in_which_an_effect_turns_is_cut_at_the_crossing():
    drawn = np.random.default_rng(0)
    kind = Kind({0: 1.0, 4: 2.0}, {0: 1.0, 4: 2.0})
    times, parts = [], []
    for pair in range(1, 41):
        requests = int(drawn.integers(18, 60))
        effect = 0.5 * math.log(33 / requests)
        for k in (0, 4):
            slow = math.exp(drawn.normal(0, 0.01) - effect * (k > 0))
            times.append(block("sql", k, kind, pair, slow, requests, 1000))
            parts.append(part_of(times[-1], "sql"))

    grouped = by_segment(pairs_of(times, parts), "cohort")

    light, heavy = sorted(grouped, key=lambda key: float(key[1].load.split("-")[0]))
    cut = float(light[1].load.split("-")[1])
    assert cut == pytest.approx(33, rel=0.05)
    assert max(pair.offered for pair in grouped[light]) <= cut
    assert min(pair.offered for pair in grouped[heavy]) > cut
    assert sum(map(len, grouped.values())) == 40
