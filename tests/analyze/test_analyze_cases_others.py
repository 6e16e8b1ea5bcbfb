"""SGLang, llama.cpp, TensorRT-LLM, traces, devices and the store. Facts worked out by hand."""

import json

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

LLAMA = (
    r"ms /\s+(\d+) (?:tokens|runs)",
    r"(\d+) accepted",
    r"/\s+(\d+) generated",
    r"time =\s+([\d.]+) ms",
)
STATISTICS = (
    r"#(?:gen|acc) (?:drafts|tokens) =\s+(\d+)",
    r"dur\(b,g,a\) = [\d.]+, ([\d.]+)",
)


@pytest.mark.parametrize("n", FACTORS)
def test_sglang_rates_are_made_strict_and_the_idle_first_line_is_dropped(n, tmp_path):
    def change(text, _):
        text = tripled(text, r"#running-req: (\d+), #token", r"\(token/s\): ([\d.]+)")
        return text.replace("Decode batch.", "Decode batch,").replace(" TP0]", " DP2 TP0]")

    result = run("sglang-11948-decode-log", n, tmp_path, change)

    windows = result["windows"]
    strict = [0.39, 0.317, 0.267, 0.35, 0.267, 0.19]
    assert [w["acceptance_rate"] for w in windows] == [
        pytest.approx(rate, abs=5e-4) for rate in strict
    ]
    assert [w["mean_length"] for w in windows] == [2.17, 1.95, 1.80, 2.05, 1.80, 1.57]
    assert {w["k"] for w in windows} == {3}
    assert {w["engine_index"] for w in windows} == {None if n == 1 else 2}
    rounds = [10.90, 10.88, 10.86, 10.87]
    assert [w["round_ms"] for w in windows[1:5]] == [pytest.approx(ms, abs=0.006) for ms in rounds]
    assert (windows[0]["throughput_tok_s"], windows[0]["round_ms"]) == (None, None)
    assert (windows[5]["throughput_tok_s"], windows[5]["round_ms"]) == (None, None)
    assert result["totals"]["mean_length"] == pytest.approx(1.834, abs=5e-4)
    assert evidence(result, "BREAK_EVEN")["break_even_step_ms"] == pytest.approx(5.93, abs=0.01)
    definition = evidence(result, "ACCEPT_RATE_BONUS_INCLUDED")
    assert (definition["accept_rate_definition"], definition["k"]) == ("bonus_included", 3)
    assert "IDLE_WINDOW" in codes(result)
    assert actions(result) == ["collect_baseline"]


@pytest.mark.parametrize("n", FACTORS)
def test_a_client_that_reports_zero_does_not_overrule_the_server(n, tmp_path):
    def change(text, name):
        return text.replace("req-1", "request-77").replace("#token: 64", "#token: 192")

    result = run("sglang-13754-client-zero", n, tmp_path, change)

    assert (result["totals"]["k"], result["totals"]["acceptance_rate"]) == (4, pytest.approx(0.75))
    assert result["totals"]["mean_length"] == 4.0
    client = next(w for w in result["windows"] if w["input"].endswith("client_meta.json"))
    assert (client["mean_length"], client["acceptance_rate"]) == (None, None)
    assert evidence(result, "SOURCE_DEFECT")["spec_accept_length"] == 0
    assert actions(result) == ["collect_baseline"]


@pytest.mark.parametrize("n", FACTORS)
def test_gauges_of_an_idle_engine_without_speculation_make_no_row(n, tmp_path):
    def change(text, _):
        body = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
        return shuffled(tripled(body, r"\} (178\.86)")).replace('"m"', '"other"')

    result = run("sglang-metrics-spec-off", n, tmp_path, change)

    assert result["windows"] == []
    assert {"SPEC_INACTIVE", "STALE_GAUGE", "DUPLICATE_RANKS"} <= codes(result)
    assert evidence(result, "STALE_GAUGE")["gen_throughput"] == pytest.approx(178.86 * n)
    assert actions(result) == ["no_data"]


@pytest.mark.parametrize("n", FACTORS)
def test_high_load_asks_for_a_shorter_draft_and_tp_changes_the_verdict(n, tmp_path):
    result = run(
        "sglang-6995-highload-k",
        n,
        tmp_path,
        lambda text, _: tripled_csv(
            text,
            ("req_per_s", "tok_s"),
            {"none": "off", "naive": "fused", "eagle": "draft"}.items(),
        ),
    )

    by_rate = speedups(result, "request_s")
    assert by_rate["eagle_a"] == pytest.approx(0.839, abs=5e-4)
    assert by_rate["eagle_b"] == pytest.approx(0.903, abs=5e-4)
    assert by_rate["naive" if n == 1 else "fused"] == pytest.approx(1.097, abs=5e-4)
    verdicts = {v["class"].get("tp"): v for v in result["verdicts"]}
    assert verdicts[None]["action"] == "inconclusive"  # one run each, within 10 %
    assert (verdicts[1]["action"], verdicts[4]["action"]) == ("keep", "inconclusive")
    scaling = {c["class"]["tp"]: c["speedup"] for c in result["comparisons"] if "tp" in c["class"]}
    assert scaling == {1: pytest.approx(1.43, abs=0.002), 4: pytest.approx(0.967, abs=5e-4)}
    assert evidence(result, "CONFIG_DIFFERS")["settings"] == ["topk"]
    assert evidence(result, "VERDICT_VARIES")["dimension"] == "tp"


@pytest.mark.parametrize("n", FACTORS)
def test_idle_inside_the_verify_graph_is_told_from_gaps_between_launches(n, tmp_path):
    def change(text, _):
        trace = json.loads(text)
        events = []
        for copy in range(3):
            for event in trace["traceEvents"]:
                event = {**event, "args": dict(event["args"])}
                event["ts"] += copy * 2 * 13720
                event["name"] = (
                    event["name"]
                    .replace("draft_graph_kernel", "kernel_a")
                    .replace("verify_graph_kernel", "kernel_b")
                    .replace("step[DECODE bs=1]", "cycle[bs=4]")
                )
                if "correlation" in event["args"]:
                    event["args"]["correlation"] += copy * 1000
                events.append(event)
        return json.dumps({**trace, "traceEvents": events[::-1]})

    result = run("sglang-29960-kineto", n, tmp_path, change)

    time = result["time"]
    parts = evidence(result, "TIME_PARTS")
    assert time["rounds"] == 2 * n
    assert time["draft_ms"] == pytest.approx(1.427)
    assert time["verify_ms"] == pytest.approx(11.204)
    assert time["idle_ms"] == pytest.approx(1.089)
    assert time["idle_share"] == pytest.approx(0.079, abs=5e-4)
    assert time["trace_coverage"] == 1.0
    assert parts["round_ms"] == pytest.approx(13.72)
    assert parts["verify_span_ms"] == pytest.approx(12.049)
    assert parts["idle_in_verify_graph_ms"] == pytest.approx(0.845)
    assert parts["idle_outside_ms"] == pytest.approx(0.244)
    assert parts["busy_share"] == pytest.approx(0.921, abs=5e-4)
    assert evidence(result, "IDLE_IN_GRAPH")["inside_verify"] == pytest.approx(0.78, abs=5e-3)
    assert evidence(result, "SLOW_LAUNCH")["host_launch_ms"] == pytest.approx(2.826)
    assert "IDLE_GAPS" not in codes(result)
    assert ("TRACE_BY_STRUCTURE" in codes(result)) == (n > 1)


@pytest.mark.parametrize("n", FACTORS)
def test_a_repeated_prompt_is_left_out_of_the_speed(n, tmp_path):
    result = run(
        "llamacpp-10455-repeat-inflation", n, tmp_path, lambda text, _: tripled(text, *LLAMA)
    )

    assert result["totals"]["throughput_tok_s"] == pytest.approx(46.65, abs=0.005)
    assert [w["throughput_tok_s"] for w in result["windows"]] == [
        pytest.approx(46.65, abs=0.005),
        pytest.approx(167.50, abs=0.005),
        pytest.approx(167.34, abs=0.005),
    ]
    assert [w["generated"] for w in result["windows"]] == [440 * n] * 3
    assert [w["excluded"] for w in result["windows"]] == [
        None,
        "repeated prompt",
        "repeated prompt",
    ]
    assert evidence(result, "REPEATED_PROMPT")["ratio"] == pytest.approx(3.59, abs=0.005)


@pytest.mark.parametrize("n", FACTORS)
def test_steps_that_are_not_printed_are_estimated_and_said_to_be(n, tmp_path):
    def change(text, name):
        if name.endswith(".log"):
            return tripled(text, *LLAMA).replace("task 0", "task 451")
        keys = ("predicted_n", "predicted_ms", "draft_n", "draft_n_accepted")
        return tripled_json(text, *keys)

    result = run("llamacpp-12603-timings-json", n, tmp_path, change)

    windows = {w["input"].rpartition(".")[2]: w for w in result["windows"]}
    facts = {"json": (65, 347, 0.187, 1.48, 82.1, 18.0), "log": (70, 304, 0.230, 1.54, 75.7, 20.3)}
    for kind, (accepted, proposed, rate, mean, round_ms, tok_s) in facts.items():
        window = windows[kind]
        assert (window["accepted"], window["proposed"]) == (accepted * n, proposed * n)
        assert window["acceptance_rate"] == pytest.approx(rate, abs=6e-4)
        assert window["mean_length"] == pytest.approx(mean, abs=0.005)
        assert window["round_ms"] == pytest.approx(round_ms, abs=0.05)
        assert window["throughput_tok_s"] == pytest.approx(tok_s, abs=0.05)
        assert window["drafts"] is None
        assert set(window["estimated"]) == {"mean_length", "round_ms"}
    estimates = {
        f["evidence"]["input"].rpartition(".")[2]: f["evidence"]
        for f in result["findings"]
        if f["code"] == "MEAN_LENGTH_ESTIMATED"
    }
    assert estimates["json"]["steps"] == 135 * n
    assert estimates["json"]["proposed_per_step"] == pytest.approx(2.57, abs=0.001)
    assert {"LLAMACPP_DENOMINATOR", "PROMPT_FROM_CACHE"} <= codes(result)
    assert set(actions(result)) == {"collect_baseline"}


@pytest.mark.parametrize("n", FACTORS)
def test_drafters_are_told_apart_and_cumulative_lines_are_not_a_requests_own(n, tmp_path):
    def change(text, _):
        text = tripled(text, *LLAMA, *STATISTICS)
        return text.replace("[53409]", "[77]").replace("draft-eagle3", "draft-other")

    result = run("llamacpp-24536-per-position-log", n, tmp_path, change)

    new = [w for w in result["windows"] if w["input"].endswith("server.log")]
    own, drafter = new
    assert (own["accepted"], own["proposed"], own["drafts"]) == (167 * n, 259 * n, 87 * n)
    assert own["acceptance_rate"] == pytest.approx(0.6448, abs=5e-5)
    assert own["mean_length"] == pytest.approx(2.920, abs=5e-4)
    if n == 1:
        assert own["accepted_at"] == [70, 55, 42]
    assert own["position_rates"] == [pytest.approx(r, abs=6e-4) for r in (0.805, 0.632, 0.483)]
    assert own["generated"] - own["emitted"] == 2 * n
    assert own["draft_ms"] == pytest.approx(3.74, abs=0.005)
    assert own["round_ms"] == pytest.approx(26.4, abs=0.05)
    assert drafter["excluded"]
    shares = [f["evidence"] for f in result["findings"] if f["code"] == "DRAFT_SHARE"]
    assert sorted(e["share"] for e in shares) == [
        pytest.approx(0.142, abs=5e-4),
        pytest.approx(0.216, abs=5e-4),
    ]
    old = {w["label"]: w for w in result["windows"] if w["input"].endswith("drafters.log")}
    task, mtp, mod, never = (old[k] for k in (None, "draft-mtp", "ngram-mod", "ngram-map-k"))
    assert (task["accepted"], task["proposed"]) == (118 * n, 144 * n)
    assert task["acceptance_rate"] == pytest.approx(0.819, abs=5e-4)
    assert task["round_ms"] == pytest.approx(193.6, abs=0.05)
    assert (mtp["accepted"], mtp["proposed"], mtp["drafts"]) == (1135 * n, 1447 * n, 727 * n)
    assert mtp["acceptance_rate"] == pytest.approx(0.784, abs=5e-4)
    assert mtp["draft_ms"] == pytest.approx(41.8, abs=0.05)
    assert mod["acceptance_rate"] == pytest.approx(0.224, abs=5e-4)
    assert (never["drafts"], never["acceptance_rate"]) == (0, None)
    assert result["totals"]["drafts"] == 87 * n
    assert set(actions(result)) == {"collect_baseline"}


@pytest.mark.parametrize("n", FACTORS)
def test_old_timings_rank_verification_before_host_sampling(n, tmp_path):
    result = run("llamacpp-3649-a100-timings", n, tmp_path, lambda text, _: tripled(text, *LLAMA))

    parts = evidence(result, "TIME_PARTS")
    assert parts["accounted_ms"] == pytest.approx(2812.57 * n, abs=0.02)
    assert parts["total_ms"] == pytest.approx(2924.72 * n)
    assert parts["parts_ms"]["unaccounted"] == pytest.approx(112.15 * n, abs=0.02)
    assert parts["shares"]["unaccounted"] == pytest.approx(0.038, abs=5e-4)
    assert parts["ranked"][:2] == ["target_verify", "draft_sample"]
    assert parts["shares"]["target_verify"] == pytest.approx(0.663, abs=5e-4)
    assert parts["shares"]["draft_sample"] == pytest.approx(0.179, abs=6e-4)
    assert parts["shares"]["draft_eval"] == pytest.approx(0.110, abs=5e-4)
    verify = evidence(result, "VERIFY_NOT_ONE_STEP")
    assert verify["verify_ms_per_token"] == pytest.approx(5.52, abs=0.005)
    assert (verify["step_ms"], verify["step_tok_s"]) == (
        pytest.approx(13.19),
        pytest.approx(75.8, abs=0.05),
    )
    assert evidence(result, "HOST_SAMPLING")["draft_ms_per_forward"] == pytest.approx(
        1.49, abs=0.005
    )
    assert result["time"]["rounds"] is None
    assert actions(result) == ["collect_baseline"]


@pytest.mark.parametrize("n", FACTORS)
def test_the_verify_curve_predicts_and_the_residual_is_shown(n, tmp_path):
    keys = ("n_predict", "n_drafted", "n_accept", "decode_s")
    result = run("llamacpp-3649-cost-model", n, tmp_path, lambda text, _: tripled_json(text, *keys))

    totals = result["totals"]
    assert (totals["drafts"], totals["accepted"], totals["proposed"]) == (52 * n, 208 * n, 260 * n)
    assert (totals["acceptance_rate"], totals["mean_length"]) == (
        pytest.approx(0.8),
        pytest.approx(5.0),
    )
    assert result["comparisons"][0]["speedup"] == pytest.approx(1.675, abs=5e-4)
    model = evidence(result, "VERIFY_NOT_ONE_STEP")
    assert model["draft_ms"] == pytest.approx(8.07, abs=0.005)
    assert model["verify_ms"] == pytest.approx(41.08, abs=0.006)
    assert model["predicted_round_ms"] == pytest.approx(49.2, abs=0.05)
    assert model["predicted_tok_s"] == pytest.approx(101.7, abs=0.05)
    assert model["predicted_speedup"] == pytest.approx(1.94, abs=0.005)
    assert model["measured_round_ms"] == pytest.approx(57.1, abs=0.05)
    assert model["residual_ms"] == pytest.approx(7.9, abs=0.05)
    assert model["residual_share"] == pytest.approx(0.14, abs=0.005)
    assert model["closed_form_speedup"] == pytest.approx(2.16, abs=0.005)
    assert model["step_ms"] == pytest.approx(19.0, abs=0.05)
    assert model["verify_steps"] == pytest.approx(2.16, abs=0.005)
    assert model["predicted_if_one_step_tok_s"] == pytest.approx(185, abs=1)
    assert (actions(result), result["verdicts"][0]["k"]) == (["keep"], 5)


@pytest.mark.parametrize("n", FACTORS)
def test_slow_runs_are_put_down_to_round_time_not_to_the_drafter(n, tmp_path):
    result = run(
        "omlx-2689-verify-not-acceptance",
        n,
        tmp_path,
        lambda text, _: tripled_csv(
            text,
            ("backbone_ms", "accepted", "drafted", "cycles"),
            {"mtp_on_tq_off": "run_b", "slow_1239": "run_d"}.items(),
        ),
    )

    windows = sorted(result["windows"], key=lambda w: w["throughput_tok_s"], reverse=True)
    rates = [0.854, 0.885, 0.868, 0.815]
    assert [w["acceptance_rate"] for w in windows] == [
        pytest.approx(rate, abs=6e-4) for rate in rates
    ]
    assert [round(w["round_ms"]) for w in windows] == [122, 219, 211, 234]
    assert [w["emitted"] / n for w in windows] == [pytest.approx(128, abs=1)] * 4
    found = evidence(result, "ROUND_COST_EXPLAINS")
    assert found["throughput_spread"] == pytest.approx(2.11, abs=0.005)
    assert found["round_ms_spread"] == pytest.approx(1.91, abs=0.005)
    assert found["tokens_per_round_spread"] == pytest.approx(1.23, abs=0.006)
    assert found["acceptance_range"] == pytest.approx(0.07, abs=0.005)
    assert found["highest_acceptance"] == ("mtp_on_tq_off" if n == 1 else "run_b")
    assert found["faster_runs_than_it"] == 1
    assert actions(result) == ["collect_baseline"]
    assert any("keep k" in reason for reason in result["verdicts"][0]["reasons"])


@pytest.mark.parametrize("n", FACTORS)
def test_idle_is_unknown_without_enough_coverage(n, tmp_path):
    result = run(
        "tracelens-728-idle-artifact",
        n,
        tmp_path,
        lambda text, _: tripled_json(text, "graph_launches", "kernel_events").replace(
            "tool_a", "x"
        ),
    )

    assert (result["time"]["idle_ms"], result["time"]["idle_share"]) == (None, None)
    found = evidence(result, "TRACE_UNDER_RECORDED")
    assert found["kernels_per_launch"] == pytest.approx(1049)
    assert sorted(found["idle_claims"].values()) == [
        pytest.approx(0.01),
        pytest.approx(0.26),
        pytest.approx(0.907),
    ]
    assert not {"IDLE_GAPS", "IDLE_IN_GRAPH"} & codes(result)
    assert actions(result) == ["no_data"]


@pytest.mark.parametrize("n", FACTORS)
def test_iterations_are_weighted_and_a_stale_draft_latency_is_dropped(n, tmp_path):
    counts = (
        "numDraftTokens",
        "numAcceptedTokens",
        "numRequestsWithDraftTokens",
        "numGenRequests",
        "numContextRequests",
    )
    result = run("trtllm-iteration-stats", n, tmp_path, lambda text, _: tripled_json(text, *counts))

    totals = result["totals"]
    assert (totals["proposed"], totals["accepted"], totals["drafts"]) == (27 * n, 15 * n, 9 * n)
    assert totals["acceptance_rate"] == pytest.approx(0.556, abs=5e-4)
    assert totals["mean_length"] == pytest.approx(2.667, abs=5e-4)
    printed = evidence(result, "PRINTED_MEAN_UNWEIGHTED")
    assert (printed["mean_of_printed"], printed["pooled"]) == (3.25, pytest.approx(2.667, abs=5e-4))
    prefill, *_, last = result["windows"]
    assert (prefill["drafts"], prefill["mean_length"]) == (0, None)
    assert (last["drafts"], last["acceptance_rate"]) == (0, None)
    assert (result["time"]["rounds"], result["time"]["draft_ms"]) == (2, 4.0)
    stale = evidence(result, "STALE_DRAFT_LATENCY")
    assert (stale["iterLatencyMS"], stale["draftOverhead"]) == (4.0, 0.2857)
    assert "DRAINING_ENDPOINT" in codes(result)
    assert actions(result) == ["collect_baseline"]


@pytest.mark.parametrize("n", FACTORS)
def test_profiling_counters_stuck_at_zero_are_unknown(n, tmp_path):
    def change(text, _):
        return (
            shuffled(text)
            .replace("GPU-0000", "GPU-abcd")
            .replace("GR_ENGINE_ACTIVE", "GR_ENGINE_UTIL_RATIO")
        )

    result = run("dcgm-662-prof-zero", n, tmp_path, change)

    values = {(d["uuid"][-1], "PROF" in d["field"]): d for d in result["devices"]}
    assert (values["0", False]["value"], values["1", False]["value"]) == (99, 100)
    assert values["0", False]["unit"] == "%"
    for gpu in "01":
        assert values[gpu, True]["value"] is None
        assert values[gpu, True]["unit"] == "ratio"
        assert values[gpu, True]["reason"] == "suspect: stuck at zero"
    assert "COUNTER_STUCK" in codes(result)
    assert actions(result) == ["no_data"]


@pytest.mark.parametrize("n", FACTORS)
def test_an_unsupported_memory_field_is_unknown_and_the_others_stay(n, tmp_path):
    def change(text, _):
        header, *rows = text.splitlines()
        later = [row.replace("14:08", f"14:{minute:02d}") for minute in (8, 9, 10) for row in rows]
        return "\n".join([header, *later]) + "\n"

    result = run("gb10-nvidia-smi-na", n, tmp_path, change)

    devices = {d["field"]: d for d in result["devices"]}
    assert devices["utilization.gpu"]["value"] == pytest.approx(0.4)
    assert (devices["memory.used"]["value"], devices["memory.used"]["samples"]) == (None, 5 * n)
    assert devices["memory.used"]["reason"].startswith("unsupported")
    assert devices["temperature.gpu"]["value"] == 38
    times = evidence(result, "LOCAL_TIME")
    assert times["samples"] == 5 * n
    if n == 1:
        assert (times["shortest_gap_s"], times["longest_gap_s"]) == (1.0, 1.005)
    assert "unified" in next(
        f["text"] for f in result["findings"] if f["code"] == "UNSUPPORTED_FIELD"
    )


@pytest.mark.parametrize("n", FACTORS)
def test_too_many_parts_is_put_down_to_small_inserts(n, tmp_path):
    def change(text, _):
        return text.replace("parts (10001", "parts (30003").replace("time_series_v4_1week", "other")

    result = run("signoz-7983-too-many-parts", n, tmp_path, change)

    found = evidence(result, "TOO_MANY_PARTS")
    assert (found["parts"], found["average_kib"], found["code"]) == (10001 * n, 12.94, 252)
    assert found["total_mib"] == pytest.approx(126.38 * n, abs=0.06)
    assert found["retryable_now"] is False
