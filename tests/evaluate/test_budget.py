"""Verify budgets and trees, against worked examples and search by hand."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specscope.evaluate.costs import closed_forms as cf
from specscope.evaluate.costs.budget import best_budget, tree_speedup, tree_tokens

SURVIVALS = [(0.9, 0.8, 0.5), (0.7, 0.4, 0.2), (0.6, 0.3, 0.1)]


def test_the_best_budget_of_a_worked_example():
    found = best_budget(SURVIVALS, lambda n: 10 + 0.5 * (3 + n))

    assert found.positions == 7
    assert found.tokens_per_ms == pytest.approx(0.4800, abs=6e-5)


def test_a_step_in_the_cost_moves_the_best_budget_below_it():
    found = best_budget(SURVIVALS, lambda n: 10 + 0.5 * (3 + n) + (3 if 3 + n > 8 else 0))

    assert found.positions == 5
    assert found.tokens_per_ms == pytest.approx(0.4643, abs=6e-5)


rows = st.lists(
    st.lists(st.floats(0, 1), min_size=0, max_size=3).map(lambda r: sorted(r, reverse=True)),
    min_size=1,
    max_size=3,
)


@given(rows, st.floats(0.1, 5), st.floats(0.01, 2))
def test_no_choice_of_prefixes_beats_the_best_budget(survivals, fixed, slot):
    found = best_budget(survivals, lambda n: fixed + slot * n)

    for lengths in itertools.product(*(range(len(row) + 1) for row in survivals)):
        tokens = len(survivals) + sum(
            sum(row[:n]) for row, n in zip(survivals, lengths, strict=True)
        )
        assert tokens / (fixed + slot * sum(lengths)) <= found.tokens_per_ms * (1 + 1e-12)


def test_a_chain_is_a_tree_of_one_branch():
    chain = [(0.7,) * depth for depth in range(1, 9)]

    assert tree_tokens(chain) == pytest.approx(cf.tokens_per_round(8, 0.7))
    assert tree_tokens([(0.7,) * depth for depth in range(1, 200)]) == pytest.approx(1 / (1 - 0.7))
    assert tree_speedup(tree_tokens(chain), 8, 1.0, 0.05) == pytest.approx(
        cf.speedup(cf.tokens_per_round(8, 0.7), 0.4, 1.0, 1.0)
    )


def test_published_utilities():
    # Mixture-of-experts: 2.73 tokens at a verify pass of 1.25 steps.
    assert cf.speedup(2.73, 0.0, 1.25, 1.0) == pytest.approx(2.184, abs=6e-4)
    # A chain of three at 41.5 % and 42.9 % accepted.
    assert cf.tokens_per_draft(1000, 3 * 415) == pytest.approx(2.245)
    assert cf.tokens_per_draft(1000, 3 * 429) == pytest.approx(2.287)


@pytest.mark.parametrize(
    "call",
    [
        lambda: best_budget([], lambda n: 1.0),
        lambda: best_budget([(0.5,)], lambda n: 0.0),
        lambda: tree_tokens([(1.5,)]),
        lambda: tree_speedup(2.0, -1, 1.0, 0.1),
    ],
)
def test_arguments_without_meaning_are_refused(call):
    with pytest.raises(ValueError, match=r"\w"):
        call()
