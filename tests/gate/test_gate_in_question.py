"""A table that ran as an arm keeps an experiment open while it may still be the best."""

import pytest

from specscope.evaluate.experiment.estimate import Estimate
from specscope.evaluate.verdict.verdict import Action, Verdict
from specscope.gate.in_question import open_line, tables_in_question

ARMS = ("k0", "k3", "mine", "current")


def estimate(arm, baseline, low, high, pairs=40):
    k = int(arm[1:]) if arm[1:].isdigit() else None
    return Estimate(arm, (low * high) ** 0.5, low, high, pairs, 0.95, baseline, k=k)


def verdict(over_k0, over_k3=None):
    between = [estimate("mine", "k3", *over_k3)] if over_k3 else []
    speedups = [estimate("k3", "k0", 1.15, 1.25), estimate("mine", "k0", *over_k0)]
    return Verdict(action=Action.SET_K, speedups=tuple(speedups), between=tuple(between))


@pytest.mark.parametrize(
    ("over_k3", "is_open"),
    [
        ((0.99, 1.06), True),  # looks better, not surely
        ((1.01, 1.06), False),  # surely the best
        ((0.95, 1.03), False),  # looks worse
        ((0.90, 0.98), False),  # surely worse
        ((0.985, 1.018), False),  # a difference that does not matter
    ],
)
def test_a_table_is_in_question_while_it_may_beat_the_best_single_length(over_k3, is_open):
    found = tables_in_question(verdict((1.16, 1.3), over_k3), ARMS)

    assert list(found) == (["mine"] if is_open else [])
    if is_open:
        assert found["mine"].baseline == "k3"


def test_a_contrast_counts_in_either_direction():
    behind = verdict((1.16, 1.3))
    ahead = estimate("k3", "mine", 0.95, 1.005)
    found = tables_in_question(
        Verdict(action=Action.SET_K, speedups=behind.speedups, between=(ahead,)), ARMS
    )

    assert found["mine"].baseline == "k3"
    assert found["mine"].value == pytest.approx(1 / ahead.value)
    assert "40 pairs" in open_line("mine", found["mine"])


def test_a_table_without_pairs_is_in_question_and_no_draft_length_ever_is():
    found = tables_in_question(
        Verdict(action=Action.SET_K, speedups=(estimate("k3", "k0", 0.99, 1.3),)), ARMS
    )

    assert found == {"mine": None}
    assert open_line("mine", None).startswith("mine may still be better")


def test_an_interval_that_is_not_known_yet_leaves_the_table_in_question():
    young = Estimate("mine", 1.2, None, None, 12, 0.95, "k0")

    assert tables_in_question(Verdict(action=Action.SET_K, speedups=(young,)), ARMS) == {
        "mine": young
    }
    assert "12 pairs" in open_line("mine", young)
