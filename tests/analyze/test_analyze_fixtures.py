"""Real outputs of real engines: every speculation line is read, and identities hold everywhere."""

from pathlib import Path

import pytest

from specscope.analyze.collect import analyze

DATA = Path(__file__).parents[1] / "data" / "readers"
FIXTURES = sorted(p for p in (DATA / "fixtures").rglob("*") if p.is_file())
ALL = FIXTURES + sorted(p for p in (DATA / "cases").rglob("*") if p.is_file() and p.suffix != ".md")
SCRAPE_OF_ZEROS = "before.prom"


def name(path):
    return str(path.relative_to(DATA))


@pytest.mark.parametrize("path", FIXTURES, ids=name)
def test_no_speculation_line_of_a_fixture_is_left_unparsed(path):
    result = analyze([str(path)]).as_json()

    assert result["inputs"][0]["records"] > 0
    assert result["inputs"][0]["unparsed_lines"] == 0
    assert not [f for f in result["findings"] if f["severity"] == "error"]


@pytest.mark.parametrize("path", ALL, ids=name)
def test_identities_hold_in_every_window_and_in_the_totals(path):
    result = analyze([str(path)]).as_json()

    windows = [*result["windows"], *filter(None, [result["totals"]])]
    for window in windows:
        drafts, accepted, mean = window["drafts"], window["accepted"], window["mean_length"]
        if drafts and accepted is not None:
            assert mean == pytest.approx(1 + accepted / drafts)
            positions = window["position_rates"]
            if positions and None not in positions:
                slack = 0.0006 * len(positions) + 1e-9
                assert mean == pytest.approx(1 + sum(positions), abs=slack)
        if drafts == 0:
            assert mean is None
            assert window["acceptance_rate"] is None
        if window["accepted_at"]:
            assert sum(window["accepted_at"]) == accepted
        for rate in ("acceptance_rate", "coverage"):
            assert window[rate] is None or 0 <= window[rate] <= 1
        if (
            window in result["windows"]
            and window["coverage"] is not None
            and window["coverage"] < 1
        ):
            expected = (drafts + accepted) / window["generated"]
            assert window["coverage"] == pytest.approx(expected, rel=0.03)
    assert not [f for f in result["findings"] if f["code"] == "AGGREGATION_DEFECT"]


def test_the_draft_model_log_of_vllm_adds_up():
    result = analyze([str(DATA / "fixtures/vllm-0.32/serve_draft_model.log")]).as_json()

    totals = result["totals"]
    assert (totals["drafts"], totals["proposed"], totals["accepted"]) == (421, 1263, 120)
    assert totals["accepted_at"] == [50, 35, 35]
    assert (result["inputs"][0]["engine"], result["inputs"][0]["engine_version"]) == (
        "vllm",
        "0.32.0",
    )
    # The first interval began with the server: 14.9 tok/s over 2.69 s are its 40 tokens.
    assert result["windows"][0]["coverage"] == pytest.approx(1.0, abs=0.01)
    assert result["windows"][2]["seconds"] == pytest.approx(26.0, abs=0.1)
    assert totals["round_ms"] == pytest.approx(10.9, abs=0.3)


def test_an_ngram_log_whose_drafts_vary_in_length_still_gives_exact_drafts():
    result = analyze([str(DATA / "fixtures/vllm-0.32/serve_ngram.log")]).as_json()

    window = result["windows"][0]
    assert (window["k"], window["drafts"], window["proposed"], window["accepted"]) == (4, 7, 23, 11)
    assert window["accepted_at"] == [7, 2, 1, 1]


def test_a_vllm_scrape_gives_the_time_of_a_round_from_its_latency_histogram():
    result = analyze([str(DATA / "fixtures/vllm-0.32/metrics.prom")]).as_json()

    totals = result["totals"]
    assert (totals["drafts"], totals["accepted"], totals["accepted_at"]) == (10, 30, [10, 10, 10])
    assert totals["round_ms"] == pytest.approx(11.945, abs=1e-3)
    assert totals["coverage"] == 1.0


def test_a_vllm_benchmark_result_turns_percent_into_a_rate():
    result = analyze([str(DATA / "fixtures/vllm-0.32/bench_serve.json")]).as_json()

    totals = result["totals"]
    assert totals["acceptance_rate"] == pytest.approx(90 / 1233)
    assert totals["accepted_at"] == [40, 25, 25]
    assert totals["coverage"] == pytest.approx(501 / 512)


def test_a_cpu_trace_gives_host_times_and_no_idle():
    result = analyze([str(DATA / "fixtures/vllm-0.32/torch_profiler_cpu.pt.trace.json")]).as_json()

    time = result["time"]
    assert time["rounds"] == 4
    assert time["draft_ms"] > time["verify_ms"] > time["sample_ms"] > 0
    assert (time["idle_ms"], time["idle_share"]) == (None, None)


def test_round_lines_of_llamacpp_give_exact_drafts_and_draft_time():
    result = analyze([str(DATA / "fixtures/llamacpp-11434/server_selfdraft.log")]).as_json()

    totals = result["totals"]
    assert (totals["drafts"], totals["proposed"], totals["accepted"]) == (52, 204, 200)
    assert totals["accepted_at"] == [52, 52, 48, 48]
    assert totals["draft_ms"] == pytest.approx(4740.05 / 52, abs=0.01)
    assert result["time"]["rounds"] == 52


def test_steps_without_a_draft_are_not_mixed_into_the_break_even():
    result = analyze([str(DATA / "fixtures/llamacpp-11434/server_ngram.log")]).as_json()

    even = next(f for f in result["findings"] if f["code"] == "BREAK_EVEN")["evidence"]
    tokens, seconds = 4 * 64, 1.02307 + 1.00976 + 1.62528 + 1.62236
    assert even == {
        "break_even_tok_s": pytest.approx(tokens / seconds, abs=0.01),
        "input": str(DATA / "fixtures/llamacpp-11434/server_ngram.log"),
    }


def test_two_scrapes_of_different_starts_in_one_file_are_counted_apart():
    result = analyze([str(DATA / "fixtures/llamacpp-11434/metrics_and_timings.txt")]).as_json()

    counters = [w for w in result["windows"] if w["grain"] == "counter"]
    assert [(w["drafts"], w["proposed"], w["accepted"]) for w in counters] == [
        (24, 172, 118),
        (52, 204, 200),
    ]
    assert result["totals"]["accepted"] == 318
    assert "COUNTER_RESET" in {f["code"] for f in result["findings"]}
