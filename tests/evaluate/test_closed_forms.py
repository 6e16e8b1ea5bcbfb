"""Published tables and hand arithmetic, row by row."""

import pytest
from evaluate.theory import expected_accepted, tokens_per_round
from hypothesis import given
from hypothesis import strategies as st

from specscope.evaluate.costs import closed_forms as cf
from specscope.evaluate.costs import moe, roofline
from specscope.evaluate.costs.traces import INCONSISTENT_BASELINE, judge_trace

LLAMA_8B = roofline.ModelShape(8.03e9, 131072)
LLAMA_7B = roofline.ModelShape(6.738e9, 524288)


def test_eight_proposals_at_seventy_percent_yield_three_point_two_tokens():
    assert expected_accepted(8, 0.7) == pytest.approx(2.1988213100, abs=1e-9)
    assert tokens_per_round(8, 0.7) == pytest.approx(3.1988213100, abs=1e-9)
    assert f"{tokens_per_round(8, 0.7):.2f}" == "3.20"


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


@pytest.mark.parametrize(
    ("clean", "k0", "tax"), [(14.374, 15.317, 0.0656), (77.164, 93.820, 0.2159)]
)
def test_the_tax_of_a_speculative_engine_at_k_zero(clean, k0, tax):
    assert 1 / cf.speedup(1.0, 0.0, k0, clean) - 1 == pytest.approx(tax, abs=6e-5)


def test_money_for_a_million_tokens():
    assert cf.cost_per_million_tokens(2.5, 1000) == pytest.approx(0.694, abs=6e-4)
    assert cf.cost_per_million_tokens(2.5, 3650) == pytest.approx(0.190, abs=6e-4)
    assert cf.cost_per_million_tokens(2.5, 667) == pytest.approx(1.041, abs=6e-4)


@given(st.integers(1, 12), st.floats(0.0, 1.0), st.floats(0.001, 10))
def test_without_slack_no_draft_length_raises_throughput(k, p, slot_ms):
    assert cf.speedup(tokens_per_round(k, p), 0, (k + 1) * slot_ms, slot_ms) <= 1 + 1e-12


@pytest.mark.parametrize(
    ("experts", "active", "tokens", "union"),
    [(512, 10, 4, 38.843), (256, 10, 5, 46.243), (64, 8, 4, 26.484), (8, 2, 4, 5.469)],
)
def test_experts_that_a_round_wakes(experts, active, tokens, union):
    assert moe.expert_union(experts, active, tokens) == pytest.approx(union, rel=1e-4)


@pytest.mark.parametrize(
    ("device", "bytes_per_weight", "ridge"),
    [("A100", 2.0, 153.0), ("H100", 2.0, 295.2), ("H200", 2.0, 206.0), ("A100", 0.5, 38.25)],
)
def test_ridges_of_devices(device, bytes_per_weight, ridge):
    found = roofline.ridge_tokens(roofline.PEAKS[device], bytes_per_weight)

    assert found == pytest.approx(ridge, abs=0.05)
