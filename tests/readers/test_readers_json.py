"""Benchmark results, per-request metrics, iterations and rounds as JSON."""

import json

import pytest
from reading import arms, codes, times, windows

from specscope.analyze.collect import analyze

VLLM = {
    "per_step_accepted": [3, 1, 0],
    "per_step_drafted": [3, 3, 3],
    "mean_acceptance_length": 2.3333,
    "draft_acceptance_rate": 0.4444,
    "acceptance_histogram": [1, 1, 0, 1],
    "num_spec_steps": 3,
    "num_accepted_draft_tokens": 4,
    "num_draft_tokens": 9,
    "num_spec_tokens": 3,
}
TRTLLM = {
    "acceptance_rate": 0.4444,
    "total_accepted_draft_tokens": 4,
    "total_draft_tokens": 9,
    "num_spec_steps": 3,
    "acceptance_histogram": [1, 1, 0, 1],
    "num_spec_tokens": None,
}
AIPERF = {**VLLM, "engine": "sglang", "completion_tokens": 8}


@pytest.mark.parametrize(
    ("document", "engine"),
    [
        ({"id": "cmpl-1", "metrics": {"speculative_decoding": VLLM}}, "vllm"),
        ({"choices": [{"speculative_decoding": TRTLLM}]}, "unknown"),
        (AIPERF, "sglang"),
        ([{"record": AIPERF}], "sglang"),
    ],
)
def test_a_requests_own_metrics_are_found_in_any_nesting(document, engine):
    window = windows(json.dumps(document))[0]

    assert (window.engine, window.drafts, window.proposed, window.accepted) == (engine, 3, 9, 4)
    assert window.accepted_at == (2, 1, 1)
    assert window.mean_length == pytest.approx(1 + 4 / 3)


def test_json_lines_hold_one_request_each():
    text = "\n".join(json.dumps({"metrics": {"speculative_decoding": VLLM}}) for _ in range(4))

    assert [w.accepted for w in windows(text)] == [4] * 4


def test_sglang_meta_info_gives_exact_positions_from_its_histogram():
    meta = {
        "completion_tokens": 70,
        "spec_verify_ct": 30,
        "spec_num_correct_drafts": 40,
        "spec_num_proposed_drafts": 90,
        "spec_accept_length": 70 / 30,
        "spec_accept_rate": 40 / 90,
        "spec_correct_drafts_histogram": [10, 5, 10, 5],
    }

    window = windows(json.dumps({"text": "x", "meta_info": meta}))[0]

    assert (window.k, window.drafts, window.accepted) == (3, 30, 40)
    assert window.accepted_at == (20, 15, 5)


def test_a_rate_above_one_is_a_defect_of_the_source():
    meta = {"meta_info": {"spec_accept_rate": 1.4, "spec_accept_length": 3.1, "finish_reason": "x"}}

    assert "SOURCE_DEFECT" in codes(json.dumps(meta))
    assert windows(json.dumps(meta))[0].acceptance_rate is None


def test_sglang_benchmark_lines_are_arms_and_windows():
    line = {
        "backend": "sglang",
        "dataset_name": "random",
        "max_concurrency": 16,
        "completed": 10,
        "total_output_tokens": 1000,
        "output_throughput": 200.0,
        "mean_tpot_ms": 5.0,
        "accept_length": 2.5,
    }
    text = json.dumps({**line, "accept_length": None}) + "\n" + json.dumps(line) + "\n"

    plain, speculative = arms(text)

    assert (plain.role, plain.basis, speculative.role) == ("target_only", "inferred", "speculative")
    assert speculative.metrics["output_tokens"] == 100
    assert windows(text)[0].round_ms == pytest.approx(12.5)
    assert "SYNTHETIC_PROMPTS" in codes(text)


def test_guidellm_and_aiperf_results_are_arms():
    guide = {
        "benchmarks": [
            {
                "metrics": {
                    "output_tokens_per_second": {"successful": {"mean": 321.0}},
                    "time_per_output_token_ms": {"successful": {"mean": 7.5}},
                    "request_concurrency": {"successful": {"mean": 8.0}},
                }
            }
        ]
    }
    aiperf = {
        "output_token_throughput": {"unit": "tokens/sec", "avg": 321.0},
        "inter_token_latency": {"unit": "ms", "avg": 7.5},
        "input_config": {"loadgen": {"concurrency": 8}},
    }

    for document in (guide, aiperf):
        arm = arms(json.dumps(document))[0]

        assert arm.metrics["throughput_tok_s"] == 321.0
        assert arm.metrics["tpot_ms"] == 7.5
        assert arm.conditions["concurrency"] == 8


def test_attention_dp_ranks_do_not_count_twice_and_lost_iterations_are_said():
    def iteration(number, rank):
        return {
            "iter": number,
            "attentionDpRank": rank,
            "iterLatencyMS": 20.0,
            "inflightBatchingStats": {"numGenRequests": 4, "numContextRequests": 0},
            "specDecodingStats": {
                "numDraftTokens": 12,
                "numAcceptedTokens": 6,
                "numRequestsWithDraftTokens": 4,
                "acceptanceLength": 2.5,
                "iterLatencyMS": 0.0,
            },
        }

    text = json.dumps([iteration(n, rank) for n in (1, 2, 7) for rank in (0, 1)])

    assert len(windows(text)) == 3
    assert {"DUPLICATE_RANKS", "ITERATION_GAP"} <= codes(text)
    assert times(text) == []  # one-model drafting: its time is unknown, not 0


def test_rounds_tell_what_was_accepted_from_what_came_out():
    lines = [
        {"proposed": 4, "accepted": 2, "emitted": 3, "end": "none"},
        {"proposed": 4, "accepted": 4, "emitted": 2, "end": "eos"},
        {"proposed": 2, "accepted": 0, "emitted": 1, "end": "none"},
    ]

    window = windows("\n".join(map(json.dumps, lines)) + "\n")[0]

    assert (window.drafts, window.proposed, window.accepted, window.emitted) == (3, 10, 6, 6)
    assert (window.k, window.accepted_at) == (None, None)
    assert "EOS_OVERCOUNT" in codes("\n".join(map(json.dumps, lines)))


def test_a_trace_summary_with_enough_coverage_gives_idle_time():
    summary = {"idle_pct": 12.0, "graph_launches": 40, "launches_with_kernels": 40}

    time = times(json.dumps(summary))[0]

    assert (time.idle_share, time.trace_coverage) == (pytest.approx(0.12), 1.0)


def test_other_store_errors_are_counted_by_code():
    text = "\n".join(
        json.dumps({"logger_name": "TCPHandler", "message": f"Code: {code}. DB::Exception: x"})
        for code in (241, 241, 159)
    )

    assert "STORE_ERROR" in codes(text)


def test_a_histogram_by_draft_length_gives_a_window_for_each_length():
    spec = {
        "num_spec_steps": 5,
        "num_accepted_draft_tokens": 5,
        "num_draft_tokens": 9,
        "num_spec_tokens": 3,
        "acceptance_histogram": [1, 3, 1, 0],
        "acceptance_histogram_by_draft_length": {"1": [1, 2], "3": [0, 1, 1, 0]},
    }
    text = json.dumps({"choices": [], "metrics": {"speculative_decoding": spec}})

    found = [(w.k, w.drafts, w.proposed, w.accepted, w.accepted_at) for w in windows(text)]

    assert found == [(1, 3, 3, 2, (2,)), (3, 2, 6, 3, (2, 1, 0))]


def test_a_histogram_by_draft_length_that_does_not_add_up_is_left_out():
    spec = {
        "num_spec_steps": 5,
        "num_accepted_draft_tokens": 4,
        "num_draft_tokens": 9,
        "acceptance_histogram_by_draft_length": {"1": [1, 2], "3": [0, 1, 1, 0]},
    }

    (window,) = windows(json.dumps({"metrics": {"speculative_decoding": spec}}))

    assert (window.drafts, window.proposed, window.accepted) == (5, 9, 4)


def category(name, speed, latency, drafted, kept):
    rate = kept / drafted if drafted else None
    return {"category": name, "requests": 2, "avg_pred_t_s": speed, "avg_latency": latency,
            "draft_n": drafted, "accepted": kept, "accept_rate": rate}  # fmt: skip


def test_speed_bench_of_llamacpp_has_an_arm_and_a_window_per_category(tmp_path):
    runs = {
        "baseline": [category("coding", 20, 12, 0, 0), category("overall", 20, 12, 0, 0)],
        "mtp": [category("coding", 36, 7, 500, 400), category("overall", 36, 7, 500, 400)],
    }
    for name, rows in runs.items():
        document = {"config": {"concurrency": 1}, "summary": rows, "results": []}
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    found = analyze([str(tmp_path)]).as_json()

    assert {v["class"]["label"] for v in found["verdicts"]} == {"coding"}
    assert {c["metric"]: c["speedup"] for c in found["comparisons"]} == pytest.approx(
        {"throughput_tok_s": 1.8, "latency_ms": 12 / 7}
    )
    (window,) = found["windows"]
    assert (window["engine"], window["proposed"], window["accepted"]) == ("llama.cpp", 500, 400)


def test_aiperf_counts_rounds_and_does_not_average_requests():
    totals = {"total_spec_decode_steps": 1000, "total_draft_tokens": 4000,
              "total_accepted_draft_tokens": 2400}  # fmt: skip
    means = {"output_token_throughput": 900, "spec_decode_acceptance_length": 3.1}
    document = {name: {"unit": "", "avg": value} for name, value in (means | totals).items()}
    (window,) = windows(json.dumps(document))

    assert (window.drafts, window.proposed, window.accepted) == (1000, 4000, 2400)
    assert window.printed_length is None
