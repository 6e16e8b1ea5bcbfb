"""A small campaign of `make coverage`, and that it would see intervals that are wrong."""

from dataclasses import replace

import numpy as np
import pytest
from counted import Count, Kept, estimates, experiments, limits, long_truth, look, lowest
from planted import CLOSED, LATENCY, SCENARIOS

SMALL = replace(CLOSED, pairs=30)


@pytest.fixture(scope="module")
def truth():
    return long_truth(SMALL, worlds=50)


@pytest.fixture(scope="module")
def worlds():
    return experiments(SMALL, 130, seed=5)


def test_intervals_and_sequences_hold_the_truth(truth, worlds):
    found = look(worlds, SMALL, truth)

    assert found.failures(SMALL) == []
    assert found.given == found.runs == 130
    assert abs(found.errors / found.given) < 0.003


def half_as_wide(pairs, scenario, often):
    one = estimates(pairs, scenario, often)
    if one is None or one.low is None:
        return one
    return replace(
        one, low=one.value * (one.low / one.value) ** 0.5, high=(one.value * one.high) ** 0.5
    )


def never_a_sequence(pairs, scenario, often):
    return estimates(pairs, scenario, False)


def twice_as_wide(pairs, scenario, often):
    one = estimates(pairs, scenario, often)
    if one is None or one.low is None:
        return one
    return replace(one, low=one.low**2 / one.value, high=one.high**2 / one.value)


@pytest.mark.parametrize("broken", [half_as_wide, never_a_sequence, twice_as_wide])
def test_a_broken_interval_fails_the_campaign(truth, worlds, broken):
    assert look(worlds, SMALL, truth, judge=broken).failures(SMALL)


def test_an_interval_that_is_never_shown_fails_the_campaign(truth, worlds):
    assert look(worlds[:2], SMALL, truth, judge=lambda *_: None).failures(SMALL)


def test_the_truth_of_the_traffic_that_ran_is_counted_beside_the_long_run(worlds):
    near = look(worlds, SMALL, 0.0, own=np.full(130, 10.0))

    assert (near.held, near.ran, near.ran_of) == (0, 0, 130)
    assert len(near.failures(SMALL)) == 3


def test_counts_are_kept_for_the_same_code_and_scenario_only(tmp_path):
    kept = Kept(tmp_path / "kept.jsonl")
    kept.keep(LATENCY, None, 0.5)
    kept.keep(LATENCY, 7, Count(runs=100, given=90, held=85))
    kept.keep(LATENCY, 8, Count(runs=100, given=95, held=90))

    later = Kept(kept.path)
    other = Kept(kept.path)
    other.code = "another"
    changed = replace(LATENCY, pairs=20)
    assert (later.truth(LATENCY), later.seeds(LATENCY)) == (0.5, {7, 8})
    assert later.total(LATENCY) == Count(runs=200, given=185, held=175)
    assert (later.truth(changed), later.seeds(changed)) == (None, set())
    other.keep(LATENCY, 9, Count(runs=1))
    assert Kept(kept.path).seeds(LATENCY) == {7, 8}


def test_limits_of_shares_are_exact():
    assert limits(0, 10) == pytest.approx((0.0, 0.3085), abs=1e-4)
    assert limits(1900, 2000) == pytest.approx((0.9395, 0.9592), abs=1e-4)
    assert lowest(1900, 2000) == pytest.approx(0.9412, abs=2e-4)
    assert (limits(0, 0), lowest(0, 5)) == ((0.0, 1.0), 0.0)


def test_scenarios_have_names_and_plans_of_their_own():
    assert len({one.name for one in SCENARIOS}) == len({one.digest for one in SCENARIOS})
    assert len({one.digest for one in SCENARIOS}) == len(SCENARIOS)
