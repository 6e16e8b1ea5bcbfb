"""What people paste, by grammar: each text is a kind of note, and each figure follows from it."""

import pytest
from analyze_cases import actions

from specscope.analyze.collect import analyze


def judged(tmp_path, text, name="pasted.md"):
    path = tmp_path / name
    path.write_text(text)
    return analyze([str(path)]).as_json()


def speedups(found):
    return {(c["arm"], c["metric"]): round(c["speedup"], 3) for c in found["comparisons"]}


METRICS_DOWN = """|             | NPU baseline | NPU + draft-mtp (n_max=3) |
|-------------|-------------:|--------------------------:|
| decode      | 16.8 t/s     | **26.8 t/s** (+59%)       |
| TTFT        | 1.4 s        | 1.4 s                     |
| accept rate | -            | **0.72**                  |
"""


def test_rows_that_measure_are_told_by_the_units_of_their_cells(tmp_path):
    found = judged(tmp_path, METRICS_DOWN)

    assert speedups(found) == {("NPU + draft-mtp (n_max=3)", "throughput_tok_s"): 1.595}
    assert actions(found) == ["keep"]
    assert found["windows"][0]["acceptance_rate"] == pytest.approx(0.72)


def test_a_baseline_that_is_off_stands_in_the_column_of_draft_lengths(tmp_path):
    table = "| num_speculative_tokens | decode tok/s |\n|---|---|\n"
    rows = "| baseline (off) | 24.6 |\n| 1 | 28.2 |\n| **4** | **31.2** |\n| 6 | 23.0 |\n"

    found = judged(tmp_path, table + rows)

    assert actions(found) == ["set_k"]
    assert found["verdicts"][0]["k"] == 4


def test_rows_of_one_draft_length_that_differ_in_their_tree_are_no_repetitions(tmp_path):
    table = "bs | steps | topk | num_draft | throughput | acc len\n--|--|--|--|--|--\n"
    rows = "1 | 3 | 1 | 4 | 160.0 | 1.86\n1 | 3 | 3 | 8 | 208.0 | 2.20\n"
    base = "The base model speed:\n\nbs | throughput\n--|--\n1 | 220.0\n8 | 700.0\n\n"

    found = judged(tmp_path, base + "With EAGLE3:\n\n" + table + rows)

    values = sorted(c["speedup"] for c in found["comparisons"])
    assert values == pytest.approx([160 / 220, 208 / 220])
    assert all(c["ci"] is None for c in found["comparisons"])
    assert actions(found) == ["disable"]


HEADINGS = """#### prompt_lookup_num_tokens=10

Output generated in 15.34 seconds (33.24 tokens/s, 510 tokens, seed 925476152)
Output generated in 13.51 seconds (37.83 tokens/s, 511 tokens, seed 256909935)

median= 35.5

#### prompt_lookup_num_tokens=0

Output generated in 18.47 seconds (27.66 tokens/s, 511 tokens, seed 1660472092)
Output generated in 18.14 seconds (28.16 tokens/s, 511 tokens, seed 1814517307)
"""


def test_lines_of_one_shape_are_runs_of_the_arm_that_their_heading_names(tmp_path):
    found = judged(tmp_path, HEADINGS)

    (comparison,) = found["comparisons"]
    assert comparison["speedup"] == pytest.approx((33.24 + 37.83) / (27.66 + 28.16))
    assert comparison["ci"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Without draft model: Generation: 256 tokens, 31.783 tokens-per-sec\n"
            "With draft model: Generation: 256 tokens, 35.648 tokens-per-sec\n",
            [1.122],
        ),
        (
            "Output tokens/s, batch 1\n\nvanilla (`org/model-8B`): 133\n\n"
            "EAGLE 1 (`who/EAGLE-8B`):\n* K=2: 201.69, speedup:  1.51x\n"
            "* K=7: 169.92, speedup: 1.27x\n",
            [1.278, 1.516],
        ),
        (
            "## Normal decoding speed: 156 token/s\n```\nserve --model m\n```\n\n"
            "## Eagle decoding speed: 297 token/s\n```\nserve --model m --eagle\n```\n",
            [1.904],
        ),
        (
            "Without drafting:\n`Processed:20 in 0.01s (1538.46T/s), Generated:403/2048 in "
            "10.01s (40.24T/s)`\n\nWith drafting (default launch settings):\n`Processed:20 in "
            "0.06s (363.64T/s), Generated:407/2048 in 5.10s (79.82T/s)`\n",
            [1.984],
        ),
    ],
)
def test_speeds_in_lines_are_compared(tmp_path, text, expected):
    found = judged(tmp_path, text)

    assert sorted(round(c["speedup"], 3) for c in found["comparisons"]) == expected
    assert actions(found) == ["keep"]


def test_a_remark_behind_a_row_does_not_cut_an_aligned_table(tmp_path):
    text = """    --draft-tokens   decode      vs none
    (none)          37.7 tok/s      --
    1               49.7          +31.7%
    4               59.1          +56.5%   <- best
    7               48.2          +27.7%
"""

    found = judged(tmp_path, text)

    assert {c["k"] for c in found["comparisons"]} == {1, 4, 7}
    assert found["verdicts"][0]["k"] == 4


def test_a_list_of_acceptances_in_a_cell_is_no_rate(tmp_path):
    table = "| n | agg tok/s | tau (per stream) | accept d1/d2/d3 |\n|---|---|---|---|\n"
    rows = (
        "| 1 | 79.97 | 3.879 | 99.2 / 95.5 / 94.7 |\n| 2 | 80.09 | 3.066 | 91.3 / 80.9 / 71.6 |\n"
    )

    found = judged(tmp_path, table + rows)

    assert [w["acceptance_rate"] for w in found["windows"]] == [None, None]
    assert [w["mean_length"] for w in found["windows"]] == [3.879, 3.066]
    # The second list agrees neither with survival nor with hazards.
    assert found["windows"][0]["position_rates"] == pytest.approx([0.992, 0.955, 0.947])
    assert found["windows"][1]["position_rates"] is None
    assert actions(found) == ["collect_baseline"]


def test_a_time_or_a_share_beside_the_arms_is_no_class(tmp_path):
    text = """category  base_avg_t/s  spec_avg_t/s  base_avg_latency  spec_avg_latency  accept_rate
--------  ------------  ------------  ----------------  ----------------  -----------
coding    51.55         84.54         11.976s           7.471s            0.7545
math      51.63         69.47         10.963s           8.053s            0.7645
"""

    found = judged(tmp_path, text)

    assert [v["class"] for v in found["verdicts"]] == [{"label": "coding"}, {"label": "math"}]
    assert sorted(c["speedup"] for c in found["comparisons"]) == pytest.approx([1.3455, 1.64], 1e-3)


def test_columns_below_a_heading_that_names_the_arm_are_classes(tmp_path):
    text = """## Results, spec decode
## speed_bench

| Metric | coding avg | math avg |
|---|---|---|
| Inter Token Latency (ms) | 7.05 | 8.13 |
| Output Token Throughput (tokens/sec) | 146.03 | 126.50 |
"""

    found = judged(tmp_path, text)

    assert actions(found) == ["collect_baseline"]
    assert not found["comparisons"]


def test_two_drafters_as_the_only_columns_have_no_baseline(tmp_path):
    found = judged(tmp_path, "EAGLE3 (n=3) | MTP (n=2)\n---|---\n40 tok/s | 45 tok/s\n")

    assert actions(found) == ["collect_baseline"]
    assert speedups(found) == {("MTP (n=2)", "throughput_tok_s"): 1.125}


@pytest.mark.parametrize(
    ("header", "cells"),
    [
        ("drafted | accepted", ("1200 | 1092", "5592 | 0")),
        ("accepted/drafted", ("1092/1200", "0/5592")),
    ],
)
def test_a_turn_of_which_nothing_is_accepted_beside_turns_that_accept_is_a_fault(
    tmp_path, header, cells
):
    rule = "|---" * (2 + header.count("|") + 1) + "|\n"
    table = f"| turn | context | {header} |\n{rule}| 1 | 812 | {cells[0]} |\n"

    found = judged(tmp_path, f"{table}| 2 | 2048 | {cells[1]} |\n")

    assert actions(found) == ["engine_fault"]
    assert sorted(w["acceptance_rate"] for w in found["windows"]) == [0, pytest.approx(0.91)]


def test_columns_with_and_without_are_arms_below_a_line_about_a_drafter(tmp_path):
    table = "| prompt | without | with | factor |\n|---|---|---|---|\n"
    rows = "| tools | 66.51 tok/s | **123.05** | 1.85 |\n| chat | 64.50 tok/s | 133.18 | 2.07 |\n"

    found = judged(tmp_path, "27B, `--spec-type draft-mtp`, measured:\n\n" + table + rows)
    other = judged(tmp_path, "27B, flash attention, measured:\n\n" + table + rows, "other.md")

    assert sorted(c["speedup"] for c in found["comparisons"]) == pytest.approx([1.85, 2.065], 1e-3)
    assert actions(found) == ["keep", "keep"]
    assert not {"keep", "set_k", "disable"} & set(actions(other))


def test_a_table_of_items_may_list_arms_with_the_unit_in_their_names(tmp_path):
    text = """| metric | value |
|---|---|
| **PR MTP tok/s** | **64.25** |
| main MTP tok/s | 47.35 |
| speedup vs main | **1.357x** |
| PR AR tok/s (floor) | 87.13 |
| mean accept length | 1.255 |
"""

    found = judged(tmp_path, text)

    assert actions(found) == ["disable"]
    assert {round(c["speedup"], 3) for c in found["comparisons"]} == {0.737, 0.543}
    assert [w["mean_length"] for w in found["windows"]] == [1.255]


def test_a_line_of_figures_by_name_is_a_run(tmp_path):
    line = "[bench/mtp] Done: decode_ms=5936.1 generated=88 tok/s=14.8 rounds=34"

    found = judged(tmp_path, f"{line} acceptance_rate=0.529 mean_accepted_len=1.59\n", "bench.log")

    (window,) = found["windows"]
    assert window["mean_length"] == pytest.approx(88 / 34, rel=0.01)  # the bonus token counted
    assert (window["acceptance_rate"], window["drafts"]) == (0.529, 34)


def test_a_result_below_the_command_that_speculates_is_no_result_without_it(tmp_path):
    text = """`vllm serve m --speculative-config '{"method": "eagle", "num_speculative_tokens": 2}'`

## Result
```
============ Serving Benchmark Result ============
Successful requests:                     1000
Output token throughput (tok/s):         6306.39
```
"""

    assert actions(judged(tmp_path, text)) == ["collect_baseline"]


def test_an_acceptance_behind_its_speed_tells_that_a_column_speculates(tmp_path):
    table = "| Model | No MTP | This PR |\n|---|---|---|\n"
    rows = (
        "| 27B | 35.0 tok/s | **55.1 tok/s @ 69-78%** |\n| 35B | 89.6 tok/s | 80.4 tok/s @ 83% |\n"
    )

    found = judged(tmp_path, table + rows)

    assert {round(c["speedup"], 3) for c in found["comparisons"]} == {1.574, 0.897}
    assert all("69" not in str(w["acceptance_rate"]) for w in found["windows"])


def test_columns_of_one_speed_each_are_workloads_beside_rows_that_name_arms(tmp_path):
    table = "| Config | Synthetic (t/s) | ShareGPT (t/s) |\n|---|---:|---:|\n"
    rows = "| baseline | 21.5 | 48.2 |\n| mtp | 25.0 | 81.7 |\n"

    found = judged(tmp_path, table + rows)

    assert sorted(c["speedup"] for c in found["comparisons"]) == pytest.approx([1.163, 1.695], 1e-3)
    assert actions(found) == ["keep", "keep"]


def test_counts_in_words_are_counted(tmp_path):
    text = "```\n68,159 accepted / 281,960 drafted / 40,280 steps\n```\n"

    total = judged(tmp_path, text)["totals"]

    assert (total["accepted"], total["proposed"], total["drafts"]) == (68159, 281960, 40280)


def test_an_engine_with_its_commit_is_the_same_engine(tmp_path):
    table = "| Engine | Mode | tok/s |\n|---|---|---|\n"
    rows = "| llama.cpp `e8f19cc` | AR | 225 |\n| llama.cpp | MTP, n-max 3 | 262 |\n"

    assert [c["speedup"] for c in judged(tmp_path, table + rows)["comparisons"]] == [
        pytest.approx(262 / 225)
    ]


def test_arms_below_an_empty_header_are_arms(tmp_path):
    table = "Numbers on one machine:\n\n| | decode tok/s | acceptance |\n|---|---|---|\n"
    rows = "| no speculation | 100 | |\n| MTP, k=2 | 150 | 80% |\n"

    found = judged(tmp_path, table + rows)

    assert speedups(found) == {("MTP, k=2", "throughput_tok_s"): 1.5}


def test_arms_below_an_empty_header_keep_their_names_when_loads_are_columns(tmp_path):
    table = "Aggregate output tok/s:\n\n| | c1 | c8 | cold TTFT |\n|---|---|---|---|\n"
    rows = "| build 7, no speculation | 196.6 | 729.5 | 2.70 s |\n| build 7, `--spec` | 270.0 | "

    found = judged(tmp_path, table + rows + "766.5 | 2.71 s |\n")

    assert sorted(c["speedup"] for c in found["comparisons"]) == pytest.approx(
        [1.0507, 1.3733], 1e-3
    )
    assert actions(found) == ["keep", "inconclusive"]
