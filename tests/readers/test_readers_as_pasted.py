"""Lines as people paste them: older spellings, cut blocks, several runs, prose between."""

import json
import textwrap

import pytest
from reading import arms, codes, read, scrapes, unparsed, windows

from specscope.readers.logs.unwrap import is_wrapped, unwrapped
from specscope.readers.records import Finding, TimeParts


def test_the_first_spelling_of_v0_says_tokens_twice():
    line = (
        "INFO 07-24 04:00:31 metrics.py:316] Speculative metrics: Draft acceptance rate: 0.000, "
        "System efficiency: 0.059, Number of speculative tokens: 16, Number of accepted tokens: 0, "
        "Number of draft tokens tokens: 3200, Number of emitted tokens tokens: 200.\n"
    )

    (window,) = windows(line)

    assert (window.k, window.proposed, window.drafts, window.accepted) == (16, 3200, 200, 0)


def test_prose_about_draft_acceptance_is_no_line_of_an_engine():
    text = (
        "# why is the draft acceptance so low?\n"
        "draft acceptance rate = 0.50000 (   40 accepted /    80 generated)\n"
    )

    assert unparsed(text) == []
    assert windows(text)[0].acceptance_rate == 0.5


def test_a_quoted_end_of_a_speculation_line_gives_its_rates():
    (window,) = windows("Per-position acceptance rate: 0.800, 0.500, 0.250\n")

    assert window.k == 3
    assert window.mean_length == pytest.approx(2.55)
    assert windows("The Per-position acceptance rate: falls with depth\n") == []


RUN = (
    "n_draft   = {k}\nn_predict = {predict}\nn_drafted = {drafted}\nn_accept  = {accept}\n"
    "accept    = 50.000%\n\n{verb} {predict} tokens in   {seconds} seconds, speed: 10 t/s\n\n"
)


def test_two_runs_of_llama_speculative_in_one_file_are_two():
    first = RUN.format(k=4, predict=100, drafted=160, accept=60, verb="decoded", seconds="10.000")
    second = RUN.format(k=8, predict=90, drafted=320, accept=50, verb="decoded", seconds="18.000")

    one, two = windows(first + second)

    # 160 / 4 = 40 drafts and 60 accepted are the 100 tokens; the same with 40 and 50.
    assert (one.k, one.drafts, one.throughput_tok_s, one.round_ms) == (4, 40, 10, 250)
    assert (two.k, two.drafts, two.throughput_tok_s, two.round_ms) == (8, 40, 5, 450)


def test_the_first_versions_say_generated_where_later_ones_say_decoded():
    text = RUN.format(k=4, predict=100, drafted=160, accept=60, verb="generated", seconds="200.000")

    assert windows(text)[0].throughput_tok_s == 0.5


def test_drafts_shorter_than_asked_for_are_not_taken_for_few_full_ones():
    text = RUN.format(k=8, predict=136, drafted=112, accept=36, verb="decoded", seconds="10.000")

    (window,) = windows(text)

    # 112 / 8 = 14 full drafts would leave 86 of 136 tokens without a draft; a run drafts always.
    assert window.drafts is None
    assert window.mean_length == pytest.approx(136 / 100)
    assert window.round_ms == pytest.approx(100)
    assert "MEAN_LENGTH_ESTIMATED" in codes(text)


def test_a_cut_block_of_timings_has_no_shares():
    text = (
        "draft:\n\nllama_print_timings:        eval time = 27360.44 ms /   214 runs   ( 1 ms)\n"
        "llama_print_timings:       total time = 290684.19 ms\n\n"
        "target:\n\nllama_print_timings:        load time = 44875.62 ms\nllama_pr\n"
    )

    found = read(text)

    assert not [record for record in found if isinstance(record, TimeParts)]
    assert not [f for f in found if isinstance(f, Finding) and f.code == "TIME_PARTS"]


def test_a_query_result_with_bars_is_a_scrape():
    text = (
        'vllm:spec_decode_num_drafts_total{engine="0", job="vllm"} | 22\n-- | --\n'
        '| vllm:spec_decode_num_draft_tokens_total{engine="0", job="vllm"} | 66 |\n'
    )

    (scrape,) = scrapes(text)

    assert {name: value for (name, _), value in scrape.samples.items()} == {
        "vllm:spec_decode_num_drafts_total": 22,
        "vllm:spec_decode_num_draft_tokens_total": 66,
    }


@pytest.mark.parametrize(
    "names",
    [
        ("spec_accept_token_num", "spec_draft_token_num"),
        ("spec_num_correct_drafts", "spec_num_proposed_drafts"),
        ("spec_accepted_tokens", "spec_draft_tokens"),
    ],
)
def test_sglangs_counts_are_known_under_all_their_names(names):
    text = (
        '{"meta_info": {"finish_reason": {"type": "stop"}, "completion_tokens": 112, '
        f'"spec_verify_ct": 100, "{names[0]}": 11, "{names[1]}": 500}}}}'
    )

    (window,) = windows(text)

    assert (window.drafts, window.proposed, window.accepted, window.k) == (100, 500, 11, 5)


def test_steps_and_tokens_of_a_request_give_what_was_accepted():
    text = '{"meta_info": {"completion_tokens": 201, "spec_verify_ct": 80, "id": "a"}}'

    (window,) = windows(text)

    # 1 token from the prompt's pass, 80 from verification, the rest are accepted drafts.
    assert (window.drafts, window.accepted, window.estimated) == (80, 120, ("accepted",))


OFFLINE = (
    "--------------------------------------------------\n"
    "total_num_output_tokens: 2,500\nnum_drafts: 1000\nnum_draft_tokens: 3000\n"
    "num_accepted_tokens: 1500\nmean acceptance length: 2.50\n"
    "seq normalized acceptance length: 2.10\n"
    "acceptance at token 0: 0.80\nacceptance at token 1: 0.45\nacceptance at token 2: 0.26\n"
)


def test_the_summary_of_vllms_offline_script_is_a_run():
    (window,) = windows(OFFLINE)

    assert (window.k, window.drafts, window.proposed, window.accepted) == (3, 1000, 3000, 1500)
    assert window.coverage == 1
    # Two decimals sum to 1.51; the counts say 1.5.
    assert sum(window.position_rates) == pytest.approx(1.5)
    assert "position_rates" in window.estimated


def test_two_summaries_in_one_text_are_two_runs():
    assert [window.drafts for window in windows(OFFLINE + OFFLINE.replace("1000", "900"))] == [
        1000,
        900,
    ]


def test_figures_in_sentences_and_lists_are_read():
    text = (
        "Number of draft proposals: 100\nNumber of draft tokens generated: 300\n"
        "Number of accepted tokens: 150\n"
    )
    telemetry = "- cycles=40\n- drafted=40\n- accepted_drafts=30\n- emitted=70\n"

    assert [(w.drafts, w.proposed, w.accepted) for w in windows(text)] == [(100, 300, 150)]
    assert [(w.drafts, w.proposed, w.accepted) for w in windows(telemetry)] == [(40, 40, 30)]


def test_sglangs_question_benchmark_prints_length_1_without_speculation():
    line = "#questions: 80, Throughput: {} token/s, Acceptance length: {}\n"

    plain, spec = arms(line.format("150.00", "1.00") + line.format("240.00", "2.50"))

    assert plain.settings["speculation_fields"] is False
    assert (spec.role, spec.metrics["throughput_tok_s"]) == ("speculative", 240)


def test_requests_of_an_mtp_script_are_read_with_and_without_drafts():
    text = (
        "code  pred= 192 draft= 171 acc= 132 rate=0.772 tok/s=17.8\n"
        "code  pred= 192 draft=   0 acc=   0 rate=n/a tok/s=10.1\n"
    )

    spec, plain = windows(text)

    # 192 tokens with 132 of them accepted took 60 steps.
    assert (spec.proposed, spec.accepted, spec.mean_length) == (171, 132, pytest.approx(3.2))
    assert (plain.target_only, plain.throughput_tok_s, plain.mean_length) == (True, 10.1, None)


def test_a_block_of_bench_serve_is_not_read_twice():
    text = (
        "============ Serving Benchmark Result ============\n"
        "Output token throughput (tok/s):         100.0\n"
        "---------------Speculative Decoding---------------\n"
        "Acceptance length:                       2.50\nDrafts:  100\nDraft tokens:  300\n"
        "Accepted tokens:                         150\n"
    )

    assert len(windows(text)) == 1


def test_a_report_of_trtllm_bench_is_a_run():
    text = (
        "= REQUEST DETAILS\nNumber of requests:             100\n"
        "Number of concurrent requests:  16.0000\n"
        "= PERFORMANCE OVERVIEW\n"
        "Total Output Throughput (tokens/sec):             3200.0000\n"
        "Total Token Throughput (tokens/sec):              9999.0000\n"
        "Average time-per-output-token [TPOT] (ms):        5.0000\n"
        "[DAR] MINIMUM: 0.10\n[DAR] AVERAGE: 0.25\n[AL] MAXIMUM: 3.10\n[AL] AVERAGE: 2.00\n"
    )

    (arm,), (window,) = arms(text), windows(text)

    assert (arm.metrics["throughput_tok_s"], arm.conditions) == (3200, {"concurrency": 16})
    assert (window.engine, window.mean_length, window.acceptance_rate) == ("tensorrt-llm", 2, 0.25)
    assert window.round_ms == 10


def test_a_finished_request_in_sglangs_log_gives_its_acceptance():
    line = (
        "[2025-10-02 23:42:16] Finish: obj=Gen(rid='5'), out={'meta_info': {'id': '5', "
        "'completion_tokens': 91, 'spec_accept_rate': 0.5, 'spec_accept_length': 2.28, "
        "'spec_verify_ct': 40, 'e2e_latency': 0.7}}\n"
    )

    (window,) = windows(line)

    assert (window.engine, window.drafts, window.accepted) == ("sglang", 40, 50)


V1 = (
    "(APIServer pid=1) INFO 10-06 06:11:23 [metrics.py:96] SpecDecoding metrics: Mean acceptance "
    "length: 2.10, Accepted throughput: 110.00 tokens/s, Drafted throughput: 300.00 tokens/s, "
    "Accepted: 1100 tokens, Drafted: 3000 tokens, Per-position acceptance rate: 0.600, 0.320, "
    "0.180, Avg Draft acceptance rate: 36.7%"
)
V0 = (
    "INFO 02-06 03:05:53 metrics.py:475] Speculative metrics: Draft acceptance rate: 0.200, System "
    "efficiency: 0.167, Number of speculative tokens: 5, Number of accepted tokens: 1, Number of "
    "draft tokens: 5, Number of emitted tokens: 1."
)
DECODE = (
    "[2025-06-07 22:05:14 TP0] Decode batch. #running-req: 1, #token: 9322, token usage: 0.00, "
    "accept len: 1.63, gen throughput (token/s): 61.52, #queue-req: 0"
)


@pytest.mark.parametrize("line", [V1, V0, DECODE], ids=["v1", "v0", "sglang"])
@pytest.mark.parametrize("width", [80, 100, 120])
def test_a_line_that_a_terminal_broke_is_made_whole(line, width):
    broken = textwrap.wrap(line, width)

    assert list(unwrapped([*broken, "INFO next", ""])) == [line, "INFO next", ""]
    assert is_wrapped("\n".join(broken))


@pytest.mark.parametrize("width", [80, 133])
def test_a_line_cut_within_words_is_made_whole(width):
    cut = [V1[place : place + width] for place in range(0, len(V1), width)]

    assert list(unwrapped(cut)) == [V1]


def test_whole_lines_and_cut_ones_are_left_as_they_are():
    cut = V1[:150]

    assert list(unwrapped([V1, cut, "INFO: more", V1])) == [V1, cut, "INFO: more", V1]
    assert not is_wrapped(f"{V1}\n{cut}\n{V1}\n")


def test_rates_that_go_on_in_the_next_line_are_not_taken_for_all():
    assert windows("Per-position acceptance rate: 0.600, 0.320,\n") == []


def prometheus(*results):
    series = [
        {"metric": {"__name__": f"vllm:spec_decode_{name}_total", "engine": "0"}, **values}
        for name, values in results
    ]
    return json.dumps({"data": {"resultType": "vector", "result": series}})


def test_an_answer_of_prometheus_is_a_scrape():
    text = prometheus(("num_drafts", {"value": [1.5, "100"]}), ("x", {"value": [1.5, "NaN"]}))

    (scrape,) = scrapes(text)

    assert scrape.samples == {("vllm:spec_decode_num_drafts_total", (("engine", "0"),)): 100}


def test_a_range_of_prometheus_is_two_scrapes():
    text = prometheus(("num_drafts", {"values": [[10, "100"], [20, "130"], [40, "190"]]}))

    first, last = scrapes(text)

    assert (first.at, last.at) == (10, 40)
    assert [list(scrape.samples.values()) for scrape in (first, last)] == [[100], [190]]


def test_lmdeploy_prints_load_and_speculation_on_one_line():
    line = (
        "2025-09-30 12:00:{} - lmdeploy - INFO - loggers.py:75 - DP: 0, Avg prompt throughput: "
        "10.0 tokens/s, Avg generation throughput: 100.0 tokens/s, Running: 2 reqs, Waiting: 0 "
        "reqs, SpecDecoding metrics: Draft acceptance rate: 50.00%, Mean acceptance length: 2.50, "
        "Accepted: 600 tokens, Drafted: 1200 tokens, Per-position acceptance rate: 0.700, 0.500, "
        "0.300\n"
    )

    one, two = windows(line.format("10,123") + line.format("20,123"))

    assert (one.engine, one.drafts, one.running, one.throughput_tok_s) == ("lmdeploy", 400, 2, 100)
    assert two.coverage == 1


def test_lines_of_bench_throughput_are_runs_of_their_own():
    line = "Throughput: {} requests/s, 1000.00 total tokens/s, {} output tokens/s\n"

    one, two = arms(line.format("4.00", "500.00") + line.format("5.00", "650.00"))

    assert (one.metrics["throughput_tok_s"], two.metrics["throughput_tok_s"]) == (500, 650)
    assert one.arm != two.arm


def test_lm_studio_counts_are_read_with_its_speed():
    drafted = {
        "usage": {
            "completion_tokens": 300,
            "total_draft_tokens_count": 500,
            "accepted_draft_tokens_count": 180,
            "rejected_draft_tokens_count": 300,
        },
        "stats": {"tokens_per_second": 20.0, "time_to_first_token": 1.1, "generation_time": 15.0},
    }
    plain = {"usage": {"completion_tokens": 300}, "stats": {**drafted["stats"]}}

    window, baseline = windows(json.dumps([drafted, plain]))

    # 480 of the 500 were verified; 120 tokens came from verifications: 2.5 a round, 125 ms each.
    assert (window.proposed, window.accepted, window.throughput_tok_s) == (480, 180, 20.0)
    assert (window.mean_length, window.round_ms) == pytest.approx((2.5, 125.0))
    assert window.estimated == ("mean_length", "round_ms")
    assert (baseline.target_only, baseline.accepted) == (True, None)


@pytest.mark.parametrize("spelling", ["DraftTokensCount", "prediction_tokens"])
def test_draft_counts_of_other_clients(spelling):
    found = (
        {"acceptedDraftTokensCount": 70, "totalDraftTokensCount": 120, "predictedTokensCount": 110}
        if spelling == "DraftTokensCount"
        else {
            "usage": {
                "completion_tokens": 110,
                "completion_tokens_details": {
                    "accepted_prediction_tokens": 70,
                    "rejected_prediction_tokens": 50,
                },
            }
        }
    )

    (window,) = windows(json.dumps(found))

    assert (window.proposed, window.accepted) == (120, 70)
    assert window.mean_length == pytest.approx(110 / 40)


def test_a_usage_without_predictions_says_nothing():
    details = {"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}

    assert windows(json.dumps({"usage": {"completion_tokens_details": details}})) == []


def test_a_decode_line_that_a_person_shortened_is_read_by_rank():
    first, second = windows(
        "[DP0 TP0] Decode batch, accept len: 2.20, accept rate: 0.73, cuda graph: True\n"
        "[DP1 TP1] Decode batch, accept len: 1.40, accept rate: 0.47, cuda graph: True\n"
    )

    assert (first.mean_length, second.mean_length) == (2.2, 1.4)
    assert (first.engine_index, second.engine_index) == (0, 1)


def test_a_row_without_a_drafter_is_the_baseline_of_those_with_one():
    text = (
        "| Model | Speed (tok/sec) | Draft Model | Draft Tokens Accepted |\n|---|---|---|---|\n"
        "| big-70b | 1.50 | N/A | N/A |\n| big-70b | 1.20 | small-1b | 41.2% |\n"
    )

    baseline, drafted = arms(text)

    assert (baseline.arm, drafted.arm) == ("N/A", "small-1b")


TABBY = (
    "2026-01-10 15:01:39.976 INFO:     Metrics (ID: ba98): 300 tokens generated in 6.1 seconds "
    "(Queue: 0.02 s, Process: 0 cached tokens and 200 new tokens at{gap}400.5 T/s, Generate: 50.0 "
    "T/s, Context: 200 tokens{draft})\n"
)


@pytest.mark.parametrize("gap", [" ", "\n"], ids=["whole", "broken"])
def test_a_request_of_tabbyapi(gap):
    draft = ", Draft: 180 / 240 tokens accepted (75.00%)"

    window, baseline = windows(TABBY.format(gap=gap, draft=draft) + TABBY.format(gap=gap, draft=""))

    # 120 verifications for 300 tokens: 2.5 a round, 50 ms each at 50 tok/s.
    assert (window.engine, window.proposed, window.accepted) == ("tabbyapi", 240, 180)
    assert (window.mean_length, window.round_ms) == pytest.approx((2.5, 50.0))
    assert (baseline.target_only, baseline.throughput_tok_s) == (True, 50.0)
