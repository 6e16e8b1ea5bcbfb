"""The bound on a draft length that nobody ran holds at its level, whatever lies beyond."""

import dataclasses

import numpy as np
import pytest
from evaluate.block_rows import Kind, rows

from specscope.evaluate.experiment.objectives import METRICS
from specscope.evaluate.experiment.paired import paired
from specscope.evaluate.statistics.acceptance import survival
from specscope.evaluate.statistics.quantiles import bin_of
from specscope.evaluate.verdict.decide import decide
from specscope.evaluate.verdict.untried import most_tokens, untried

MEAN, SPREAD = 0.7, 0.08  # of acceptance, between blocks


def clusters(random, k, blocks, rounds):
    """At-risk and kept counts of blocks, each with an acceptance of its own."""
    rates = np.clip(random.normal(MEAN, SPREAD, blocks), 0.0, 1.0)
    at_risk, kept = np.zeros((blocks, k), int), np.zeros((blocks, k), int)
    left = np.full(blocks, rounds)
    for j in range(k):
        at_risk[:, j] = left
        left = random.binomial(left, rates)
        kept[:, j] = left
    return at_risk.tolist(), kept.tolist()


def true_survival(k):
    rates = np.clip(np.random.default_rng(0).normal(MEAN, SPREAD, 400_000), 0.0, 1.0)
    return [float((rates**j).mean()) for j in range(1, k + 1)]


@pytest.mark.parametrize(("blocks", "rounds"), [(6, 60), (20, 60), (20, 400)])
@pytest.mark.parametrize("k", [3, 6])
def test_the_bound_covers_what_is_worst_beyond_the_longest_that_ran(blocks, rounds, k):
    """Beyond position 4 everything is kept: the edge of what its survival allows."""
    random = np.random.default_rng(blocks + rounds + k)
    known = true_survival(4)
    truth = 1.0 + sum(known[:k]) + max(0, k - 4) * known[-1]
    found = [survival(*clusters(random, 4, blocks, rounds)) for _ in range(400)]

    covered = np.mean([one.at_most(k) >= truth for one in found])
    points = np.mean(
        [1 + sum(one.survival[:k]) + max(0, k - 4) * one.survival[-1] >= truth for one in found]
    )
    assert covered >= 0.94
    assert points < 0.6  # what estimates alone would do


def test_several_lengths_that_ran_hold_together():
    random = np.random.default_rng(3)
    known = true_survival(4)
    truth = 1.0 + sum(known) + 2 * known[-1]
    covered = [
        most_tokens([(survival(*clusters(random, k, 20, 200)), 1.0) for k in (2, 4)], 6) >= truth
        for _ in range(400)
    ]

    assert np.mean(covered) >= 0.94


def test_a_position_that_was_never_kept_may_be_kept_elsewhere():
    found = survival([[40, 30]] * 10, [[30, 0]] * 10)

    assert found.survival == (0.75, 0.0)
    # A chance of 0.26 leaves ten clusters without one in 5 % of cases.
    assert found.at_most(2) == pytest.approx(1 + 0.75 + 0.75 * (1 - 0.05 ** (1 / 10)))
    assert found.at_most(3) < 3.0


def test_a_shorter_draft_may_meet_easier_text():
    long = survival([[100, 70, 49, 34]] * 30, [[70, 49, 34, 24]] * 30)

    assert most_tokens([(long, 1.0)], 2) == pytest.approx(1 + (0.7 + 0.49) / 0.79)
    assert most_tokens([(long, 1.0)], 1) == pytest.approx(1 + 0.7 / 0.79)
    assert most_tokens([(survival([[10]] * 20, [[9]] * 20), 1.0)], 1) == pytest.approx(1.9)
    assert (
        most_tokens([(survival([[10, 9]] * 20, [[9, 9]] * 20), 1.0)], 1) == 2.0
    )  # no more than k + 1


def test_what_requests_gain_by_smaller_batches_hides_no_length_worth_a_trial():
    def chance(k):
        return sum(0.8**j for j in range(k + 1))

    ran = (0, 2, 6)
    kind = Kind({k: chance(k) for k in ran}, {k: 1.0 + 0.1 * k for k in ran})
    times, parts = rows({"chat": kind}, noise=0.01, drift=0.05)
    seen = [
        dataclasses.replace(
            p,
            tested=tuple(round(p.request_rounds * 0.8**j) for j in range(p.k)),
            kept=tuple(round(p.request_rounds * 0.8 ** (j + 1)) for j in range(p.k)),
        )
        for p in parts
    ]
    # By Little's law a token takes a quarter of the time where the same batch gains 2.5 times.
    timed = [
        dataclasses.replace(
            t, tpot_bins=(bin_of({0: 30.0, 2: 9.0, 6: 7.5}[t.k]),), tpot_counts=(t.requests,),
            last_at=t.first_at + int(2e3 * t.wall_us),
        )
        for t in times
    ]  # fmt: skip

    (verdict,) = verdicts = decide(timed, seen, design="switchback")
    found = untried(paired(timed, seen, "switchback"), verdicts)

    assert verdict.metric == METRICS["latency"]
    assert {one.k: one.worth for one in found}[5] == "worth_exploring"
    assert "below_best" not in {one.worth for one in found}
