"""Published tables and hand arithmetic, row by row."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specscope.evaluate.costs import closed_forms as cf
from specscope.evaluate.costs import leviathan, moe, raggedness, roofline
from specscope.evaluate.costs.traces import INCONSISTENT_BASELINE, judge_trace

LLAMA_8B = roofline.ModelShape(8.03e9, 131072)
LLAMA_7B = roofline.ModelShape(6.738e9, 524288)


def test_eight_proposals_at_seventy_percent_yield_three_point_two_tokens():
    assert cf.expected_accepted(8, 0.7) == pytest.approx(2.1988213100, abs=1e-9)
    assert cf.tokens_per_round(8, 0.7) == pytest.approx(3.1988213100, abs=1e-9)
    assert f"{cf.tokens_per_round(8, 0.7):.2f}" == "3.20"


def test_the_first_trace_wins_and_is_not_believed():
    verdict = judge_trace(4.2, draft_ms=0.50, verify_ms=0.65, target_ms=1.00)

    assert verdict.tokens_per_ms == pytest.approx(3.652173913, abs=1e-9)
    assert verdict.target_tokens_per_ms == 1.00
    assert verdict.break_even_tokens == pytest.approx(1.15)
    assert verdict.action == "keep"
    assert verdict.flags == (INCONSISTENT_BASELINE,)
    assert verdict.grade != "measured"


def test_the_second_trace_loses_to_its_draft():
    verdict = judge_trace(1.4, draft_ms=0.90, verify_ms=1.20, target_ms=1.00)

    assert verdict.tokens_per_ms == pytest.approx(2 / 3)
    assert verdict.break_even_tokens == pytest.approx(2.10)
    assert verdict.action == "disable"
    assert verdict.flags == ()
    assert verdict.primary == "draft"


def test_gaps_are_primary_where_closing_them_is_enough():
    verdict = judge_trace(1.9, draft_ms=0.30, verify_ms=1.05, target_ms=1.00, other_ms=0.60)

    assert verdict.speedup == pytest.approx(0.974, abs=1e-3)
    assert verdict.primary == "other"


@pytest.mark.parametrize(
    ("alpha", "k", "speed", "operations"),
    [
        (0.6, 2, 1.96, 1.5306),
        (0.7, 3, 2.533, 1.5792),
        (0.8, 2, 2.44, 1.2295),
        (0.8, 5, 3.6893, 1.6263),
        (0.9, 2, 2.71, 1.1070),
        (0.9, 10, 6.8619, 1.6031),
    ],
)
def test_speed_and_operations_of_the_first_published_table(alpha, k, speed, operations):
    assert leviathan.walltime_factor(k, alpha, 0) == pytest.approx(speed, abs=6e-5)
    assert leviathan.operations_factor(k, alpha, 0) == pytest.approx(operations, abs=6e-5)


@pytest.mark.parametrize(
    ("k", "alpha", "c", "expected"),
    [
        (7, 0.75, 0.02, 3.1575),
        (7, 0.80, 0.04, 3.2509),
        (7, 0.82, 0.11, 2.4971),
        (7, 0.62, 0.02, 2.2580),
        (5, 0.68, 0.04, 2.3467),
        (3, 0.71, 0.11, 1.9338),
        (5, 0.65, 0.02, 2.4015),
        (5, 0.73, 0.04, 2.6193),
        (3, 0.74, 0.11, 2.0247),
        (5, 0.53, 0.02, 1.8914),
        (3, 0.55, 0.04, 1.8026),
        (3, 0.56, 0.11, 1.5408),
        (3, 0.20, 0.0, 1.248),
    ],
)
def test_expected_speedups_of_the_fourth_published_table(k, alpha, c, expected):
    assert leviathan.walltime_factor(k, alpha, c) == pytest.approx(expected, abs=6e-5)


@pytest.mark.parametrize(("alpha", "expected"), [(0.75, 3.30), (0.80, 3.87), (0.87, 4.91)])
def test_expected_speedups_under_lenience(alpha, expected):
    assert leviathan.walltime_factor(8, alpha, 0.015) == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize(
    ("alpha", "c", "k", "factor"),
    [
        (0.5, 0.05, 3, 1.630),
        (0.6, 0.05, 4, 1.921),
        (0.7, 0.05, 6, 2.353),
        (0.8, 0.05, 8, 3.092),
        (0.9, 0.05, 13, 4.674),
        (0.8, 0.10, 6, 2.470),
        (0.9, 0.10, 10, 3.431),
        (0.7, 0.20, 3, 1.583),
    ],
)
def test_the_optimal_draft_length_is_the_global_best(alpha, c, k, factor):
    assert leviathan.optimal_draft_length(alpha, c) == k
    assert leviathan.walltime_factor(k, alpha, c) == pytest.approx(factor, abs=6e-4)


@pytest.mark.parametrize(("alpha", "c", "k"), [(0.7, 0.02, 8), (0.8, 0.02, 11)])
def test_a_cheap_draft_is_worth_a_longer_one(alpha, c, k):
    assert leviathan.optimal_draft_length(alpha, c) == k


@pytest.mark.parametrize(
    ("alpha", "c", "factor"),
    [(0.7, 0.05, 2.985), (0.8, 0.05, 4.167), (0.9, 0.05, 6.897), (0.9, 0.10, 5.263)],
)
def test_an_oracle_that_stops_in_time(alpha, c, factor):
    assert leviathan.oracle_factor(alpha, c) == pytest.approx(factor, abs=6e-4)


@given(st.floats(0.01, 0.99), st.floats(0.0, 1.5))
def test_some_draft_length_gains_exactly_where_acceptance_exceeds_cost(alpha, c):
    best = leviathan.walltime_factor(leviathan.optimal_draft_length(alpha, c), alpha, c)

    if leviathan.improves(alpha, c):
        assert best >= leviathan.least_improvement(alpha, c) - 1e-12
    else:
        assert best == 1.0


@pytest.mark.parametrize(("ms_per_token", "tokens"), [(7.52, 2.832), (7.00, 3.043), (5.73, 3.717)])
def test_tokens_per_loop_implied_by_chinchilla(ms_per_token, tokens):
    assert (4 * 1.8 + 14.1) / ms_per_token == pytest.approx(tokens, rel=0.03)
    assert cf.unexplained_ms(tokens, ms_per_token, 4 * 1.8, 14.1) == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize(
    ("experts", "active", "tokens", "union"),
    [
        (512, 10, 4, 38.843),
        (256, 10, 5, 46.243),
        (256, 10, 16, 120.68),
        (64, 8, 4, 26.484),
        (8, 2, 4, 5.469),
    ],
)
def test_expert_unions(experts, active, tokens, union):
    assert moe.expert_union(experts, active, tokens) == pytest.approx(union, rel=1e-4)
    shared = moe.tokens_per_expert(experts, active, tokens)
    assert shared == pytest.approx(tokens * active / union, rel=1e-4)


@pytest.mark.parametrize(
    ("experts", "active", "threshold"),
    [(64, 8, 23), (256, 8, 95), (8, 2, 11), (128, 8, 47), (256, 10, 76)],
)
def test_expert_thresholds(experts, active, threshold):
    assert moe.union_threshold(experts, active) == threshold


@pytest.mark.parametrize(
    ("target", "speculative", "ratio"),
    [
        (18.89, 11.61, 1.63),
        (15.93, 7.31, 2.18),
        (15.96, 6.96, 2.29),
        (11.20, 5.38, 2.08),
        (17.84, 7.94, 2.25),
        (20.92, 17.53, 1.19),
    ],
)
def test_mixture_of_experts_speedups(target, speculative, ratio):
    assert cf.speedup(1.0, 0.0, speculative, target) == pytest.approx(ratio, abs=0.006)


def test_tokens_from_the_share_of_a_full_round():
    assert moe.full_share_tokens(0.94, 2) == pytest.approx(2.82)


@pytest.mark.parametrize(
    ("draft", "verify", "tokens", "target", "rate", "ideal", "gap", "gain", "even"),
    [
        (44.11, 45.12, 3.00, 36.62, 30.32, 29.74, 1.73, 1.208, 2.48),
        (15.09, 18.30, 2.82, 17.32, 12.16, 11.84, 0.90, 1.424, 1.98),
    ],
)
def test_long_context_rows_leave_a_small_gap(
    draft, verify, tokens, target, rate, ideal, gap, gain, even
):
    other = cf.unexplained_ms(tokens, rate, draft, verify)

    assert 1 / cf.tokens_per_ms(tokens, draft, verify) == pytest.approx(ideal, abs=6e-3)
    assert other == pytest.approx(gap, abs=6e-3)
    assert cf.speedup(tokens, draft, verify, target, other) == pytest.approx(gain, abs=6e-4)
    assert cf.break_even_tokens(draft, verify, target, other) == pytest.approx(even, abs=6e-3)


@pytest.mark.parametrize(
    ("layers", "kv_heads", "expected"),
    [(32, 32, 524288), (32, 8, 131072), (80, 8, 327680), (64, 8, 262144)],
)
def test_kv_bytes_of_published_models(layers, kv_heads, expected):
    assert roofline.kv_bytes_per_token(layers, kv_heads, 128, 2) == expected


def test_ridges_and_free_draft_lengths():
    assert roofline.ridge_tokens(roofline.PEAKS["A100"]) == pytest.approx(153.0, abs=0.05)
    assert roofline.ridge_tokens(roofline.PEAKS["H100"]) == pytest.approx(295.2, abs=0.05)
    assert roofline.ridge_tokens(roofline.PEAKS["H200"]) == pytest.approx(206.0, abs=0.05)
    assert roofline.ridge_tokens(roofline.PEAKS["A100"], 0.5) == pytest.approx(38.25, abs=0.05)
    assert [roofline.free_draft_length(roofline.PEAKS["H100"], b) for b in (8, 32, 64, 128)] == [
        35,
        8,
        3,
        1,
    ]
    assert [roofline.free_draft_length(roofline.PEAKS["A100"], b) for b in (8, 32, 64, 128)] == [
        18,
        3,
        1,
        0,
    ]


@pytest.mark.parametrize(
    ("batch", "context", "k", "total", "ratio"),
    [
        (64, 1000, 0, 7.298, 1.0),
        (64, 1000, 3, 7.298, 1.0),
        (128, 1000, 3, 13.322, 1.359),
        (128, 1000, 7, 21.636, 2.207),
        (128, 16000, 0, 84.924, 1.0),
        (128, 16000, 7, 96.758, 1.139),
    ],
)
def test_ideal_steps_of_an_eight_billion_model(batch, context, k, total, ratio):
    device = roofline.PEAKS["H100"]
    base = roofline.step_time(LLAMA_8B, device, batch, batch * context)

    step = roofline.step_time(LLAMA_8B, device, batch * (k + 1), batch * context)

    assert step.total_ms == pytest.approx(total, abs=6e-4)
    assert step.total_ms / base.total_ms == pytest.approx(ratio, abs=6e-4)


@pytest.mark.parametrize(
    ("model", "device", "critical", "context"),
    [
        (LLAMA_8B, "A100", 800.8, 4004),
        (LLAMA_7B, "A100", 168.0, 840),
        (LLAMA_8B, "H100", 415.0, 2075),
        (LLAMA_8B, "H200", 594.7, None),
    ],
)
def test_critical_contexts(model, device, critical, context):
    s0 = roofline.critical_context(model, roofline.PEAKS[device])

    assert s0 == pytest.approx(critical, abs=0.06)
    if context is not None:
        assert roofline.context_for_verify_ratio(s0, 3, 1.5) == pytest.approx(context, abs=0.5)


def test_traffic_of_one_layer():
    layer = roofline.layer_traffic(width=4096, group=4, batch=32, context=4000)

    assert layer.weight_bytes == 352321536
    assert layer.kv_bytes == 524288000
    assert layer.weight_flops == 11274289152
    assert layer.kv_flops == 2097152000
    assert (layer.weight_intensity, layer.kv_intensity) == (32, 4)


def test_tokens_per_round_are_not_a_speedup():
    assert cf.round_cost(6.13, 4.40) == pytest.approx(1.393, abs=6e-4)
    assert cf.round_cost(4.05, 3.16) == pytest.approx(1.282, abs=6e-4)


@pytest.mark.parametrize(
    ("survival", "tokens"),
    [
        ((0.87, 0.72, 0.60), 3.19),
        ((0.49, 0.31, 0.22, 0.16, 0.12), 2.30),
        ((0.76, 0.56, 0.43), 2.75),
    ],
)
def test_published_position_rates_add_to_published_lengths(survival, tokens):
    assert cf.tokens_per_round_from_survival(survival) == pytest.approx(tokens)


def test_counters_of_a_published_run_give_its_mean_length():
    drafts, accepted, first, output = 4816, 12208, 80, 16990

    assert cf.tokens_per_draft(drafts, accepted) == pytest.approx(3.535, abs=6e-4)
    assert 7 * drafts == 33712
    assert drafts + accepted + first - output == 114  # 1.4 tokens a request past its end


def test_published_position_rates_have_the_published_mean():
    rates = (0.87, 0.72, 0.60)

    assert sum(rates) / 3 == pytest.approx(0.73)
    assert cf.tokens_per_draft(100, 219) == pytest.approx(1 + 3 * 0.73)


def test_the_best_of_three_measured_lengths_by_the_marginal_rule():
    times = [cf.round_ms(*row) for row in ((1.0, 128.64), (1.89, 175.49), (2.08, 165.65))]

    assert times == pytest.approx([7.774, 10.770, 12.557], abs=6e-4)
    assert cf.marginal_pays(1, 0.89, 1.0, times[0], times[1] - times[0])
    assert not cf.marginal_pays(1, 0.19, 1.89, times[1], times[2] - times[1])


@pytest.mark.parametrize(
    ("clean", "k0", "tax"), [(14.374, 15.317, 0.0656), (77.164, 93.820, 0.2159)]
)
def test_the_tax_of_a_speculative_engine_at_k_zero(clean, k0, tax):
    assert 1 / cf.speedup(1.0, 0.0, k0, clean) - 1 == pytest.approx(tax, abs=6e-5)


def test_a_mixture_of_requests_accepts_more_than_its_mean_rate():
    survival = cf.mixture_survival(8, 7, 3)
    hazards = [b / a for a, b in zip([1.0, *survival], survival, strict=False)]

    assert survival[-1] == pytest.approx(0.1235, abs=6e-5)
    assert cf.mixture_accepted(8, 7, 3) == pytest.approx(2.573529, abs=6e-7)
    assert hazards == pytest.approx(
        [0.7, 0.7273, 0.75, 0.7692, 0.7857, 0.8, 0.8125, 0.8235], abs=6e-5
    )


@pytest.mark.parametrize(
    ("p", "k", "ratios"),
    [(0.7, 8, (1.0, 2.19, 3.26, 3.63)), (0.8, 4, (1.0, 1.61, 1.69, 1.69))],
)
def test_raggedness_under_independence(p, k, ratios):
    got = [raggedness.raggedness(batch, k, p) for batch in (1, 4, 16, 64)]

    assert got == pytest.approx(ratios, abs=0.006)


def test_short_outputs_waste_their_last_round():
    random = np.random.default_rng(0)
    accepted = np.cumprod(random.random((20_000, 64, 4)) < 0.7, axis=2).sum(axis=2)
    reached = np.cumsum(accepted + 1, axis=1)

    for tokens, percent in {
        1: 63.9,
        2: 44.5,
        4: 24.1,
        8: 14.4,
        16: 7.65,
        32: 3.97,
        64: 2.04,
    }.items():
        simulated = reached[np.arange(len(reached)), (reached >= tokens).argmax(axis=1)].mean()
        loss = raggedness.truncation_loss(tokens, 4, 0.7)
        assert 100 * loss == pytest.approx(percent, abs=0.06)
        assert loss == pytest.approx(1 - tokens / simulated, abs=0.005)


def test_money_for_a_million_tokens():
    assert cf.cost_per_million_tokens(2.5, 1000) == pytest.approx(0.694, abs=6e-4)
    assert cf.cost_per_million_tokens(2.5, 3650) == pytest.approx(0.190, abs=6e-4)
    assert cf.cost_per_million_tokens(2.5, 667) == pytest.approx(1.041, abs=6e-4)


def test_output_needed_to_repay_a_slower_start():
    assert cf.break_even_output(158.4 - 74.0, 28.2, 17.11) == pytest.approx(7.6, abs=0.05)
    assert math.isinf(cf.break_even_output(10.0, 17.0, 18.0))


def test_a_slot_is_worth_its_milliseconds():
    price = 64 * 2.2 / 12 * 0.0184

    assert price == pytest.approx(0.216, abs=6e-4)
    assert cf.marginal_pays(64, price * 1.01, 2.2, 12, 64 * 0.0184)
    assert not cf.marginal_pays(64, price * 0.99, 2.2, 12, 64 * 0.0184)


@given(st.integers(1, 12), st.floats(0.0, 1.0), st.floats(0.001, 10))
def test_without_slack_no_draft_length_raises_throughput(k, p, slot_ms):
    assert cf.speedup(cf.tokens_per_round(k, p), 0, (k + 1) * slot_ms, slot_ms) <= 1 + 1e-12


@pytest.mark.parametrize(
    "call",
    [
        lambda: cf.expected_accepted(-1, 0.5),
        lambda: cf.expected_accepted(3, 1.5),
        lambda: cf.tokens_per_round_from_survival([0.5, 0.6]),
        lambda: cf.speedup(2.0, 0.1, 1.0, 0.0),
        lambda: cf.tokens_per_ms(2.0, 0.0, 0.0),
        lambda: cf.tokens_per_ms(2.0, math.nan, 1.0),
        lambda: moe.expert_union(8, 9, 1),
        lambda: roofline.context_for_verify_ratio(100, 3, 1.0),
        lambda: leviathan.oracle_factor(1.0, 0.0),
    ],
)
def test_arguments_without_meaning_are_refused(call):
    with pytest.raises(ValueError, match=r"\w"):
        call()
