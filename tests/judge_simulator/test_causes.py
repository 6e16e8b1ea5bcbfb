"""Causes planted alone are named alone, in any company; ties are told as ties.

`make causes` runs hundreds of experiments for each plant.
"""

from dataclasses import replace

import pytest
from planted_time import Traffic
from plants import SINGLE, TIES, beside, outcome, plant, verdicts_of

PAIRS = 24
WORLDS = 2


def told(one, worlds=WORLDS, pairs=PAIRS, seed=3):
    verdicts = verdicts_of(one, worlds, pairs, seed)
    assert {outcome(one, verdict) for verdict in verdicts} == {"right"}, [
        verdict.cause_odds for verdict in verdicts
    ]
    return verdicts


@pytest.mark.parametrize("name", SINGLE)
def test_a_single_cause_is_named_alone(name):
    told(SINGLE[name])


@pytest.mark.parametrize(
    "name",
    ["low acceptance", "low acceptance, open traffic", "late positions", "draft cost", "idle",
     "compute-bound", "padding"],
)  # fmt: skip
def test_easy_and_hard_traffic_in_the_store_changes_no_cause(name):
    told(beside(SINGLE[name]))


def test_gaps_that_target_only_has_too_are_no_cause():
    told(plant("low_acceptance", hazard=(0.13,) * 8, gap=6.0, card=None))


def test_positions_that_are_kept_a_little_less_each_are_no_collapse():
    for verdict in told(SINGLE["draft cost"]):
        assert "late_positions" not in {r.cause for d in verdict.diagnoses for r in d.repairs}


def test_raggedness_is_named_beside_an_easy_class():
    one = SINGLE["raggedness"]
    easy = Traffic("easy", replace(one.traffic.law, hazard=(0.95,) * 8), one.traffic.lengths)

    told(replace(one, others=(easy,)))


@pytest.mark.parametrize("name", TIES)
def test_two_causes_of_one_size_stand_together(name):
    for verdict in told(TIES[name]):
        odds = [rival.odds for rival in verdict.cause_odds]
        assert verdict.primary is None
        assert max(odds) < 0.9
        assert sum(odds) == pytest.approx(1.0)


def test_a_cause_whose_time_is_not_recorded_is_not_ruled_out():
    one = SINGLE["idle"]
    (verdict,) = verdicts_of(one, 1, PAIRS, 3, without=("idle_us",))

    hidden = {rival.cause for rival in verdict.cause_odds if rival.odds is None}
    assert verdict.primary is None
    assert "idle" in hidden
    assert all(rival.needs for rival in verdict.cause_odds if rival.odds is None)


def test_a_part_that_only_target_only_does_not_record_may_be_all_of_its_time():
    one = SINGLE["idle"]
    (verdict,) = verdicts_of(one, 1, PAIRS, 3, without=("idle_us",), without_in=("k0",))

    assert {r.cause for r in verdict.cause_odds if r.odds is None} == {"idle"}


def test_time_that_is_not_recorded_and_cannot_hide_the_cause_rules_nothing_in():
    one = SINGLE["draft cost"]
    (verdict,) = verdicts_of(one, 1, PAIRS, 3, without=("sample_us",))

    assert verdict.primary == "draft_cost"
    assert "sampling" in {unseen.cause for unseen in verdict.diagnoses[-1].unseen}


def test_acceptance_that_fell_is_held_against_its_own_past():
    law = replace(SINGLE["low acceptance"].traffic.law, hazard=(0.42,) * 8, per_query=0.10)
    now = replace(SINGLE["low acceptance"], traffic=Traffic("x", law))
    healthy = plant("low_acceptance").traffic

    (alone,) = verdicts_of(now, 1, PAIRS, 3)
    (after,) = verdicts_of(now, 1, PAIRS, 3, past=healthy)

    (before_repair,) = [r for r in alone.diagnoses[-1].repairs if r.cause == "low_acceptance"]
    (repair,) = [r for r in after.diagnoses[-1].repairs if r.cause == "low_acceptance"]
    assert before_repair.speedup == pytest.approx(1.0, abs=1e-6)
    assert "past" not in before_repair.numbers
    assert repair.numbers["past"] == pytest.approx(2.7, abs=0.3)
    assert repair.speedup > 1.3
    assert after.primary == "low_acceptance"


def test_a_first_position_kept_half_as_often_as_in_its_own_past_is_a_mismatch():
    law = replace(SINGLE["low acceptance"].traffic.law, hazard=(0.30,) * 8, per_query=0.08)
    now = replace(SINGLE["low acceptance"], traffic=Traffic("x", law))

    (alone,) = verdicts_of(now, 1, PAIRS, 3)
    (after,) = verdicts_of(now, 1, PAIRS, 3, past=plant("low_acceptance").traffic)

    assert "draft_mismatch" not in {repair.cause for repair in alone.diagnoses[-1].repairs}
    assert after.primary == "draft_mismatch"


def test_four_pairs_name_nothing():
    one = SINGLE["draft cost"]

    (few,) = verdicts_of(one, 1, 4, 3)
    (enough,) = verdicts_of(one, 1, 8, 3)

    assert few.primary is None
    assert few.cause_odds == ()
    assert enough.primary == "draft_cost"
