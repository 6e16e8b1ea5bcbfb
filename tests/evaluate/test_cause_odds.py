"""Odds of causes: which repair is the largest, in draws of whole pairs."""

import numpy as np
import pytest
from planted_rounds import Cohort, Engine, blocks_of, without

from specscope.evaluate.causes.diagnosis import CauseOdds, standing
from specscope.evaluate.causes.draws import DRAWS, MOST_UNITS, Draws, totals
from specscope.evaluate.causes.odds import ALIKE, odds_of
from specscope.evaluate.verdict.decide import decide
from specscope.evaluate.verdict.fleet import fleet_verdict


def of(gains, at_most=None, lost=0.2):
    """Odds of parts with the same gain in every draw, or with one a draw."""
    rows = np.array([np.broadcast_to(one, 101) for one in gains], dtype=float)
    most = rows if at_most is None else np.array([np.broadcast_to(m, 101) for m in at_most])
    return odds_of(rows, most, np.full(101, lost))


def test_repairs_within_two_percent_share_the_odds():
    assert of([0.5, 0.5 - 0.9 * ALIKE, 0.1]).odds == pytest.approx([0.5, 0.5, 0.0])
    assert of([0.5, 0.5 - 1.1 * ALIKE, 0.1]).odds == pytest.approx([1.0, 0.0, 0.0])


def test_the_odds_are_the_share_of_draws_and_leave_out_the_evidence_as_it_came():
    first = np.array([9.0, *[0.5] * 75, *[0.3] * 25])

    assert of([first, 0.4]).odds == pytest.approx([0.75, 0.25])


@pytest.mark.parametrize(
    ("odds", "names"),
    [
        ([0.06, 0.94], ["b"]),
        ([0.90, 0.10], ["a"]),
        ([0.11, 0.89], ["b", "a"]),
        ([0.94, None], ["a", "b"]),
        ([1.0], ["a"]),
        ([], []),
    ],
)
def test_a_cause_stands_alone_from_nine_draws_of_ten_and_beside_no_open_one(odds, names):
    rivals = [CauseOdds(name, one, 1.1) for name, one in zip("ab", odds, strict=False)]

    assert [one.cause for one in standing(rivals)] == names


def test_no_single_fix_has_odds_too():
    found = of([0.1, 0.05], lost=0.2)

    assert found.none == 1.0
    assert found.odds == pytest.approx([0.0, 0.0])
    assert of([0.2 - 0.9 * ALIKE, 0.05], lost=0.2).none == 0.0


def test_draws_in_which_the_arm_does_not_lose_tell_nothing():
    gains = np.array([[0.5] * 101, [0.4] * 101])
    lost = np.array([0.1, *[0.1] * 50, *[-0.1] * 50])

    assert odds_of(gains, gains, lost).odds == pytest.approx([1.0, 0.0])
    assert odds_of(gains, gains, np.full(101, -0.1)).odds == pytest.approx([0.0, 0.0])


@pytest.mark.parametrize(("most", "open_"), [(0.6, True), (0.47, False), (0.5, True)])
def test_a_part_of_unknown_reference_is_open_if_it_may_be_the_largest(most, open_):
    assert of([0.5, 0.0], [0.5, most]).open_ == (False, open_)


def test_an_unknown_part_is_open_if_it_may_pay_where_nothing_else_does():
    assert of([0.1, 0.0], [0.1, 0.3], lost=0.2).open_ == (False, True)
    assert of([0.1, 0.0], [0.1, 0.15], lost=0.2).open_ == (False, False)


@pytest.mark.parametrize("pairs", [3, MOST_UNITS, 2 * MOST_UNITS + 51])
def test_the_first_draw_is_the_evidence_as_it_came_however_many_pairs_there_are(pairs):
    rows = np.random.default_rng(1).random((pairs, 2))
    draws = Draws(pairs)
    sums = draws.sums(rows)

    assert len(draws) == len(sums) == DRAWS + 1
    assert sums[0] == pytest.approx(rows.sum(axis=0))
    # The mean of a bootstrap is the sample's, and its spread that of independent pairs.
    assert sums[1:].mean(axis=0) == pytest.approx(rows.sum(axis=0), rel=0.1)
    assert sums[1:].std(axis=0) == pytest.approx(rows.std(axis=0) * pairs**0.5, rel=0.35)


def test_a_column_that_one_block_does_not_know_is_unknown_and_a_missing_block_counts_nothing():
    times, _ = blocks_of(Engine(), Cohort(), ks=(4,), pairs=3)
    (times[1],) = without(times[1:2], "idle_us")

    found = totals(Draws(3), [times[0], times[1], None])

    assert found.idle_us is None
    assert found.emitted[0] == times[0].emitted + times[1].emitted


def test_pairs_are_drawn_whole_so_that_their_drift_cancels():
    # Blocks drift by 10 % from pair to pair and differ by 1 % within one.
    (verdict,) = decide(*blocks_of(Engine(draft_ms=0.9), Cohort(), pairs=20))

    (repair,) = [r for r in verdict.diagnoses[0].repairs if r.cause == "draft_cost"]
    assert repair.low <= repair.speedup <= repair.high
    assert 0.001 < repair.high / repair.low - 1.0 < 0.02


def test_rivals_are_what_would_turn_a_loss_together():
    engine = Engine(draft_ms=0.45, idle_ms=1.3)
    (verdict,) = decide(*blocks_of(engine, Cohort()))

    assert {one.cause for one in verdict.cause_odds} == {"draft_cost", "idle"}
    (change,) = fleet_verdict([verdict]).would_change
    assert set(change["causes"]) == {"draft_cost", "idle"}
