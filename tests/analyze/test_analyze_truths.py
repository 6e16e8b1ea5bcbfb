"""Two thousand tables around known truths: no false verdict, no false figure, few refusals."""

import pytest
from table_campaign import answer_of, judged
from tables_of_truth import make
from truth_check import faults


@pytest.mark.parametrize("first", range(0, 2000, 250))
def test_no_table_gets_a_false_answer(first):
    false, counts = judged(range(first, first + 250))

    assert false == []
    assert counts["decided"] > 0.85 * counts["decidable"]


def test_the_check_finds_a_false_answer():
    """The truth of one table is held against the answer to another."""
    seeds = range(40)
    tables = [make(seed) for seed in seeds]
    answers = [answer_of(truth.text, truth.name) for truth in tables]

    assert sum(bool(faults(truth, answers[i - 1])) for i, truth in enumerate(tables)) > 15
