"""Cells that stand for several rows or columns, and tables whose corner names both sides."""

from pathlib import Path

import pytest

from specscope.analyze.collect import analyze
from specscope.errors import InputError
from specscope.readers.tables.merged_cells import spread


def judge(tmp_path: Path, text: str):
    (tmp_path / "note.md").write_text(text)
    return analyze([str(tmp_path / "note.md")]).as_json()


def ratios(found):
    return [c["speedup"] for c in found["comparisons"]]


def test_a_title_row_is_the_class_of_the_rows_below_it(tmp_path):
    found = judge(
        tmp_path,
        "| config | tok/s | accept |\n|---|---|---|\n| **Model A** | | |\n| no spec | 100 | - |\n"
        "| eagle | 150 | 60% |\n| **Model B** | | |\n| no spec | 20 | - |\n| eagle | 16 | 30% |\n",
    )

    assert ratios(found) == pytest.approx([1.5, 0.8])
    assert [v["class"] for v in found["verdicts"]] == [{"label": "Model A"}, {"label": "Model B"}]


def test_a_title_row_may_name_the_arm(tmp_path):
    found = judge(
        tmp_path,
        "| prompt | tok/s |\n|---|---|\n| **Without MTP** | |\n| code | 40 |\n| story | 50 |\n"
        "| **With MTP** | |\n| code | 60 |\n| story | 45 |\n",
    )

    by_class = {c["class"]["label"]: c["speedup"] for c in found["comparisons"]}
    assert by_class == pytest.approx({"code": 1.5, "story": 0.9})


@pytest.mark.parametrize(
    ("head", "first", "second"), [("batch | k", "1", "8"), ("model | mode", "8B", "70B")]
)
def test_a_blank_repeats_the_cell_above(head, first, second, tmp_path):
    off, on = ("0", "2") if head.endswith("k") else ("baseline", "eagle")
    rows = [(first, off, 100), ("", on, 150), (second, off, 600), ("", on, 660)]
    text = f"| {head} | tok/s |\n|---|---|---|\n" + "".join(
        f"| {a} | {b} | {c} |\n" for a, b, c in rows
    )

    assert ratios(judge(tmp_path, text)) == pytest.approx([1.5, 1.1])


def test_a_blank_drafter_is_none_and_repeats_nothing():
    _, rows = spread(["drafter", "tok/s"], [["eagle", "150"], ["", "100"]])

    assert rows == [["eagle", "150"], ["", "100"]]


@pytest.mark.parametrize(
    "top", ["dataset | baseline | | eagle | ", "dataset | Base | Base | eagle | eagle"]
)
def test_a_header_of_two_lines_is_one(top, tmp_path):
    text = f"| {top} |\n|---|---|---|---|---|\n| | tok/s | TPOT (ms) | tok/s | TPOT (ms) |\n"
    found = judge(
        tmp_path, text + "| gsm8k | 120 | 8.0 | 150 | 6.4 |\n| chat | 100 | 10 | 80 | 12.5 |\n"
    )

    assert ratios(found) == pytest.approx([1.25, 1.25, 0.8, 0.8])


def test_two_columns_of_one_name_are_told_apart_by_the_row_below(tmp_path):
    found = judge(
        tmp_path,
        "| dataset | tok/s | accept len | tok/s | accept len |\n|---|---|---|---|---|\n"
        "| | EAGLE | EAGLE | MTP | MTP |\n| gsm8k | 120 | 2.4 | 150 | 2.9 |\n",
    )

    seen = {(w["label"], w["mean_length"], w["throughput_tok_s"]) for w in found["windows"]}
    assert seen == {("eagle", 2.4, 120.0), ("mtp", 2.9, 150.0)}
    assert {v["action"] for v in found["verdicts"]} == {"collect_baseline"}


def crossed(title, *rows):
    lines = [f"**{title}**", "| TP \\ Concurrency | 1 | 8 |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {tp} | {a} | {b} |" for tp, a, b in rows)]) + "\n\n"


def test_a_corner_names_rows_and_columns_and_captions_name_arm_and_measure(tmp_path):
    found = judge(
        tmp_path,
        crossed("Baseline output tok/s", (1, 100, 800), (2, 160, 1200))
        + crossed("DFlash output tok/s", (1, 250, 840), (2, 320, 1000))
        + crossed("DFlash accuracy", (1, 0.84, 0.85), (2, 0.83, 0.84))
        + crossed("Average accept length", (1, 5.1, 5.2), (2, 5.0, 5.3)),
    )

    by_class = {
        (c["class"]["tp"], c["class"]["concurrency"]): c["speedup"] for c in found["comparisons"]
    }
    assert by_class == pytest.approx({(1, 1): 2.5, (1, 8): 1.05, (2, 1): 2.0, (2, 8): 1000 / 1200})
    assert sorted(w["mean_length"] for w in found["windows"]) == [5.0, 5.1, 5.2, 5.3]


def test_mean_and_deviation_in_one_cell_are_no_two_runs(tmp_path):
    found = judge(
        tmp_path,
        "| task | stage | tok/s mean/std | a.len mean/std |\n|---|---|---|---|\n"
        "| code | mtp | 37.4/1.5 | 3.76/0.06 |\n| story | mtp | 18.8/1.5 | 2.39/0.15 |\n",
    )

    assert [w["mean_length"] for w in found["windows"]] == [3.76, 2.39]
    assert [w["throughput_tok_s"] for w in found["windows"]] == [37.4, 18.8]


def test_times_of_the_same_work_are_compared_if_the_printed_speedup_agrees(tmp_path):
    text = "Baseline: 12.40 s\nSpeculative: 8.10 s\nSpeedup: {}x\n"

    assert ratios(judge(tmp_path, text.format("1.53"))) == pytest.approx([12.4 / 8.1])
    (tmp_path / "note.md").write_text(text.format("1.90"))
    with pytest.raises(InputError):
        analyze([str(tmp_path / "note.md")])


def test_an_aligned_print_with_remarks_is_a_list(tmp_path):
    text = (
        "Autoregressive:  30.00 tok/s  (256 tokens in 8.53s)\n"
        "Speculative:     45.00 tok/s  (256 tokens in 5.69s)\nSpeedup:         1.50x\n"
    )

    assert ratios(judge(tmp_path, text)) == pytest.approx([1.5])


def test_a_line_of_pairs_may_call_its_rounds_steps(tmp_path):
    found = judge(
        tmp_path, "INFO server: Speculation: steps=100 proposed=400 accepted=90 rate=22.5%\n"
    )

    (window,) = found["windows"]
    assert (window["drafts"], window["proposed"], window["accepted"]) == (100, 400, 90)


def test_cells_parted_by_one_blank_are_a_table_if_a_measure_heads_them(tmp_path):
    found = judge(
        tmp_path,
        "Single stream, greedy:\n\ntok/s speedup\nbaseline (no spec) 60.0 1.0×\n"
        "+ this head (num_spec=5) 90.0 1.50×\n\nSeen in version 1 and 2\n",
    )

    assert ratios(found) == pytest.approx([1.5])
    assert found["verdicts"][0]["k"] == 5


BOX = """     Client | LLM Metrics: Spec Decode
┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━┳━━━━━━━┓
┃                            Metric ┃   avg ┃   max ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━╇━━━━━━━┩
│         Acceptance Length (ratio) │  3.10 │  5.00 │
│  Token-Weighted Acceptance Length │  3.40 │   N/A │
│                           (ratio) │       │       │
│         Draft Acceptance Rate (%) │ 55.00 │ 99.00 │
│ Overall Draft Acceptance Rate (%) │ 60.00 │   N/A │
│         Spec Decode Steps (count) │ 80.00 │ 500.0 │
└───────────────────────────────────┴───────┴───────┘
"""


def test_means_over_rounds_come_before_means_over_requests(tmp_path):
    (window,) = judge(tmp_path, BOX)["windows"]

    assert (window["mean_length"], window["acceptance_rate"], window["k"]) == (3.4, 0.6, None)


def test_a_caption_may_give_the_measure_of_columns_that_are_categories(tmp_path):
    found = judge(
        tmp_path,
        "Acceptance Length Report\n\n| Model | coding | writing | Overall |\n|---|---|---|---|\n"
        "| acme/8b | 2.8 | 1.9 | 2.4 |\n",
    )

    assert {(w["label"], w["mean_length"]) for w in found["windows"]} == {
        ("coding", 2.8),
        ("writing", 1.9),
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "| Model | Tokens/sec (with draft) | Tokens/sec (without draft) | Gain |\n"
            "|---|---|---|---|\n"
            "| A 14B + A 0.5B | 50.0 | 62.5 | -20.0% |\n| B 8B + B 1B | 90.0 | 60.0 | +50.0% |\n",
            [0.8, 1.5],
        ),
        (  # what drafted is a column; one of both arms is without it
            "| Drafter | Task | tokens/round | No-drafter TPS | Spec TPS |\n|---|---|---|---|---|\n"
            "| small head | poem | 3.4 | 40.0 | 62.0 |\n",
            [1.55],
        ),
        (  # columns are tasks, with a speed and an acceptance in a cell
            "| Run | Poem | Table | Overall |\n|---|---|---|---|\n"
            "| No MTP | 20.0 t/s | 21.0 t/s | 20.5 +/- 0.6 t/s |\n"
            "| MTP `--draft-max 2` | 36.0 t/s, 91% accept | 31.5 t/s, 71% accept | 33.7 t/s |\n",
            [1.8, 1.5],
        ),
        (
            "- baseline: 60.0 tok/s overall median, 22,449 MiB loaded\n"
            "- MTP n-max 2: 120.0 tok/s, 81% acceptance\n- MTP n-max 4: 132.0 tok/s, +120%\n",
            [2.0, 2.2],
        ),
    ],
)
def test_runs_are_told_apart_by_brackets_drafters_tasks_or_bullets(text, expected, tmp_path):
    assert ratios(judge(tmp_path, text)) == pytest.approx(expected)


def test_accepted_tokens_per_round_are_no_percentage(tmp_path):
    found = judge(
        tmp_path,
        "| Mode | tok/s | Acceptance |\n|---|---|---|\n| no drafter | 8.0 | n/a |\n"
        "| EAGLE3 | 12.0 | 1.66 accepted tokens/round |\n",
    )

    assert ratios(found) == [1.5]
    assert {window["acceptance_rate"] for window in found["windows"]} <= {None}


def test_cells_of_an_aligned_row_with_gaps_belong_to_the_columns_above_them(tmp_path):
    found = judge(
        tmp_path,
        "Results of the night\n\n"
        "config      k    accept    tok/s\n"
        "no spec                    50.0\n"
        "mtp         2    0.81      75.0\n"
        "mtp         4    0.60      80.0\n",
    )

    assert ratios(found) == [1.5, 1.6]
    assert [window["acceptance_rate"] for window in found["windows"]] == [0.81, 0.6]
