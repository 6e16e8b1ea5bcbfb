"""Kinds of tables, lists and scrapes that people paste, each with what follows from it."""

import pytest
from analyze_cases import actions, codes
from test_analyze_as_pasted import judge

BY_CLASS = {"Code": 1.701, "Chat": 0.942}


def by_class(found):
    return {c["class"]["label"]: round(c["speedup"], 3) for c in found["comparisons"]}


@pytest.mark.parametrize(
    "text",
    [
        "- Code: 24.1 tok/s without draft, 41.0 tok/s with draft\n"
        "- Chat: 24.3 tok/s without draft, 22.9 tok/s with draft\n",
        "Speculative decoding (MTP) off → on:\n\n- Code: 24.1 → 41.0 tok/s\n- Chat: 24.3 → 22.9\n",
        "Decode speed after enabling MTP:\n\n- Code: 24.1 → 41.0 tok/s\n"
        "- Chat: 24.3 → 22.9 tok/s\n",
        "MTP by prompt:\n\n* **Code**\n  * baseline: 24.1 tok/s\n  * MTP: 41.0 tok/s\n"
        "* **Chat**\n  * baseline: 24.3 tok/s\n  * MTP: 22.9 tok/s\n",
    ],
)
def test_items_of_a_list_are_classes(tmp_path, text):
    found = judge(tmp_path, text)

    assert by_class(found) == BY_CLASS
    assert actions(found) == ["keep", "inconclusive"]


def test_steps_in_a_list_that_does_not_say_what_changed_decide_nothing(tmp_path):
    found = judge(
        tmp_path, "After the patch (MTP k=3):\n\n- Code: 24 → 41 tok/s\n- Chat: 24 → 22\n"
    )

    assert set(actions(found)) <= {"no_data", "collect_baseline", "not_comparable"}


def test_speedups_in_a_list_are_taken_as_printed(tmp_path):
    text = "Speedup of EAGLE-3 over autoregressive decoding:\n\n- A: 2.31x\n- B: 0.5x\n"
    found = judge(tmp_path, text)

    assert [v["action"] for v in found["verdicts"]] == ["keep", "disable"]
    assert {v["confidence"] for v in found["verdicts"]} == {"low"}
    assert "SPEEDUP_AS_PRINTED" in codes(found)


@pytest.mark.parametrize(
    "over", ["Speedup over the EAGLE-2 baseline:", "Speedup vs MTP-1 baseline"]
)
def test_speedups_over_a_drafter_decide_nothing(tmp_path, over):
    table = "| task | EAGLE-3 accept len | speedup |\n|---|---|---|\n"
    table += "| A | 3.1 | 1.4x |\n| B | 2.9 | 1.3x |\n"

    assert set(actions(judge(tmp_path, f"{over}\n\n{table}"))) <= {"collect_baseline"}


COMMANDS = """| command | tok/s |
|---|---|
| `llama-server -m q.gguf -ngl 99{} -md d.gguf --draft-max 8` | 47.9 |
| `llama-server -m q.gguf -ngl 99` | 31.2 |
"""


def test_commands_that_differ_in_speculation_alone_are_arms(tmp_path):
    found = judge(tmp_path, COMMANDS.format(""))

    assert actions(found) == ["keep"]
    assert "ARMS_DIFFER" not in codes(found)


def test_another_option_that_differs_is_said(tmp_path):
    found = judge(tmp_path, COMMANDS.format(" -fa on"))

    assert "ARMS_DIFFER" in codes(found)
    assert found["verdicts"][0]["confidence"] == "low"


def test_a_command_with_a_configuration_file_may_speculate(tmp_path):
    table = (
        "| command | tok/s |\n|---|---|\n| `trtllm-serve m --extra_llm_api_options a.yaml` | 31 |\n"
    )
    table += "| `trtllm-serve m --speculative_model d` | 48 |\n"

    assert set(actions(judge(tmp_path, table))) <= {"no_data", "collect_baseline"}


def test_models_under_a_line_about_drafters_are_what_drafted(tmp_path):
    table = (
        "| Model | Decode tok/s |\n|---|---|\n| Qwen3-32B alone | 18.2 |\n| + Qwen3-0.6B | 27.1 |\n"
    )

    assert actions(judge(tmp_path, f"Draft models beside Qwen3-32B:\n\n{table}")) == ["keep"]
    assert actions(judge(tmp_path, f"Speeds:\n\n{table}")) == ["no_data"]


def test_a_client_that_prints_like_llama_bench_is_no_target_only_run(tmp_path):
    table = "| model | test | t/s | peak t/s |\n|---|---|---|---|\n| q | pp2048 | 1802.1 ± 12 | |\n"
    table += "| q | tg128 | {} | {} |\n"
    plain, mtp = table.format("24.31 ± 0.05", "25.0"), table.format("41.90 ± 1.1", "60.0")

    found = judge(tmp_path, f"### without MTP\n\n{plain}\n### with MTP, k=2\n\n{mtp}")

    assert [round(c["speedup"], 3) for c in found["comparisons"]] == [1.724]
    assert "target" not in str(judge(tmp_path, f"### with MTP, k=2\n\n{mtp}")["windows"])
    assert actions(judge(tmp_path, f"### my server\n\n{mtp}")) == ["no_data"]


def test_cells_one_a_line_are_a_table(tmp_path):
    cells = ["Config", "tok/s", "Acceptance", "no MTP", "30.1", "-", "MTP k=2", "41.7", "72%"]

    found = judge(tmp_path, "\n".join(["My runs", *cells, "MTP k=3", "44.0", "61.0%", ""]))

    assert [round(c["speedup"], 3) for c in found["comparisons"]] == [1.385, 1.462]


def test_a_column_of_speculation_names_the_arms(tmp_path):
    found = judge(
        tmp_path,
        "model,concurrency,spec_decode,Output Token Throughput (tokens/sec)\n"
        "m,1,none,79.8\nm,8,none,515.2\nm,1,eagle3,141.0\nm,8,eagle3,612.1\n",
        "sweep.csv",
    )

    assert [round(c["speedup"], 3) for c in found["comparisons"]] == [1.767, 1.188]


def test_positions_alone_say_how_many_were_accepted(tmp_path):
    line = 'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{}"}} {}\n'
    found = judge(tmp_path, line.format(0, 812) + line.format(1, 533), "metrics.txt")

    assert actions(found) == ["collect_baseline"]
    assert found["totals"]["accepted"] == 1345
    assert found["totals"]["acceptance_rate"] is None


def test_a_rule_of_single_dashes_is_no_header(tmp_path):
    found = judge(
        tmp_path,
        "mode       k  p99 TPOT (ms)  tok/s (3 runs)         mean acceptance length\n"
        "---------  -  -------------  ---------------------  ----------------------\n"
        "reference  2  28.3           314.9 / 321.4 / 313.9  2.73\n"
        "config B   7  145.8          59.9, 59.7, 62.6       4.10\n",
    )

    assert [w["mean_length"] for w in found["windows"]] == [2.73, 4.10]


def test_the_name_without_the_drafter_is_the_baseline(tmp_path):
    table = "| Setup | tok/s |\n|---|---|\n| Llama-8B | 50 |\n| Llama-8B + EAGLE3 | 80 |\n"

    found = judge(tmp_path, table)

    assert actions(found) == ["keep"]
    assert "BASELINE_INFERRED" in codes(found)


def test_figures_with_their_arm_in_their_name_are_columns(tmp_path):
    found = judge(tmp_path, "50 prompts:\n  baseline_tpot_ms = 12.51, spec_tpot_ms = 10.68\n")

    assert [round(c["speedup"], 3) for c in found["comparisons"]] == [1.171]


def test_groups_of_columns_below_data_sets_are_classes(tmp_path):
    table = (
        "| Model | Method | GSM8K | | Alpaca | | Mean | |\n|---|---|---|---|---|---|---|---|\n"
        "| | | throughput (tokens/s) | accept length | throughput (tokens/s) | accept length "
        "| throughput (tokens/s) | accept length |\n"
        "| 8B | Vanilla | 150 | 1 | 148 | 1 | 149 | 1 |\n"
        "| | Eagle3 | 257 | 2 | 266 | 2.02 | 261 | 2.01 |\n"
    )

    found = judge(tmp_path, table)

    assert [round(c["speedup"], 3) for c in found["comparisons"]] == [1.713, 1.797]


def test_the_title_of_an_issue_is_no_arm(tmp_path):
    table = "| Batch size | Output throughput (tok/s) |\n|---|---|\n| 1 | 29 |\n| 4 | 95 |\n"

    found = judge(tmp_path, f"# Enabling spec decode for GLM\n\n{table}")

    assert actions(found) == ["no_data"]


def test_an_arm_alone_is_given_with_its_speed(tmp_path):
    table = "| Batch size | Output throughput (tok/s) |\n|---|---|\n| 1 | 29 |\n| 4 | 95 |\n"

    found = judge(tmp_path, f"MTP k=3\n\n{table}")

    assert found["verdicts"][0]["reasons"][0].endswith("29.0 tok/s")


def test_offered_requests_are_a_load_and_a_row_that_is_cut_gives_no_number(tmp_path):
    table = "| QPS | Baseline TPOT | k=1 TPOT | Speedup |\n|---|---|---|---|\n"
    table += "| 1 | 55.47 | 33.99 | 1.63x |\n| 2 | 57.58 | 48.8 | 1.18x |\n| 4 | 64."

    found = judge(tmp_path, f"Draft TP=1\n\n{table}")

    assert [round(c["speedup"], 3) for c in found["comparisons"]] == [1.632, 1.180]


def test_only_a_line_of_vllm_v0_counts_matches_behind_a_mismatch(tmp_path):
    line = "INFO metrics.py:455] Speculative metrics: Draft acceptance rate: 1.000, {}\n"
    first = "Number of accepted tokens: 66, Number of draft tokens: 66, "

    v0 = judge(tmp_path, line.format("System efficiency: 0.426, Number of"), "v0.log")

    assert "V0_ACCEPTANCE_NOT_PREFIX" in codes(v0)
    assert "V0_ACCEPTANCE_NOT_PREFIX" not in codes(judge(tmp_path, line.format(first), "v1.log"))


def test_a_column_of_speeds_below_a_setting_is_an_arm(tmp_path):
    table = "| concurrency | vanilla | draft model=on | draft model |\n|---|---|---|---|\n"

    found = judge(tmp_path, table + "| 4 | 2213 tok/s | 1611 tok/s | 2525 tok/s |\n")

    assert {round(c["speedup"], 3) for c in found["comparisons"]} == {0.728, 1.141}
    assert actions(found) == ["keep"]


@pytest.mark.parametrize(
    "table",
    [
        "| Card | Baseline | With flag | n-max |\n|---|---|---|---|\n"
        "| A | 32.7 tok/s (MTP n=6 entry config) | 59.7 tok/s | 12 |\n",
        "| Config | tok/s |\n|---|---|\n| baseline | 32.7 (MTP n=6) |\n| tuned MTP n=12 | 59.7 |\n",
    ],
)
def test_a_remark_in_a_cell_says_that_a_baseline_speculates(tmp_path, table):
    assert set(actions(judge(tmp_path, table))) <= {"no_data", "collect_baseline"}


def test_a_speed_in_brackets_behind_another_is_a_remark(tmp_path):
    text = "- Baseline (spec off): 4.1 tok/s\n- MTP n-max 2: 8.4 tok/s (code up to 9.1 tok/s)\n"

    assert [round(c["speedup"], 3) for c in judge(tmp_path, text)["comparisons"]] == [2.049]


def test_columns_without_a_unit_are_said(tmp_path):
    table = "| n-max | Overall | Acceptance |\n|---|---|---|\n| 2 | 28.7 | 0.6-0.9 |\n"

    found = judge(tmp_path, table + "| 3 | 30.7 | 0.4-0.9 |\n")

    assert "unit" in found["verdicts"][0]["reasons"][0]


def test_the_rule_of_a_table_of_two_columns_is_no_heading_of_a_list(tmp_path):
    found = judge(
        tmp_path,
        "It was slower than I expected:\n\narm         tps\n----------  ----------\n"
        "n-gram=off  1844 tok/s\nn-gram=on   1531 tok/s\nstatic_k5   3680 tok/s\n",
    )

    assert actions(found) == ["keep"]
    assert {round(c["speedup"], 3) for c in found["comparisons"]} == {0.830, 1.996}
