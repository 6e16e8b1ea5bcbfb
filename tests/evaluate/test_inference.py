"""Quantiles, multiplicity, standardisation, the step model and losslessness."""

import math

import numpy as np
import pytest
from evaluate.theory import tokens_per_round
from hypothesis import given
from hypothesis import strategies as st

from specscope.evaluate.costs import steptime
from specscope.evaluate.outputs import copies as outputs
from specscope.evaluate.outputs import lossless
from specscope.evaluate.statistics import multiplicity, quantiles
from specscope.evaluate.verdict import strata

# --- quantiles


@pytest.mark.parametrize(
    ("value", "index", "middle"),
    [(10, 116, 10.0747), (12.34, 126, 12.3053), (250, 277, 252.178)],
)
def test_bins_of_a_log_histogram(value, index, middle):
    assert quantiles.bin_of(value) == index
    assert quantiles.value_of(index) == pytest.approx(middle, abs=6e-4)


@given(st.floats(1e-3, 1e6))
def test_a_bin_knows_its_value_to_one_percent(value):
    assert quantiles.value_of(quantiles.bin_of(value)) == pytest.approx(value, rel=0.01 + 1e-9)


@given(st.lists(st.floats(0.01, 1e4), min_size=1, max_size=80), st.floats(0.01, 1.0))
def test_a_quantile_is_the_sorted_value_within_the_bin(values, q):
    histogram = quantiles.merge([{quantiles.bin_of(v): 1} for v in values])
    exact = sorted(values)[max(0, math.ceil(q * len(values) - 1e-9) - 1)]

    assert quantiles.quantile(histogram, q) == pytest.approx(exact, rel=0.0101)


def _block(random, size):
    shift = random.normal(0, 0.08)
    values = np.exp(random.normal(shift, 0.5, size))
    return quantiles.merge([{quantiles.bin_of(v): 1} for v in values])


def test_woodruff_covers_the_ninety_fifth_percentile():
    random = np.random.default_rng(0)
    truth = math.exp(1.6449 * math.hypot(0.5, 0.08))
    covered = 0
    for _ in range(200):
        blocks = [_block(random, int(random.integers(100, 300))) for _ in range(20)]
        found = quantiles.woodruff(blocks, 0.95)
        covered += found.low <= truth <= found.high

    assert covered / 200 >= 0.93


def test_one_block_gives_a_quantile_without_interval():
    found = quantiles.woodruff([{116: 5}, {}], 0.5)

    assert (found.low, found.high, found.blocks) == (None, None, 1)
    with pytest.raises(ValueError, match="empty"):
        quantiles.woodruff([{}], 0.5)


def test_a_quantile_ratio_over_pairs_finds_the_shift():
    random = np.random.default_rng(3)
    bases = [_block(random, 300) for _ in range(20)]
    ones = [{index + 20: count for index, count in block.items()} for block in bases]

    found = quantiles.paired_quantile_ratio(ones, bases, 0.95)

    assert found.value == pytest.approx(math.exp(20 * math.log(1.01 / 0.99)))
    assert found.low < found.value < found.high
    assert found.high / found.low < 1.05


# --- many comparisons


def test_many_intervals_hold_together():
    assert multiplicity.bonferroni(0.95, 5) == pytest.approx(0.99)


# --- the mix


def test_a_mix_that_turns_the_sign_suppresses_the_headline():
    base = {"short": strata.Arm(10, 1), "long": strata.Arm(20, 9)}
    treated = {"short": strata.Arm(11, 9), "long": strata.Arm(21, 1)}

    found = strata.standardise(base, treated)

    assert found.naive == pytest.approx(1.583, abs=6e-4)
    assert found.standardised == pytest.approx(0.9375)
    assert found.headline is None


def test_an_equal_mix_keeps_its_headline():
    base = {"short": strata.Arm(10, 5), "long": strata.Arm(20, 5)}
    treated = {"short": strata.Arm(8, 5), "long": strata.Arm(16, 5)}

    assert strata.standardise(base, treated).headline == pytest.approx(1.25)


# --- the step model


def _states(random, blocks):
    rounds = random.integers(200, 800, blocks)
    batch = random.uniform(4, 64, blocks)
    k = random.choice([0, 2, 4], blocks)
    context = random.uniform(200, 4000, blocks)
    return rounds, rounds * batch * (k + 1), rounds * batch * context


def test_the_fit_recovers_a_known_step_and_its_errors_cover():
    random = np.random.default_rng(0)
    truth = (7000.0, 18.0, 0.05)
    covered = np.zeros(3)
    for _ in range(200):
        rounds, n_q, n_kv = _states(random, 60)
        time = rounds * truth[0] + n_q * truth[1] + n_kv * truth[2]
        model = steptime.fit(rounds, n_q, n_kv, time * np.exp(random.normal(0, 0.03, 60)))
        found = (model.step, model.per_query, model.per_context)
        for i in range(3):
            if model.errors[i] is not None:
                covered[i] += abs(found[i] - truth[i]) < 2.0 * model.errors[i]

    assert (covered / 200 >= 0.88).all()
    assert model.critical_context == pytest.approx(18 / 0.05, rel=0.15)
    assert model.residual == pytest.approx(0.03, abs=0.01)


def test_coefficients_are_never_negative():
    random = np.random.default_rng(1)
    rounds, n_q, n_kv = _states(random, 40)

    model = steptime.fit(rounds, n_q, n_kv, rounds * 5000.0 + n_q * 20.0 - n_kv * 0.001)

    assert model.per_context == 0
    assert model.errors[2] is None
    assert model.critical_context is None


def test_a_fit_does_not_depend_on_units_or_order():
    random = np.random.default_rng(2)
    rounds, n_q, n_kv = _states(random, 30)
    time = rounds * 5000.0 + n_q * 20.0 + n_kv * 0.02

    model = steptime.fit(rounds[::-1], n_q[::-1], n_kv[::-1], 1e-3 * time[::-1])

    assert model.step == pytest.approx(5.0, rel=1e-6)
    assert model.per_query == pytest.approx(0.02, rel=1e-6)
    with pytest.raises(ValueError, match="at least 3 blocks"):
        steptime.fit([1, 1], [1, 2], [3, 4], [5, 6])


@pytest.mark.parametrize(
    ("batch", "alpha", "goodput"),
    [
        (32, 0.7, {0: 3813.91, 1: 6022.04, 3: 7854.46, 5: 8109.38}),
        (128, 0.7, {0: 11773.52, 1: 16185.21, 2: 17501.52, 3: 17441.32, 5: 15861.74}),
        (128, 0.4, {1: 13329.0}),
        (256, 0.4, {0: 18052.9, 1: 18545.4}),
    ],
)
def test_a_published_controller_model(batch, alpha, goodput):
    # Its negative coefficient of batch is folded into the fixed part.
    fixed = 6.9386995719 - 4.33144783e-2 * batch
    model = steptime.StepModel(fixed, 1.84383603e-2, 4.85907942e-5, (None, None, None), 0, 0.0)

    for k, expected in goodput.items():
        time = 1.09 * model.time_us(batch * (k + 1), batch * 1000)
        assert 1e3 * batch * tokens_per_round(k, alpha) / time == pytest.approx(expected, rel=1e-5)


def test_an_untried_draft_length_is_bounded_by_its_model():
    model = steptime.StepModel(1000.0, 0.0, 0.0, (None, None, None), 9, 0.0)

    bound = steptime.optimistic_speedup(
        model, tokens_high=3.0, draft_us=400, other_us=100, target_us=1000, batch=1, context=1, k=5
    )

    assert bound == pytest.approx(2.0)


# --- is the output left alone

P, Q = (0.5, 0.3, 0.2), (0.2, 0.5, 0.3)


def _emit(random, rows, drafts, bug):
    tokens = []
    for p, q in zip(rows, drafts, strict=True):
        proposal = random.choice(len(p), p=q)
        if random.random() < min(1.0, p[proposal] / q[proposal]):
            tokens.append(int(proposal))
        else:
            tokens.append(int(random.choice(len(p), p=p if bug else lossless.residual(p, q))))
    return tokens


def test_near_ties_and_divergence_rates():
    assert lossless.near_tie(24.125 - 24.0, logit_error=0.0625)
    assert not lossless.near_tie(24.5 - 24.0, logit_error=0.0625)
    assert outputs.excess_p(30, 10_000, 28, 10_000) > 0.3
    assert outputs.excess_p(90, 10_000, 28, 10_000) < 1e-6
