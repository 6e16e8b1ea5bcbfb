"""Planted causes are named, and signatures hold where their physics says so."""

import dataclasses

import pytest
from block_rows import Kind, block, part

from specscope.evaluate import acceptance, signatures, verify_signatures
from specscope.evaluate.diagnosis import NO_SINGLE_FIX, TokenCost, repairs
from specscope.evaluate.roofline import PEAKS, ModelShape
from specscope.evaluate.steptime import StepModel
from specscope.evaluate.verdicts import decide

LLAMA_8B = ModelShape(8.03e9, 131072)


def per_token(tokens, draft, verify, other):
    return TokenCost(
        tokens,
        (draft + verify + other) / tokens,
        draft / tokens,
        verify / tokens,
        other / tokens,
        0,
    )


BASE = TokenCost(1.0, 1.0, 0.0, 1.0, 0.0, 0.0)


def test_a_free_draft_flips_the_second_trace():
    found = repairs(per_token(1.4, 0.9, 1.2, 0.0), BASE, None)

    assert [r.cause for r in found] == ["draft_cost", "verify_cost"]
    assert found[0].speedup == pytest.approx(1.167, abs=6e-4)
    assert found[0].flips
    assert found[1].speedup == pytest.approx(0.737, abs=6e-4)
    assert not found[1].flips


def test_closing_the_gaps_flips_a_trace_with_gaps():
    found = repairs(per_token(1.9, 0.3, 1.05, 0.6), BASE, None)

    assert found[0].cause == "idle"
    assert found[0].speedup == pytest.approx(1.407, abs=6e-4)


def segment(tokens, draft, verify, idle, sample=0.0, name="x", first=1):
    """Blocks of one class with k0 and k4, times in ms a round."""
    times, parts = [], []
    for pair in range(first, first + 20):
        slow = 1 + 0.01 * (pair % 5)
        for k, parts_ms, yields in (
            (0, (0.0, 1.0, 0.0, 0.0), 1.0),
            (4, (draft, verify, idle, sample), tokens),
        ):
            kind = Kind({k: yields}, {k: sum(parts_ms), 0: sum(parts_ms)})
            row = block(name, k, kind, pair, slow, 8, 1000)
            scale = 1e3 * row.rounds * slow
            row = dataclasses.replace(
                row,
                draft_us=scale * parts_ms[0],
                verify_us=scale * parts_ms[1],
                idle_us=scale * parts_ms[2],
                sample_us=scale * parts_ms[3],
            )
            times.append(row)
            parts.append(part(row, name))
    return times, parts


@pytest.mark.parametrize(
    ("planted", "primary"),
    [
        ({"tokens": 1.9, "draft": 1.2, "verify": 1.05, "idle": 0.05}, "draft_cost"),
        ({"tokens": 1.9, "draft": 0.3, "verify": 2.2, "idle": 0.05}, "verify_cost"),
        ({"tokens": 1.9, "draft": 0.3, "verify": 1.05, "idle": 0.9}, "idle"),
        ({"tokens": 1.9, "draft": 0.3, "verify": 1.05, "idle": 0.05, "sample": 0.9}, "sampling"),
    ],
)
def test_a_planted_cost_is_the_primary_cause(planted, primary):
    (verdict,) = decide(*segment(**planted))

    assert verdict.action == "disable"
    assert verdict.primary == primary
    assert any(f"primary cause: {primary}" in reason for reason in verdict.reasons)


def test_low_acceptance_is_primary_beside_traffic_where_the_same_draft_pays():
    good = segment(3.6, 0.3, 1.1, 0.05, name="good")
    bad = segment(1.2, 0.3, 1.1, 0.05, name="bad", first=21)

    verdicts = decide(good[0] + bad[0], good[1] + bad[1])

    by_class = {v.segment.class_: v for v in verdicts}
    assert by_class["bad"].primary == "draft_mismatch"
    assert by_class["bad"].diagnoses[0].repairs[0].cause == "low_acceptance"
    assert by_class["good"].primary is None


def test_costs_that_only_fall_together_have_no_single_fix():
    (verdict,) = decide(*segment(1.2, 1.0, 2.0, 1.0))

    assert verdict.primary == NO_SINGLE_FIX
    assert any("no single repair" in reason for reason in verdict.reasons)


def test_counters_that_no_engine_yields_are_a_fault():
    assert signatures.engine_fault(10, 11, 20, 10).code == "engine_fault"
    assert signatures.engine_fault(10, 5, 16, 10).code == "engine_fault"
    assert signatures.engine_fault(5000, 0, 1000, 1000).code == "engine_fault"
    assert signatures.engine_fault(40, 20, 30, 10) is None


def test_acceptance_signatures():
    low = acceptance.survival([[100, 20]], [[20, 10]])
    fine = acceptance.survival([[100, 80]], [[80, 60]])

    assert signatures.draft_mismatch(low, 0.8).code == "draft_mismatch"
    assert signatures.draft_mismatch(fine, 0.8) is None
    assert signatures.adapter_mismatch({"": 0.8, "legal": 0.3}, "").code == "adapter_mismatch"
    assert signatures.adapter_mismatch({"": 0.8, "legal": 0.7}, "") is None
    assert signatures.adapter_mismatch({"legal": 0.7}, "") is None
    curve = [(512, 0.8), (1500, 0.78), (3000, 0.2), (8000, 0.1)]
    assert "context 3000" in signatures.drafter_window(curve).evidence
    assert signatures.drafter_window(curve, max_position=2048).code == "drafter_window"
    assert signatures.drafter_window([(512, 0.8), (8000, 0.7)]) is None


def test_placement_and_gap_signatures():
    assert signatures.draft_placement(1.0, 0.2).explains == "draft_cost"
    assert signatures.draft_placement(0.5, 0.2) is None
    assert signatures.host_sync([(4, 300), (32, 310)]).code == "host_sync"
    assert signatures.host_sync([(4, 100), (32, 800)]) is None
    assert signatures.host_sync([(4, 100), (5, 100)]) is None
    assert signatures.bad_baseline(0.65, 1.0).explains is None
    assert signatures.bad_baseline(1.2, 1.0) is None
    assert signatures.short_output(5, 7.6).code == "short_output"
    assert signatures.short_output(8, 7.6) is None
    assert signatures.prefill_side_effect(1.3).code == "prefill_side_effect"
    assert signatures.prefill_side_effect(1.0, 0.5).code == "prefill_side_effect"
    assert signatures.prefill_side_effect(1.0, 1.0) is None
    assert signatures.memory_displacement(40, 3).code == "memory_displacement"
    assert signatures.memory_displacement(3, 3) is None


def test_verify_signatures_follow_physics():
    device = PEAKS["H100"]
    slope = 1e6 * 2 * LLAMA_8B.parameters / device.flops
    read = 1e6 * LLAMA_8B.kv_bytes / device.bandwidth
    saturated = StepModel(5000, 1.2 * slope, 1.2 * read, (None, None, None), 9, 0.0)
    free = StepModel(5000, 0.1 * slope, 2.5 * read, (None, None, None), 9, 0.0)

    assert verify_signatures.compute_bound(saturated, LLAMA_8B, device, 512) is not None
    assert verify_signatures.compute_bound(saturated, LLAMA_8B, device, 64) is None
    assert verify_signatures.compute_bound(free, LLAMA_8B, device, 512) is None
    assert verify_signatures.context_cost(free, LLAMA_8B, device).code == "context_cost"
    assert verify_signatures.context_cost(saturated, LLAMA_8B, device) is None
    assert verify_signatures.overhead_bound(16e9, 0.05, device, 64).code == "overhead_bound"
    assert verify_signatures.overhead_bound(16e9, 0.006, device, 64) is None
    assert verify_signatures.padding(0.3).code == "padding"
    assert verify_signatures.padding(0.05) is None
    steps = [(32, 5000.0), (64, 5010.0), (65, 6200.0)]
    assert "65" in verify_signatures.staircase(steps, free).evidence
    assert verify_signatures.staircase(steps[:2], free) is None
    assert verify_signatures.raggedness(100, 400, 2.5, 4).code == "raggedness"
    assert verify_signatures.raggedness(200, 400, 2.5, 4) is None
    assert verify_signatures.expert_union(64, 8, 4, 3).code == "expert_union"
    assert verify_signatures.expert_union(64, 8, 30, 3) is None
