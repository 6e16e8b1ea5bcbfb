"""What follows from comparisons, and what does not."""

import json

import pytest
from analyze_cases import actions, codes, evidence

from specscope.analyze import render
from specscope.analyze.arms import t_quantile
from specscope.analyze.collect import analyze
from specscope.errors import InputError
from specscope.evaluate.verdict.verdict import Action, Confidence, Grade


def judge(tmp_path, **files):
    for name, text in files.items():
        (tmp_path / name.replace("_", ".")).write_text(text)
    return analyze([str(tmp_path)]).as_json()


def table(*rows, header="arm,k,concurrency,tok_s"):
    return "\n".join([header, *rows]) + "\n"


@pytest.mark.parametrize(
    ("speed", "action", "k"),
    [
        (130, "keep", 3),
        (101, "inconclusive", None),
        (99, "inconclusive", None),
        (80, "disable", 0),
    ],
)
def test_the_action_follows_from_the_speedup(speed, action, k, tmp_path):
    found = judge(tmp_path, b_csv=table("none,0,8,100", f"eagle,3,8,{speed}"))

    assert (found["verdicts"][0]["action"], found["verdicts"][0]["k"]) == (action, k)
    assert found["verdicts"][0]["class"] == {"concurrency": 8}
    assert found["verdicts"][0]["grade"] == "replayed"


def test_the_first_reason_is_about_the_arm_that_the_verdict_names(tmp_path):
    found = judge(tmp_path, b_csv=table("none,0,8,100", "k2,2,8,130", "k8,8,8,190"))

    (verdict,) = found["verdicts"]
    assert verdict["k"] == 8
    assert [reason.split()[0] for reason in verdict["reasons"][:2]] == ["k8", "k2"]


def test_reasons_name_the_findings_that_they_repeat(tmp_path):
    (tmp_path / "b.csv").write_text(table("vLLM none,0,8,100", "SGLang eagle,3,8,130"))
    analysis = analyze([str(tmp_path)])
    verdict = analysis.verdicts[0]

    assert (verdict.action, verdict.grade) == (Action.NOT_COMPARABLE, Grade.NONE)
    assert verdict.confidence is Confidence.HIGH
    assert [reason.code for reason in verdict.reasons] == ["ARMS_DIFFER"]
    assert "[ARMS_DIFFER]" in render.page(analysis)
    assert analysis.as_json()["verdicts"][0]["grade"] is None
    assert analysis.as_json()["verdicts"][0]["reasons"] == [verdict.reasons[0].text]


THREE_RUNS = [f"{{base}},0,8,{speed}" for speed in (100, 101, 99)]
THREE_RUNS += [f"{{arm}},3,8,{speed}" for speed in (150, 151, 149)]


@pytest.mark.parametrize(
    ("base", "arm"),
    [
        ("vLLM none", "SGLang eagle"),
        ("none FP8", "eagle BF16"),
        ("none on H100", "eagle on B200"),
        ("none", "SGLang eagle"),
        ("vLLM none", "eagle"),
        ("none", "eagle FP8"),
    ],
)
def test_another_engine_or_machine_between_arms_is_never_above_low_confidence(base, arm, tmp_path):
    rows = [row.format(base=base, arm=arm) for row in THREE_RUNS]
    found = judge(tmp_path, b_csv=table(*rows))

    decided = [v for v in found["verdicts"] if v["action"] not in ("not_comparable", "no_data")]
    assert {v["confidence"] for v in decided} <= {"low"}
    assert "ARMS_DIFFER" in codes(found)


def test_the_same_runs_on_one_engine_are_told_with_high_confidence(tmp_path):
    rows = [row.format(base="vLLM none", arm="vLLM eagle") for row in THREE_RUNS]
    found = judge(tmp_path, b_csv=table(*rows))

    assert [(v["action"], v["confidence"]) for v in found["verdicts"]] == [("keep", "high")]


def test_a_gain_of_a_run_that_drafts_nothing_is_no_cost(tmp_path):
    rows = ["none,-,8,100", "eagle k0,0,8,192", "eagle k=3,3,8,150"]
    found = judge(tmp_path, b_csv=table(*rows))

    told = evidence(found, "K0_IS_NOT_BASELINE")
    assert told["tax"] == pytest.approx(1 / 1.92 - 1, abs=1e-4)
    text = next(f["text"] for f in found["findings"] if f["code"] == "K0_IS_NOT_BASELINE")
    assert "+92.0%" in text
    assert not {"cost", "tax", "pays"} & set(text.lower().split())


def test_a_gain_that_a_cell_claims_is_no_speed(tmp_path):
    rows = "| no_spec | 100 |\n| eagle | +92.31 % throughput |\n"
    found = judge(tmp_path, b_md="| config | throughput (tok/s) |\n|---|---|\n" + rows)

    assert found["comparisons"] == []
    assert not {"keep", "set_k", "disable"} & set(actions(found))


def test_every_repeated_finding_shows_its_code_and_not_only_the_first(tmp_path):
    rows = ["plain,0,8,100", "eagle + fp8 kv,3,8,120", "mtp + fp8 kv,3,8,130"]
    (tmp_path / "b.csv").write_text(table(*rows))
    analysis = analyze([str(tmp_path)])
    reasons = [reason for verdict in analysis.verdicts for reason in verdict.reasons]
    differing = {reason.text for reason in reasons if reason.code == "ARMS_DIFFER"}

    assert len(differing) > 1
    assert all(reason.code is None for reason in reasons if reason.text not in differing)
    assert render.page(analysis).count("[ARMS_DIFFER]") == len(differing)


def test_the_best_of_several_draft_lengths_is_set(tmp_path):
    found = judge(tmp_path, b_csv=table("none,0,8,100", "a,1,8,104", "b,3,8,112", "c,7,8,90"))

    assert (found["verdicts"][0]["action"], found["verdicts"][0]["k"]) == ("set_k", 3)


def test_repeated_runs_give_an_interval_and_decide_the_confidence(tmp_path):
    clear = ["none,0,8,100", "none,0,8,102", "none,0,8,101"]
    clear += ["eagle,3,8,130", "eagle,3,8,131", "eagle,3,8,129"]
    noisy = ["none,0,8,60", "none,0,8,140", "eagle,3,8,90", "eagle,3,8,160"]
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()

    sure = judge(tmp_path / "a", b_csv=table(*clear))
    unsure = judge(tmp_path / "b", b_csv=table(*noisy))

    low, high = sure["comparisons"][0]["ci"]
    assert 1.2 < low < sure["comparisons"][0]["speedup"] < high < 1.4
    assert sure["verdicts"][0]["confidence"] == "high"
    assert unsure["verdicts"][0]["confidence"] == "low"
    assert "SINGLE_RUN" not in codes(sure)


def test_a_table_without_a_baseline_compares_arms_and_decides_nothing(tmp_path):
    found = judge(tmp_path, b_csv=table("a,1,8,104", "b,3,8,112"))

    assert actions(found) == ["collect_baseline"]
    assert found["comparisons"][0]["speedup"] == pytest.approx(112 / 104)
    assert "NO_BASELINE" in codes(found)


def test_k_0_in_a_speculative_engine_is_not_taken_for_the_baseline(tmp_path):
    found = judge(tmp_path, b_csv=table("dynamic_k0,0,8,90", "eagle,3,8,112"))

    assert actions(found) == ["collect_baseline"]
    assert any("no baseline" in reason for reason in found["verdicts"][0]["reasons"])


def test_throughput_and_time_per_token_that_disagree_decide_nothing(tmp_path):
    rows = table("none,0,8,100,10", "eagle,3,8,120,14", header="arm,k,concurrency,tok_s,tpot_ms")

    found = judge(tmp_path, b_csv=rows)

    assert actions(found) == ["inconclusive"]
    assert "METRICS_DISAGREE" in codes(found)


def test_results_of_one_benchmark_find_their_baseline_by_what_it_lacks(tmp_path):
    plain = (
        '{"backend":"vllm","num_prompts":8,"max_concurrency":4,"output_throughput":100.0,'
        '"mean_tpot_ms":10.0,"mean_itl_ms":10.1}'
    )
    spec = (
        '{"backend":"vllm","num_prompts":8,"max_concurrency":4,"output_throughput":131.0,'
        '"spec_decode_num_drafts":100,"spec_decode_draft_tokens":300,'
        '"spec_decode_accepted_tokens":150}'
    )

    found = judge(tmp_path, first_json=plain, second_json=spec)

    assert actions(found) == ["keep"]
    assert found["comparisons"][0]["baseline"] == "first"
    assert "BASELINE_INFERRED" in codes(found)


def llamacpp(ms, draft=""):
    return (
        "prompt eval time =     300.00 ms /    20 tokens\n"
        f"       eval time =    {ms:.2f} ms /   200 tokens\n" + draft
    )


DRAFT = "draft acceptance rate = 0.75000 (  120 accepted /   160 generated)\n"


def test_two_logs_of_one_engine_are_compared_with_little_confidence(tmp_path):
    found = judge(tmp_path, off_log=llamacpp(4000), on_log=llamacpp(3000, DRAFT))

    verdict = found["verdicts"][0]
    assert (verdict["action"], verdict["grade"], verdict["confidence"]) == ("keep", None, "low")
    assert found["comparisons"][0]["speedup"] == pytest.approx(4 / 3)


def sglang(running, tok_s, spec=""):
    line = (
        "[2026-05-01 10:00:0{n}] Decode batch, #running-req: {running}, #token: 5, token "
        "usage: 0.0, "
        "{spec}cuda graph: True, gen throughput (token/s): {tok_s:.2f}, #queue-req: 0\n"
    )
    return "".join(line.format(n=n, running=running, tok_s=tok_s, spec=spec) for n in range(4))


def test_logs_under_different_loads_are_not_comparable(tmp_path):
    spec = "accept len: 2.17, accept rate: 0.54, "

    found = judge(tmp_path, off_log=sglang(2, 100.0), on_log=sglang(16, 700.0, spec))

    assert actions(found) == ["not_comparable"]
    assert evidence(found, "LOADS_DIFFER")["running"] == [16, 2]
    assert found["comparisons"][0]["comparable"] is False


def scrape(tpot, prompt, drafts=None):
    lines = [
        f'vllm:request_time_per_output_token_seconds_sum{{engine="0"}} {tpot * 10}',
        'vllm:request_time_per_output_token_seconds_count{engine="0"} 10',
        f'vllm:request_prompt_tokens_sum{{engine="0"}} {prompt * 10}',
        'vllm:request_prompt_tokens_count{engine="0"} 10',
        'vllm:generation_tokens_total{engine="0"} 1000',
    ]
    if drafts is not None:
        lines.append(f'vllm:spec_decode_num_drafts_total{{engine="0"}} {drafts}')
        lines.append(f'vllm:spec_decode_num_accepted_tokens_total{{engine="0"}} {drafts}')
        lines.append(f'vllm:spec_decode_num_draft_tokens_total{{engine="0"}} {3 * drafts}')
    return f"process_start_time_seconds {tpot}\n" + "\n".join(lines) + "\n"


def test_scrapes_of_two_servers_are_compared_by_time_per_token(tmp_path):
    found = judge(tmp_path, off_prom=scrape(0.012, 500), on_prom=scrape(0.010, 510, 400))

    assert actions(found) == ["keep"]
    assert found["comparisons"][0]["metric"] == "tpot_ms"
    assert found["comparisons"][0]["speedup"] == pytest.approx(1.2)


def test_scrapes_of_other_requests_are_not_comparable(tmp_path):
    found = judge(tmp_path, off_prom=scrape(0.012, 500), on_prom=scrape(0.010, 4000, 400))

    assert actions(found) == ["not_comparable"]


def test_a_drafter_whose_proposals_are_never_accepted_is_a_fault(tmp_path):
    line = (
        "SpecDecoding metrics: Mean acceptance length: 1.00, Accepted: 0 tokens, Drafted: "
        "900 tokens, "
        "Per-position acceptance rate: 0.000, 0.000, 0.000, Avg Draft acceptance rate: 0.0%\n"
    )

    found = judge(tmp_path, a_log=line)

    assert actions(found) == ["engine_fault"]
    assert "SPEC_DEAD" in codes(found)


def test_positions_that_add_nothing_are_called_too_long(tmp_path):
    line = (
        "SpecDecoding metrics: Mean acceptance length: 1.81, Accepted: 810 tokens, Drafted: "
        "5000 tokens, "
        "Per-position acceptance rate: 0.600, 0.200, 0.008, 0.001, 0.001, "
        "Avg Draft acceptance rate: 16.2%\n"
    )

    found = judge(tmp_path, a_log=line)

    assert evidence(found, "K_TOO_LONG")["enough"] == 2
    assert evidence(found, "K_LADDER")["tokens_per_round"]["2"] == pytest.approx(1.8)


@pytest.mark.parametrize(
    ("rates", "enough", "best"),
    [
        # 2.48 / 1.3 is the highest of 1.74 / 1.1, 2.22 / 1.2, 2.48 / 1.3, 2.65 / 1.4, ...
        ((0.74, 0.48, 0.26, 0.17, 0.13, 0.09, 0.04), 6, 3),
        ((0.8, 0.5, 0.3), 3, 3),
        ((0.6, 0.2, 0.008, 0.001), 2, 2),
        ((0.09, 0.08, 0.0), 2, None),
    ],
)
def test_the_ladder_stops_where_nothing_is_gained_and_names_the_k_to_try(
    rates, enough, best, tmp_path
):
    printed = ", ".join(f"{rate:.3f}" for rate in rates)
    (tmp_path / "a.log").write_text(
        f"SpecDecoding metrics: Mean acceptance length: {1 + sum(rates):.2f}, "
        f"Accepted: {round(1000 * sum(rates))} tokens, Drafted: {1000 * len(rates)} tokens, "
        f"Per-position acceptance rate: {printed}\n"
    )
    analysis = analyze([str(tmp_path)])
    found = analysis.as_json()
    page = " ".join(render.page(analysis).split())

    assert evidence(found, "K_LADDER")["try"] == best
    assert f"k={enough} " in page
    assert f"k={enough + 1} " not in page
    assert (f"try k = {best}" in page) is (best not in (None, len(rates)))


@pytest.mark.parametrize(
    ("name", "text", "lacks"),
    [
        ("a.log", "Per-position acceptance rate: 0.800, 0.500\n", "holds no speed"),
        ("b.csv", table("eagle,3,8,100", "eagle,5,8,90"), "without speculation"),
        ("b.csv", table("none,0,8,100", "eagle,3,8,101"), "three times"),
        ("b.csv", table("vLLM none,0,8,100", "SGLang eagle,3,8,130"), "same engine"),
        ("b.csv", table("none,0,8,100"), "run with speculation"),
        ("b.csv", table("none,0,8,100", "eagle,3,8,130"), None),
    ],
)
def test_the_next_step_names_what_the_input_lacks(name, text, lacks, tmp_path):
    (tmp_path / name).write_text(text)
    page = " ".join(render.page(analyze([str(tmp_path)])).split())

    assert ("Next:" in page) is (lacks is not None)
    assert lacks is None or lacks in page.partition("Next:")[2]


def test_totals_pool_the_best_kind_of_input_only(tmp_path):
    log = (
        "SpecDecoding metrics: Mean acceptance length: 2.00, Accepted: 100 tokens, Drafted: "
        "300 tokens, "
        "Per-position acceptance rate: 0.500, 0.300, 0.200, Avg Draft acceptance rate: 33.3%\n"
    )

    found = judge(tmp_path, a_log=log, b_prom=scrape(0.01, 500, 400))

    assert found["totals"]["drafts"] == 400
    assert evidence(found, "OVERLAPPING_INPUTS")["left_out"][0].endswith("a.log")


def test_one_file_may_hold_a_sweep_with_and_without_speculation(tmp_path):
    def line(concurrency, tok_s, length):
        return json.dumps(
            {
                "backend": "sglang",
                "max_concurrency": concurrency,
                "output_throughput": tok_s,
                "accept_length": length,
            }
        )

    sweep = [
        line(1, 100.0, None),
        line(1, 150.0, 2.4),
        line(64, 2000.0, None),
        line(64, 1500.0, 2.4),
    ]

    found = judge(tmp_path, sweep_jsonl="\n".join(sweep))

    by_load = {v["class"]["concurrency"]: v["action"] for v in found["verdicts"]}
    assert by_load == {1: "keep", 64: "disable"}
    assert {c["baseline"] for c in found["comparisons"]} == {"sweep (no speculation)"}


def drawn(*rows):
    head, *rest = [[cell.strip() for cell in row.split(";")] for row in rows]
    lines = ["| " + " | ".join(row) + " |" for row in (head, *rest)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]]) + "\n"


NO_BASELINE_ROWS = [
    ("config; MTP; tok/s", "baseline; on (n=2); 100", "tuned; on; 130"),
    ("config; num_speculative_tokens; tok/s", "baseline; 3; 69", "tuned; 1; 78"),
    ("arm; tok/s", "EAGLE3 baseline; 100", "EAGLE3 new draft; 120"),
    ("arm; tok/s", "baseline (MTP3, main); 100", "MTP3 fused; 130"),
    ("arm; tok/s; accept len", "baseline; 100; 2.4", "fused; 130; 2.4"),
    ("arm; tok/s", "#475 (base); 100", "#475; 140"),
    ("arm; tok/s", "baseline; 100", "tuned; 130"),
    ("arm; tok/s", "before; 44.9", "after; 61.7"),
    ("arm; tok/s", "off; 100", "on; 130"),
    ("config; tok/s", "no spec (vLLM BF16); 100", "EAGLE3 (SGLang FP8); 210"),
    ("config; tok/s", "no spec; 100", "EAGLE3 k=3; 120 (projected)"),
]


@pytest.mark.parametrize("rows", NO_BASELINE_ROWS, ids=[rows[1] for rows in NO_BASELINE_ROWS])
def test_what_speculates_or_says_nothing_is_no_baseline(rows, tmp_path):
    try:
        found = judge(tmp_path, t_md="Results\n\n" + drawn(*rows))
    except InputError:
        return

    assert not {"keep", "set_k", "disable", "no_difference"} & set(actions(found))


def test_a_switch_column_outranks_the_word_baseline(tmp_path):
    rows = ("config; MTP; tok/s", "baseline (as deployed); on; 8.8", "tuned; off; 11.1")

    found = judge(tmp_path, t_md=drawn(*rows))

    assert actions(found) == ["disable"]
    assert found["comparisons"][0]["speedup"] == pytest.approx(8.8 / 11.1)


def test_runs_in_one_cell_are_repetitions(tmp_path):
    rows = (
        "arm; tok/s (3 runs)",
        "MTP k=3; 95.0 / 130.7 / 131.7",
        "baseline; 115.6 / 115.7 / 115.4",
    )

    found = judge(tmp_path, t_md=drawn(*rows))

    (comparison,) = found["comparisons"]
    assert actions(found) == ["inconclusive"]
    assert comparison["speedup"] == pytest.approx(119.133 / 115.567, abs=1e-4)
    assert comparison["ci"][0] < 1 < comparison["ci"][1]
    assert "SINGLE_RUN" not in codes(found)


def test_what_an_arm_adds_besides_speculation_decides_nothing(tmp_path):
    rows = ("config; tok/s", "no spec; 43.6", "MTP; 46.3", "MTP + cache compression; 66.5")

    found = judge(tmp_path, t_md=drawn(*rows))

    assert actions(found) == ["inconclusive"]
    assert "ARMS_DIFFER" in codes(found)


def test_a_log_that_configures_a_drafter_is_no_baseline(tmp_path):
    head = "CMD: llama-server -m m.gguf --spec-type ngram-mod --spec-draft-n-max 4\n"

    found = judge(tmp_path, off_log=head + llamacpp(4000), on_log=llamacpp(3000, DRAFT))

    assert set(actions(found)) <= {"collect_baseline", "no_data"}
    assert "DRAFTER_NEVER_USED" in codes(found)


def test_a_log_of_which_nothing_says_that_speculation_was_off_is_unknown(tmp_path):
    found = judge(tmp_path, a_log=llamacpp(4000), b_log=llamacpp(3000, DRAFT))

    assert "collect_baseline" in actions(found)
    assert "ARMS_NOT_RECOGNISED" in codes(found)


def test_result_files_whose_chunks_carry_several_tokens_are_no_baseline(tmp_path):
    plain = (
        '{"backend":"vllm","num_prompts":8,"output_throughput":100.0,"mean_tpot_ms":10,'
        '"mean_itl_ms":28}'
    )
    spec = (
        '{"backend":"vllm","num_prompts":8,"output_throughput":91.0,"spec_decode_num_drafts":100,'
        '"spec_decode_draft_tokens":300,"spec_decode_accepted_tokens":150}'
    )

    found = judge(tmp_path, first_json=plain, second_json=spec)

    assert actions(found) == ["collect_baseline"]
    assert "CHUNKED_STREAM" in codes(found)


@pytest.mark.parametrize(
    ("freedom", "true"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4.5, 2.6585), (11, 2.2010), (40, 2.0211)],
)
def test_quantiles_of_student_are_right(freedom, true):
    assert t_quantile(0.975, freedom) == pytest.approx(true, rel=1e-3)


def test_eight_classes_fit_on_a_page(tmp_path):
    rows = [f"no spec; {c}; {100 * c}" for c in range(1, 9)]
    rows += [f"MTP k={k}; {c}; {(90 + 20 * k) * c}" for c in range(1, 9) for k in (1, 2)]
    (tmp_path / "t.md").write_text(drawn("config; concurrency; tok/s", *rows))

    page = render.page(analyze([str(tmp_path)]))

    assert page.count("\n") <= 40
    assert page.count("concurrency ") >= 8
