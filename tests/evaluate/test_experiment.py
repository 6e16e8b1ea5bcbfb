"""Planning, covariates, single-cell arms and the jackknife."""

import dataclasses
import math

import numpy as np
import pytest
from block_rows import Kind, rows

from specscope.evaluate.experiment import contrast
from specscope.evaluate.experiment.checks import twin_check
from specscope.evaluate.experiment.loads import by_segment
from specscope.evaluate.experiment.pairs import pairs_of
from specscope.evaluate.experiment.segments import load_bucket
from specscope.evaluate.statistics import covariates, planning
from specscope.evaluate.statistics.ratio import LogRatio, jackknife, paired_log_ratio, ratio_of_sums
from specscope.evaluate.verdict.choice import Rules
from specscope.evaluate.verdict.decide import decide

COST = {0: 1.0, 4: 1.6}
WIN = Kind({0: 1.0, 4: 3.2}, COST)


def test_pairs_that_a_two_percent_effect_takes():
    def needed(pair_sd, level=0.95):
        scores = np.array([1.0, -1.0]) * pair_sd / 2
        found = LogRatio(0.0, pair_sd / math.sqrt(2), scores)
        return contrast.pairs_needed(found, level, math.expm1(0.02), looked_at_often=True)

    assert needed(0.05) == pytest.approx(63, abs=1)
    assert needed(0.05, 1 - 0.05 / 32) == pytest.approx(109, abs=2)
    assert needed(0.02) == 20  # no look before


def test_hours_to_a_verdict():
    hours = planning.hours_to_verdict(20, replicas=8, block_s=120, share=0.05)

    assert hours == pytest.approx(20 / 6)


def test_blocks_outlast_their_requests():
    quick = planning.plan_blocks(4.0, 12.0)
    slow = planning.plan_blocks(75.0, 225.0)
    heavy = planning.plan_blocks(10.0, 90.0)

    assert (quick.length_s, quick.burn_in_s) == (120, 30)
    assert (slow.length_s, slow.burn_in_s) == (1200, 300)
    assert (heavy.length_s, heavy.burn_in_s) == (360, 90)
    with pytest.raises(ValueError, match="rise"):
        planning.plan_blocks(5.0, 4.0)


@pytest.mark.parametrize(
    ("speedup", "share"), [(3.65, 0.0138), (1.5, 0.03), (1.1, 0.11), (0.9, 1.0)]
)
def test_what_exploration_may_cost(speedup, share):
    assert planning.affordable_share(speedup) == pytest.approx(share, abs=6e-4)


def test_offered_load_explains_noise_without_moving_the_truth():
    random = np.random.default_rng(0)
    plain, adjusted, covered = [], [], 0
    for _ in range(400):
        offered = random.normal(0, 0.3, 30)
        y1 = np.exp(0.2 * offered + random.normal(0, 0.03, 30)) / 1.1
        one = np.ones(30)
        raw = paired_log_ratio(one, y1, one, one)
        better = covariates.adjust(raw, offered)
        plain.append(raw.delta)
        adjusted.append(better.delta)
        low, high = better.interval()
        covered += low < math.log(1.1) < high

    assert np.var(adjusted) < 0.5 * np.var(plain)
    assert 0.91 <= covered / 400 <= 0.98


def test_covariates_that_do_not_vary_change_nothing():
    raw = paired_log_ratio([1, 2, 3, 4, 5], [1, 2, 3, 4, 6], [1, 1, 1, 1, 1], [1, 1, 1, 1, 1])

    assert covariates.adjust(raw, np.zeros(5)) is raw


def test_a_changed_cell_is_compared_with_the_table_in_force_and_both_need_target_only():
    times, _ = rows({"x": WIN})
    names = {"k0": "current", "k4": "current+x"}
    renamed = [dataclasses.replace(t, arm=names[t.arm], classes=("x", "y")) for t in times]

    (verdict,) = decide(renamed, [])

    cell = next(two for two in verdict.between if two.arm == "current+x")
    assert cell.baseline == "current"
    assert cell.low < 2.0 < cell.high
    assert verdict.speedups == ()
    assert verdict.action == "collect_baseline"


def test_twins_agree_unless_something_is_wrong():
    random = np.random.default_rng(1)
    times, _ = rows({"x": WIN}, pairs=40)
    base = [t for t in times if t.arm == "k0"]
    twins = [
        dataclasses.replace(t, arm="k0'", wall_us=t.wall_us * math.exp(random.normal(0, 0.03)))
        for t in base
    ]
    slower = [dataclasses.replace(t, wall_us=1.2 * t.wall_us) for t in twins]

    assert twin_check(pairs_of(base + twins, []), "k0").passed
    assert not twin_check(pairs_of(base + slower, []), "k0").passed
    assert twin_check(pairs_of(base + twins[:10], []), "k0") is None


def test_the_jackknife_agrees_with_the_delta_method():
    random = np.random.default_rng(0)
    x, y = random.uniform(5, 15, 32), random.uniform(2, 4, 32)

    value, error = jackknife(
        list(zip(x, y, strict=True)), lambda g: sum(a for a, _ in g) / sum(b for _, b in g)
    )

    delta = ratio_of_sums(x, y)
    assert value == pytest.approx(delta.value)
    assert error == pytest.approx(delta.se, rel=0.02)
    with pytest.raises(ValueError, match="two groups"):
        jackknife([1.0], sum)


@pytest.mark.parametrize(
    ("requests", "bucket"),
    [(1, "1"), (2, "2-4"), (5, "5-16"), (17, "17-64"), (65, "65-256"), (257, "257+")],
)
def test_load_buckets(requests, bucket):
    assert load_bucket(requests) == bucket


def test_segments_never_hold_the_realised_batch():
    times, parts = rows({"x": WIN})
    busier = [
        dataclasses.replace(t, request_rounds=7 * t.request_rounds) if t.k else t for t in times
    ]

    before = set(by_segment(pairs_of(times, parts), "cohort"))
    after = set(by_segment(pairs_of(busier, parts), "cohort"))

    assert before == after
    assert decide(times, parts, Rules())[0].speedups == decide(busier, parts, Rules())[0].speedups
