"""vLLM: logs of V0 and V1, scrapes, benchmark results, rounds. Facts worked out by hand."""

import pytest
from analyze_cases import (
    FACTORS,
    actions,
    codes,
    evidence,
    run,
    shuffled,
    speedups,
    tripled,
    tripled_csv,
    tripled_json,
)

V1 = (
    r"Accepted: (\d+) tokens",
    r"Drafted: (\d+) tokens",
    r"Accepted throughput: ([\d.]+)",
    r"Drafted throughput: ([\d.]+)",
    r"generation throughput: ([\d.]+)",
    r"Running: (\d+) reqs",
    r"Waiting: (\d+) reqs",
    r"tokens: (\d+)",
)


def reprefixed(text):
    return text.replace("INFO ", "2026-01-01T00:00:00.000000000Z stderr F INFO ").replace(
        "svc-a  |", "router-7  |"
    )


@pytest.mark.parametrize("n", FACTORS)
def test_ngram_log_reports_coverage_beside_acceptance_and_asks_for_a_baseline(n, tmp_path):
    result = run(
        "vllm-19254-ngram-v1log", n, tmp_path, lambda text, _: reprefixed(tripled(text, *V1))
    )

    expected = [
        (129, 150, 387, 0.3876, 2.163, 2676, 0.104, 337, 633),
        (496, 725, 1488, 0.4872, 2.462, 8260, 0.148, 629, 226),
        (2901, 5306, 8703, 0.6097, 2.829, 33991, 0.241, 610, 0),
    ]
    assert len(result["windows"]) == 3
    for window, facts in zip(result["windows"], expected, strict=True):
        drafts, accepted, proposed, rate, mean, generated, coverage, running, waiting = facts
        assert window["k"] == 3
        assert (window["drafts"], window["accepted"]) == (drafts * n, accepted * n)
        assert (window["proposed"], window["generated"]) == (proposed * n, generated * n)
        assert window["emitted"] == (drafts + accepted) * n
        assert window["acceptance_rate"] == pytest.approx(rate, abs=1e-4)
        assert window["mean_length"] == pytest.approx(mean, abs=5e-4)
        assert window["coverage"] == pytest.approx(coverage, abs=6e-4)
        assert (window["running"], window["waiting"]) == (running * n, waiting * n)
    assert sum(result["windows"][0]["position_rates"]) == pytest.approx(1.164, abs=0.002)
    assert sum(result["windows"][1]["position_rates"]) == pytest.approx(1.462, abs=0.002)
    assert result["windows"][2]["position_rates"] == [0.730, None, None]
    totals = result["totals"]
    assert (totals["drafts"], totals["accepted"], totals["proposed"]) == (
        3526 * n,
        6181 * n,
        10578 * n,
    )
    assert totals["acceptance_rate"] == pytest.approx(0.5843, abs=1e-4)
    assert totals["mean_length"] == pytest.approx(2.753, abs=5e-4)
    assert {"LOW_COVERAGE", "TORN_LINE", "NO_BASELINE"} <= codes(result)
    assert evidence(result, "LOW_COVERAGE")["gain_bound"] == pytest.approx(
        44927 / (44927 - 6181), abs=1e-4
    )
    assert actions(result) == ["collect_baseline"]
    assert any("proven" in reason for reason in result["verdicts"][0]["reasons"])


@pytest.mark.parametrize("n", FACTORS)
def test_v0_counters_become_differences_and_prefix_acceptance(n, tmp_path):
    result = run(
        "vllm-7540-v0log-cumulative",
        n,
        tmp_path,
        lambda text, _: reprefixed(
            tripled(text, r"(?:accepted|draft|emitted) tokens: (\d+)", V1[4])
        ),
        only=["vllm_v0.log"],
    )

    first, second = result["windows"]
    for window, rounds, accepted, rate, mean in (
        (first, 662, 1487, 0.562, 3.246),
        (second, 583, 1342, 0.575, 3.302),
    ):
        assert (window["k"], window["drafts"], window["accepted"]) == (4, rounds * n, accepted * n)
        assert window["acceptance_rate"] == pytest.approx(rate, abs=6e-4)
        assert window["mean_length"] == pytest.approx(mean, abs=6e-4)
    totals = result["totals"]
    assert (totals["drafts"], totals["accepted"]) == (1245 * n, 2829 * n)
    assert totals["acceptance_rate"] == pytest.approx(0.568, abs=5e-4)
    assert totals["mean_length"] == pytest.approx(3.272, abs=5e-4)
    assert (second["seconds"], second["emitted"]) == (5.0, 1925 * n)
    assert second["throughput_tok_s"] == pytest.approx(385 * n)
    assert evidence(result, "V0_THROUGHPUT_UNDERCOUNT")["printed_tok_s"] == pytest.approx(146.7 * n)
    printed = evidence(result, "V0_ACCEPTANCE_NOT_PREFIX")["items"]
    assert [item["printed_rate"] for item in printed] == [
        pytest.approx(0.655, abs=5e-4),
        pytest.approx(0.657, abs=5e-4),
    ]
    assert [item["efficiency"] for item in printed] == [0.649, 0.660]
    assert result["comparisons"] == []
    assert actions(result) == ["collect_baseline"]


@pytest.mark.parametrize("n", FACTORS)
def test_single_v0_lines_of_several_engines_are_kept_apart(n, tmp_path):
    result = run(
        "vllm-7540-v0log-cumulative",
        n,
        tmp_path,
        lambda text, _: shuffled(tripled(text, r"(?:accepted|draft|emitted) tokens: (\d+)")),
        only=["vllm_v0_single_lines.log"],
    )

    by_k = {}
    for window in result["windows"]:
        own = by_k.setdefault(window["k"], [0, 0, 0])
        own[0] += window["drafts"]
        own[1] += window["accepted"]
        own[2] += window["emitted"]
    assert by_k == {
        4: [13429 * n, 20815 * n, 34244 * n],
        3: [4437 * n, 6179 * n, 10616 * n],
        5: [3 * n, 0, 3 * n],
    }
    four = next(w for w in result["windows"] if w["k"] == 4)
    three = next(w for w in result["windows"] if w["k"] == 3)
    five = [w for w in result["windows"] if w["k"] == 5]
    assert (four["acceptance_rate"], four["mean_length"]) == (
        pytest.approx(0.388, abs=6e-4),
        pytest.approx(2.55, abs=6e-4),
    )
    assert (three["acceptance_rate"], three["mean_length"]) == (
        pytest.approx(0.464, abs=6e-4),
        pytest.approx(2.393, abs=6e-4),
    )
    assert all(w["acceptance_rate"] == 0 and w["mean_length"] == 1 for w in five)


@pytest.mark.parametrize("n", FACTORS)
def test_every_v1_spelling_becomes_one_record_with_nulls_for_what_it_lacks(n, tmp_path):
    result = run(
        "vllm-v1-log-format-drift", n, tmp_path, lambda text, _: reprefixed(tripled(text, *V1))
    )

    windows = {(w["proposed"], w["start"]): w for w in result["windows"]}
    bare = [w for w in result["windows"] if w["proposed"] == 66 * n]
    assert [(w["k"], w["drafts"], w["mean_length"]) for w in bare] == [(None, None, None)] * 2
    assert [w["acceptance_rate"] for w in bare] == [1.0, 1.0]
    facts = [
        (3, 129, 150, 387, 0.388, 2.163, None, "06-06 14:20:34"),
        (5, 59, 262, 295, 0.888, 5.441, 60.0, "09-09 11:51:35"),
        (2, 217, 419, 434, 0.965, 2.931, 10.0, "04-29 11:30:43"),
        (2, 52, 69, 104, 0.663, 2.327, 10.0, "04-29 11:30:53"),
    ]
    for k, drafts, accepted, proposed, rate, mean, seconds, start in facts:
        window = windows[proposed * n, start]
        assert (window["k"], window["drafts"], window["accepted"]) == (k, drafts * n, accepted * n)
        assert window["acceptance_rate"] == pytest.approx(rate, abs=6e-4)
        assert window["mean_length"] == pytest.approx(mean, abs=6e-4)
        assert window["seconds"] == (pytest.approx(seconds, abs=0.06) if seconds else None)
    if n == 1:
        assert windows[434, "04-29 11:30:43"]["accepted_at"] == [213, 206]
    covered = windows[104 * n, "04-29 11:30:53"]
    assert covered["coverage"] == pytest.approx(1.0, abs=0.01)
    assert covered["running"] is None
    quiet = windows[0, "04-29 11:31:03"]
    assert (quiet["drafts"], quiet["acceptance_rate"], quiet["mean_length"]) == (0, None, None)
    assert {"STATE_NOT_WINDOW", "NO_SPECULATION_SEEN", "INCOMPLETE_COUNTS"} <= codes(result)


def test_a_window_that_prints_nan_is_stored_as_unknown(tmp_path):
    path = tmp_path / "vllm.log"
    path.write_text(
        "INFO 01-01 00:00:10 [metrics.py:96] SpecDecoding metrics: Draft acceptance rate: nan%, "
        "Mean acceptance length: nan, Accepted: 0 tokens, Drafted: 0 tokens, "
        "Per-position acceptance rate: nan, nan\n"
    )
    from specscope.analyze.collect import analyze

    window = analyze([str(path)]).as_json()["windows"][0]

    assert window["acceptance_rate"] is None
    assert window["mean_length"] is None
    assert window["drafts"] == 0


@pytest.mark.parametrize("n", FACTORS)
def test_engines_are_summed_before_dividing_whatever_their_order(n, tmp_path):
    def change(text, _):
        text = tripled(text, r"\} (\d+\.\d)")
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        return "\n".join(reversed(lines)).replace('"m"', '"other/model"') + "\n"

    result = run("speculators-1095-dp2-per-position", n, tmp_path, change)

    totals = result["totals"]
    assert (totals["drafts"], totals["accepted"], totals["k"]) == (30 * n, 26 * n, 1)
    assert totals["position_rates"] == [pytest.approx(26 / 30)]
    assert totals["mean_length"] == pytest.approx(1 + 26 / 30)
    assert totals["mean_length"] == pytest.approx(1 + sum(totals["position_rates"]))
    assert {w["engine_index"]: w["drafts"] for w in result["windows"]} == {0: 10 * n, 1: 20 * n}
    assert "AGGREGATION_DEFECT" not in codes(result)
    assert actions(result) == ["collect_baseline"]


@pytest.mark.parametrize("n", FACTORS)
def test_two_benchmark_results_are_compared_with_each_other_only(n, tmp_path):
    counts = (
        "spec_decode_num_drafts",
        "spec_decode_draft_tokens",
        "spec_decode_accepted_tokens",
        "num_prompts",
    )
    result = run("vllm-41044-bench-json", n, tmp_path, lambda text, _: tripled_json(text, *counts))

    a, b = result["windows"]
    assert (a["drafts"], a["proposed"], a["accepted"]) == (6774 * n, 13548 * n, 1393 * n)
    assert (b["drafts"], b["proposed"], b["accepted"]) == (4113 * n, 8226 * n, 4062 * n)
    assert a["acceptance_rate"] == pytest.approx(0.1028, abs=1e-4)
    assert b["acceptance_rate"] == pytest.approx(0.4938, abs=1e-4)
    assert (a["mean_length"], b["mean_length"]) == (
        pytest.approx(1.206, abs=5e-4),
        pytest.approx(1.988, abs=5e-4),
    )
    assert sum(a["position_rates"]) == pytest.approx(0.2057)
    assert sum(b["position_rates"]) == pytest.approx(0.9876)
    assert (a["emitted"], b["emitted"]) == (8167 * n, 8175 * n)
    assert (a["round_ms"], b["round_ms"]) == (
        pytest.approx(9.62, abs=0.005),
        pytest.approx(10.24, abs=0.005),
    )
    assert speedups(result, "throughput_tok_s")["probabilistic_proposal"] == pytest.approx(
        1.488, abs=5e-4
    )
    assert 1 / speedups(result, "tpot_ms")["probabilistic_proposal"] == pytest.approx(
        1 - 0.355, abs=5e-4
    )
    assert {"DRAFT_MISMATCH", "NO_BASELINE"} <= codes(result)
    assert actions(result) == ["collect_baseline"]


@pytest.mark.parametrize("n", FACTORS)
def test_verdicts_differ_by_context_and_k0_rounds_are_no_baseline(n, tmp_path):
    renamed = {
        "no_spec": "baseline",
        "static_k3": "fixed_k3",
        "dsd_batch": "by_batch",
        "dsd_2d": "by_both",
        "dsd_k0": "adaptive_idle",
    }
    columns = ("output_tok_s", "mean_tpot_ms")
    result = run(
        "vllm-49986-context-by-arm",
        n,
        tmp_path,
        lambda text, _: tripled_csv(text, columns, renamed.items()),
    )

    name = renamed.get if n > 1 else (lambda arm: arm)
    found = {
        (c["class"].get("context"), c["arm"]): c["speedup"]
        for c in result["comparisons"]
        if c["metric"] == "throughput_tok_s"
    }
    facts = {
        400: (0.789, 0.692, 0.697),
        900: (0.925, 0.731, 0.943),
        1900: (1.004, 0.780, 1.018),
        4000: (1.102, 0.803, 1.094),
    }
    for context, expected in facts.items():
        for arm, speedup in zip(("static_k3", "dsd_batch", "dsd_2d"), expected, strict=True):
            assert found[context, name(arm)] == pytest.approx(speedup, abs=6e-4)
    verdicts = {v["class"]["context"]: v for v in result["verdicts"]}
    assert {c: v["action"] for c, v in verdicts.items()} == {
        400: "disable",
        900: "disable" if n == 1 else "inconclusive",  # other names say nothing of drafts
        1900: "inconclusive",
        4000: "keep",
    }
    assert verdicts[4000]["k"] == 3
    taxes = {
        i["class"]["concurrency"]: i["tax"] for i in evidence(result, "K0_IS_NOT_BASELINE")["items"]
    }
    assert taxes == {2: pytest.approx(0.0656, abs=1e-4), 189: pytest.approx(0.2158, abs=2e-4)}
    assert evidence(result, "VERDICT_VARIES")["dimension"] == "context"


@pytest.mark.parametrize("n", FACTORS)
def test_tokens_behind_the_end_of_the_text_are_told_apart(n, tmp_path):
    def change(text, _):
        line = text.strip().replace('"r1"', '"other"')
        return "\n".join([line] * 3) + "\n"

    result = run("vllm-56101-eos-overcount", n, tmp_path, change)

    totals = result["totals"]
    assert (totals["accepted"], totals["emitted"], totals["drafts"]) == (5 * n, 3 * n, n)
    assert totals["mean_length"] == 6.0
    found = evidence(result, "EOS_OVERCOUNT")
    assert (found["overcount"], found["counted"], found["emitted"]) == (3 * n, 6 * n, 3 * n)
    assert found["bound_per_request"] == 5
    assert "3.00 tokens per round came out" in result["verdicts"][0]["reasons"][0]


@pytest.mark.parametrize("n", FACTORS)
def test_latency_per_request_is_not_compared_where_outputs_differ(n, tmp_path):
    result = run(
        "vllm-6494-not-comparable",
        n,
        tmp_path,
        lambda text, _: tripled_csv(
            text,
            ("num_requests", "throughput_tok_s", "decode_tok_s", "output_tokens"),
            {"baseline": "off", "ngram_k8": "lookup_k8"}.items(),
        ),
    )

    eight = "ngram_k8" if n == 1 else "lookup_k8"
    latency = next(c for c in result["comparisons"] if c["metric"] == "latency_ms")
    assert latency["speedup"] == pytest.approx(1567.14 / 1360.0, abs=1e-4)
    assert latency["comparable"] is False
    assert 1 / speedups(result, "tpot_ms")[eight] == pytest.approx(1.50, abs=0.002)
    assert speedups(result, "throughput_tok_s")[eight] == pytest.approx(0.62, abs=0.001)
    assert speedups(result, "throughput_tok_s")["ngram_k5"] == pytest.approx(0.885, abs=5e-4)
    found = evidence(result, "OUTPUTS_DIFFER")
    assert found["baseline_tokens"] == pytest.approx(104.0, abs=0.05)
    assert found["arm_tokens"] == pytest.approx(59.6, abs=0.05)
    assert actions(result) == ["disable", "disable"]
