"""Thresholds of a change to one cell, from both sides of each."""

import pytest

from specscope.evaluate.experiment.estimate import Estimate
from specscope.evaluate.verdict.verdict import Action, Confidence, Grade, Verdict
from specscope.gate.places import Place
from specscope.gate.rules import HOUR_NS, GateRules, judge, rest
from specscope.policy.table import Cell, State

RULES = GateRules()
NOW = 10**18


def estimate(arm, low, high, baseline="k0"):
    value = (low * high) ** 0.5
    return Estimate(arm, value, low, high, 40, 0.95, baseline, k=int(arm[1:]), p=None)


def move(action, k, speedups, old_k, between=(), best=(), too_slow=False, **changes):
    verdict = Verdict(
        action=Action(action),
        k=k,
        grade=Grade.MEASURED,
        confidence=Confidence.HIGH,
        speedups=tuple(speedups),
        between=tuple(between),
        best=tuple(best),
        pairs=40,
        **changes,
    )
    place = Place(verdict, Cell(0, "sql"), State("sql", 0, 0, 4), 4.0, 8)
    return judge(place, old_k, RULES, too_slow)


@pytest.mark.parametrize(("low", "rule"), [(1.029, "no_change"), (1.031, "enable")])
def test_speculation_is_switched_on_for_a_gain_of_3_percent_beyond_doubt(low, rule):
    made = move("set_k", 4, [estimate("k4", low, 1.2)], old_k=0)

    assert (made.rule, made.new_k) == (rule, 4 if rule == "enable" else 0)


@pytest.mark.parametrize(("low", "rule"), [(1.029, "no_change"), (1.031, "raise")])
def test_a_draft_is_made_longer_for_as_much(low, rule):
    speedups = [estimate("k2", 1.05, 1.1), estimate("k4", 1.1, 1.3)]

    made = move("set_k", 4, speedups, 2, between=[estimate("k4", low, 1.2, "k2")], best=["k4"])

    assert (made.rule, made.new_k) == (rule, 4 if rule == "raise" else 2)


@pytest.mark.parametrize(
    ("low", "old", "rule"),
    [
        (1.001, (1.0, 1.1), "lower"),
        (0.999, (1.0, 1.1), "no_change"),
        (0.999, (0.8, 0.9), "lower"),  # the draft in force loses to target-only
    ],
)
def test_a_draft_is_shortened_for_any_gain_beyond_doubt(low, old, rule):
    speedups = [estimate("k2", 1.1, 1.3), estimate("k8", *old)]

    made = move("set_k", 2, speedups, 8, between=[estimate("k2", low, 1.2, "k8")], best=["k2"])

    assert (made.rule, made.new_k) == (rule, 2 if rule == "lower" else 8)


@pytest.mark.parametrize(
    ("action", "old", "rule"),
    [
        ("disable", (0.9, 0.95), "disable"),
        ("disable", (0.99, 0.999), "no_change"),  # loses, and by less than matters
        ("disable", (0.975, 0.999), "disable"),
        ("no_difference", (0.9, 0.95), "disable"),
        ("no_difference", (0.985, 1.015), "no_change"),
        ("disable", (0.95, 1.01), "no_change"),
    ],
)
def test_speculation_is_switched_off_for_a_loss_that_matters(action, old, rule):
    made = move(action, 0 if action == "disable" else None, [estimate("k4", *old)], old_k=4)

    assert (made.rule, made.new_k) == (rule, 0 if rule == "disable" else 4)


def test_what_wins_and_is_among_the_best_is_kept():
    speedups = [estimate("k2", 1.1, 1.3), estimate("k4", 1.1, 1.32)]
    between = [estimate("k2", 1.04, 1.2, "k4")]

    assert move("keep", 2, speedups, 4, between, best=["k2", "k4"]).rule == "keep"
    assert move("set_k", 2, speedups, 4, between, best=["k2"]).rule == "lower"


@pytest.mark.parametrize(("old_k", "rule", "new_k"), [(4, "lower", 2), (1, "raise", 2)])
def test_a_draft_that_is_too_slow_for_its_class_needs_no_gain(old_k, rule, new_k):
    speedups = [estimate("k1", 1.0, 1.3), estimate("k2", 1.0, 1.3), estimate("k4", 1.0, 1.3)]

    made = move("set_k", 2, speedups, old_k, too_slow=True)

    assert (made.rule, made.new_k) == (rule, new_k)
    assert move("disable", 0, [estimate("k4", 0.99, 1.2)], 4, too_slow=True).new_k == 0
    assert move("route", None, speedups, 4).new_k == 0


def test_lengths_that_never_met_and_evidence_that_may_change_no_gate_change_nothing():
    speedups = [estimate("k4", 1.1, 1.3)]

    assert move("set_k", 4, speedups, old_k=2).rule == "insufficient"
    assert move("set_k", 4, [*speedups, estimate("k2", 0.9, 1.3)], old_k=2).rule == "insufficient"
    thin = Verdict(action=Action.SET_K, k=4, speedups=tuple(speedups), grade=Grade.MEASURED,
                   confidence=Confidence.LOW)  # fmt: skip
    place = Place(thin, Cell(0, "sql"), State("sql", 0, 0, 4), 4.0, 8)
    assert judge(place, 0, RULES).rule == "insufficient"


@pytest.mark.parametrize(
    ("hours", "pairs", "held"),
    [
        (23.9, 100, True),
        (24.1, 100, True),
        (24 * 6.9, 100, True),
        (24 * 7.1, 19, True),
        (24 * 7.1, 20, False),
    ],
)
def test_a_cell_rests_a_day_changes_once_a_week_and_for_twenty_new_pairs(hours, pairs, held):
    made = move("set_k", 4, [estimate("k4", 1.1, 1.2)], old_k=0)

    after = rest(made, NOW - int(hours * HOUR_NS), pairs, NOW, RULES)

    assert (after.rule, after.new_k) == (("held", 0) if held else ("enable", 4))
    assert rest(made, None, 0, NOW, RULES) == made


def test_the_day_of_rest_holds_where_the_week_does_not():
    made = move("set_k", 4, [estimate("k4", 1.1, 1.2)], old_k=0)
    daily = GateRules(flip_days=0.5)

    rules = [rest(made, NOW - int(h * HOUR_NS), 40, NOW, daily).rule for h in (23.9, 24.1)]

    assert rules == ["held", "enable"]
