"""Golden values of the statistics, worked out by hand or published."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specscope.evaluate.statistics import acceptance, sequential
from specscope.evaluate.statistics.acceptance import UntriedDraftLength, count_positions, survival
from specscope.evaluate.statistics.ratio import paired_log_ratio, ratio_of_sums


def test_a_ratio_of_sums_with_its_cluster_error():
    found = ratio_of_sums([10, 20, 30, 40], [5, 8, 12, 15])

    low, high = found.interval()
    assert found.value == 2.5
    assert found.se == pytest.approx(0.102062, abs=5e-7)
    assert (high - low) / 2 == pytest.approx(0.324807, abs=1e-6)


def test_a_paired_contrast_of_ratios():
    found = paired_log_ratio((360, 330, 350), (100, 95, 102), (300, 290, 310), (100, 98, 104))

    assert found.delta == pytest.approx(0.161276, abs=5e-7)
    assert found.se == pytest.approx(0.012318, abs=5e-7)
    assert found.interval() == pytest.approx((0.108276, 0.214276), abs=2e-6)
    assert found.ratio == pytest.approx(1.17501, abs=5e-6)
    assert found.scores.sum() == pytest.approx(0, abs=1e-15)


def test_swapping_the_arms_flips_the_sign():
    one = paired_log_ratio((360, 330, 350), (100, 95, 102), (300, 290, 310), (100, 98, 104))
    other = paired_log_ratio((300, 290, 310), (100, 98, 104), (360, 330, 350), (100, 95, 102))

    assert other.delta == -one.delta
    assert other.se == one.se


@pytest.mark.parametrize(
    "columns",
    [
        ([], [], [], []),
        ([1], [1, 2], [1], [1]),
        ([1.0], [0.0], [1.0], [1.0]),
        ([math.nan], [1.0], [1.0], [1.0]),
        ([0.0], [1.0], [1.0], [1.0]),
        ([1.0, 2.0], [1.0, 1.0], [1.0], [1.0]),
    ],
)
def test_columns_without_meaning_are_refused(columns):
    with pytest.raises(ValueError, match=r"\w"):
        paired_log_ratio(*columns)


def test_one_cluster_has_no_error():
    assert ratio_of_sums([3], [2]).interval() is None
    assert paired_log_ratio([3], [2], [1], [1]).p_value() is None


def test_margins_of_the_confidence_sequence():
    assert sequential.tightest_rho2(100, 0.05) == pytest.approx(0.08211968, abs=5e-9)
    assert sequential.tightest_rho2(100, 0.05, exact=False) == pytest.approx(0.07936155, abs=5e-9)
    assert [sequential.margin(t) for t in (25, 100, 400)] == pytest.approx(
        [0.650220, 0.303512, 0.156548], abs=1e-6
    )


def test_a_sequence_is_wider_by_students_t_while_few_pairs_tell_their_spread():
    assert [sequential.reach(t) / sequential.margin(t) for t in (20, 48)] == pytest.approx(
        [1.06789, 1.02642], abs=1e-5
    )
    assert sequential.reach(22, spent=2) / sequential.margin(22) == pytest.approx(1.06789, abs=1e-5)


def test_a_sequence_that_begins_with_its_first_look_is_narrower_there():
    random = np.random.default_rng(5)
    paths = random.normal(size=(4000, 400)).cumsum(axis=1)
    counts = np.arange(1, 401)

    limits = np.array([sequential.margin_from(t, 20) * t for t in counts[19:]])
    crossed = (np.abs(paths[:, 19:]) > limits).any(axis=1).mean()

    assert sequential.margin_from(20, 20) / sequential.margin(20) == pytest.approx(0.83, abs=0.02)
    assert 0.02 < crossed < 0.05
    with pytest.raises(ValueError, match="20 at least"):
        sequential.margin_from(19, 20)


@pytest.mark.parametrize(("cells", "ratio"), [(8, 1.22), (16, 1.29), (32, 1.35), (64, 1.41)])
def test_what_many_cells_cost(cells, ratio):
    widened = sequential.margin(100, 0.05 / cells) / sequential.margin(100, 0.05)

    assert widened == pytest.approx(ratio, abs=0.006)


def test_a_sequence_says_nothing_before_its_first_look():
    random = np.random.default_rng(1)
    x = random.normal(2, 0.02, 40)
    one = np.ones(40)

    early = paired_log_ratio(x[:19], one[:19], one[:19], one[:19])
    later = paired_log_ratio(x, one, one, one)

    assert sequential.interval(early) is None
    assert sequential.p_value(early) == 1.0
    low, high = sequential.interval(later)
    assert low < math.log(2) < high
    assert sequential.p_value(later) < 1e-6


@given(st.floats(-0.2, 0.2), st.integers(0, 1000))
def test_p_value_and_interval_of_a_sequence_agree(shift, seed):
    x = np.exp(np.random.default_rng(seed).normal(shift, 0.2, 30))
    one = np.ones(30)
    contrast = paired_log_ratio(x, one, one, one)
    limits = sequential.interval(contrast)

    if limits is not None:
        excluded = not limits[0] <= 0 <= limits[1]
        assert excluded == (sequential.p_value(contrast) < 0.05)


def test_skewed_scores_postpone_the_first_look():
    x = np.exp(np.random.default_rng(0).exponential(1.0, 25) ** 2)
    one = np.ones(25)

    assert sequential.first_look(paired_log_ratio(x, one, one, one)) == 30


def test_survival_of_a_small_table():
    found = survival([[100, 80, 48]], [[80, 48, 24]])

    assert found.survival == pytest.approx((0.8, 0.48, 0.24))
    assert found.tokens_per_round(3) == pytest.approx(2.52)
    assert found.se_log == (None, None, None)


def test_text_that_ends_inside_a_round_censors_what_lies_behind():
    at_risk, kept = count_positions([(4, 2, False), (4, 4, False), (4, 1, True), (2, 2, False)], 4)

    assert at_risk == [4, 3, 2, 1]
    assert kept == [4, 3, 1, 1]


def test_an_untried_draft_length_is_refused_but_bounded():
    found = survival([[100, 80, 48]], [[80, 48, 24]])

    with pytest.raises(UntriedDraftLength, match="k 5 > k_max_tried 3"):
        found.tokens_per_round(5)
    assert found.at_most(5) == 6.0  # one cluster says nothing of others
    many = survival([[100, 80, 48]] * 30, [[80, 48, 24]] * 30)
    assert many.at_most(5) == pytest.approx(3.0)  # 2.52 + 2 * 0.24
    assert many.at_most(2) == pytest.approx(2.28)


def test_positions_never_at_risk_end_the_curve():
    found = survival([[10, 5, 0]], [[5, 0, 0]])

    assert found.k_tried == 2
    assert found.hazard == (0.5, 0.0, None)
    assert found.survival == (0.5, 0.0)


def test_mixed_draft_lengths_read_right_by_risk_and_low_by_rounds():
    random = np.random.default_rng(0)
    rounds = []
    for k in (3, 8):
        kept = np.cumprod(random.random((100_000, k)) < 0.7, axis=1).sum(axis=1)
        rounds += [(k, int(a), False) for a in kept]

    at_risk, kept_counts = count_positions(rounds, 8)

    assert survival([at_risk], [kept_counts]).survival[3] == pytest.approx(0.7**4, abs=0.005)
    assert kept_counts[3] / len(rounds) == pytest.approx(0.7**4 / 2, abs=0.005)


def test_clustered_error_of_survival_matches_its_spread():
    random = np.random.default_rng(5)
    curves, claimed = [], []
    for _ in range(300):
        risk, kept = [], []
        for p in random.beta(7, 3, size=60):
            runs = np.cumprod(random.random((30, 4)) < p, axis=1).sum(axis=1)
            counts = count_positions([(4, int(a), False) for a in runs], 4)
            risk.append(counts[0])
            kept.append(counts[1])
        found = survival(risk, kept)
        curves.append(math.log(found.survival[3]))
        claimed.append(found.se_log[3])

    assert np.mean(claimed) == pytest.approx(np.std(curves), rel=0.1)


@pytest.mark.parametrize(
    "call",
    [
        lambda: acceptance.positions_at_risk(2, 3, False),
        lambda: survival([[1]], [[2]]),
        lambda: survival([[1]], [[1], [1]]),
        lambda: survival([[1]], [[1]]).accepted(-1),
    ],
)
def test_counts_without_meaning_are_refused(call):
    with pytest.raises(ValueError, match=r"\w"):
        call()
