"""Tables as people draw them: arms or loads as columns, metrics as rows, units in cells."""

from io import BytesIO

import pytest
from reading import arms, codes, read, windows

from specscope.readers.document import is_document, parts
from specscope.readers.records import Arm, Finding
from specscope.readers.registry import reader_for
from specscope.readers.source import from_stream
from specscope.readers.tables.cells import bare, quantity
from specscope.readers.tables.drawn import tables
from specscope.readers.tables.names import k_of
from specscope.readers.tables.shape import long_rows
from specscope.readers.tables.table import Table


@pytest.mark.parametrize(
    ("cell", "value", "unit"),
    [
        ("1,234.5 tok/s", 1234.5, "tok/s"),
        ("246,348", 246348, ""),
        ("12 345", 12345, ""),
        ("1,25", 1.25, ""),
        ("~62% (273/436)", 62, "%"),
        ("1.6x", 1.6, "x"),
        ("94 ms", 94, "ms"),
        ("1.00 ms/token", 1, "ms/token"),
        ("31.00/0.07", 31, ""),
        ("96.1 (+52%)", 96.1, ""),
        ("43*", 43, ""),
        ("-7", -7, ""),
        ("8K", 8, "k"),
        ("10-11 tokens/s", 10.5, "tokens/s"),
        ("45–53%", 49, "%"),
    ],
)
def test_a_cell_gives_its_number_and_unit(cell, value, unit):
    assert quantity(cell) == (value, unit)


@pytest.mark.parametrize(
    "cell",
    ["45-63%", "10-11", "5 to 6", "n/a", "-", "", "2,000-token context", "2026-01-01", "9" * 400],
)
def test_a_cell_without_one_number_gives_none(cell):
    assert quantity(cell) is None


def test_marks_of_markdown_are_no_part_of_a_cell():
    assert bare("**`mtp_k`** [note](http://x/y)") == "mtp_k note"


@pytest.mark.parametrize(
    ("name", "k"),
    [
        ("`--spec-draft-n-max 3 --draft-p-min 0`", 3),
        ("n_max=2", 2),
        ("MTP 8", 8),
        ("mtp_draft_1", 1),
        ("num_speculative_tokens=5", 5),
        ("eagle3", None),
        ("draft 0.5B", None),
        ("MTP b=4", None),
    ],
)
def test_a_draft_length_stands_behind_an_option_or_a_drafters_name(name, k):
    assert k_of(name) == k


def read_table(text):
    ((table, _),) = tables(text.splitlines())
    return table


def test_metrics_as_rows_become_one_arm_a_column():
    table = read_table(
        "| Metric | MTP=off | MTP=on | % Difference |\n|---|---|---|---|\n"
        "| Total input tokens | 65536 | 65536 | 0% |\n"
        "| Output token throughput (tok/s) | 80.00 | 120.00 | +50.00% |\n"
        "| Accept length | - | 2.50 | N/A |\n"
    )

    off, on = long_rows(table)

    assert (off["arm"], off["output_token_throughput_tok_per_s"]) == ("MTP=off", "80.00")
    assert (on["arm"], on["accept_length"]) == ("MTP=on", "2.50")


def test_a_column_per_load_needs_a_stated_unit():
    header = "| k | C=1 | C=8 | Accept |\n|---|---|---|---|\n"
    with_unit = read_table(header + "| 2 | 50 tok/s | 300 tok/s | 60% |\n")
    without = read_table(header + "| 2 | 50 | 300 | 60% |\n")

    assert long_rows(with_unit) == [
        {"k": "2", "concurrency": "1", "tok_s": "50 tok/s"},
        {"k": "2", "concurrency": "8", "tok_s": "300 tok/s"},
    ]
    assert long_rows(without) == [{"k": "2", "c_1": "50", "c_8": "300", "accept": "60%"}]


@pytest.mark.parametrize(
    ("plain", "spec", "claim", "measure"),
    [("50", "75", "1.5x", "tok_s"), ("60", "40", "1.5x", "tpot_ms"), ("50", "75", "3x", None)],
)
def test_arms_as_columns_without_a_unit_are_read_by_the_speedup_beside_them(
    plain, spec, claim, measure
):
    table = read_table(
        "| Tokens | Baseline | DFlash | Speedup |\n|---|---|---|---|\n"
        f"| 256 | {plain} | {spec} | {claim} |\n"
    )

    rows = long_rows(table)

    assert [row.get(measure) for row in rows] == ([plain, spec] if measure else [None])
    if measure:
        assert rows[0]["label"] == "Tokens 256"


def test_the_line_above_a_table_may_state_its_unit():
    table = read_table(
        "### Decode tok/s (median of 3 runs)\n\n| Prompt | Prefill tokens | Baseline | MTP |\n"
        "|---|---:|---:|---:|\n| short | 33 | **200** | 43* |\n"
    )

    plain, mtp = long_rows(table)

    assert (plain["arm"], plain["throughput_tok_s"]) == ("Baseline", "200")
    assert (mtp["arm"], mtp["throughput_tok_s"], mtp["prompt"]) == ("MTP", "43", "short")


DRAWN = [
    "+--------+-------+\n| Key    | Value |\n+========+=======+\n| Output token throughput (tok/s)"
    " | 512.4 |\n+--------+-------+\n",
    "┃ Metric ┃ avg ┃ min ┃\n┡━━━━╇━━━━╇━━━━┩\n"
    "│ Output Token Throughput (tokens/sec) │ 512.4 │ N/A │\n└────┴────┴────┘\n",
    "metric                           value\n-------------------------------  -----\n"
    "output token throughput (tok/s)  512.4\n",
    "Metric\tavg\tp99\n\nOutput token throughput (tok/s)\t512.4\t900.0\n",
]


@pytest.mark.parametrize("text", DRAWN, ids=["grid", "box", "aligned", "tabs"])
def test_a_table_is_known_however_it_is_drawn(text):
    (row,) = long_rows(read_table(text))

    assert "512.4" in row.values()
    assert any("throughput" in name for name in row)


def test_rows_whose_acceptance_is_blank_are_the_baseline():
    table = "config,tok_s,acceptance\nLlama-70B,200,-\nsuffix,320,57%\nlstm,340,64%\n"

    assert [arm.role for arm in arms(table)] == ["target_only", "speculative", "speculative"]


def test_one_percent_is_not_taken_for_all():
    (window,) = windows("config,tok_s,acceptance\neagle,320,0.7%\n")

    assert window.acceptance_rate == pytest.approx(0.007)


def test_columns_of_positions_give_the_length():
    (window,) = windows("k,P0,P1,P2,tok_s\n3,73%,52%,36%,100\n")

    assert window.mean_length == pytest.approx(2.61)
    assert window.position_rates == pytest.approx((0.73, 0.52, 0.36))


def test_models_in_one_table_are_classes_of_their_own():
    table = "model,strategy/config,tok/s\na,baseline,100\na,ngram,110\nb,baseline,50\nb,ngram,40\n"

    found = arms(table)

    assert [arm.conditions for arm in found] == [{"label": m} for m in "aabb"]
    assert [arm.arm for arm in found] == ["baseline", "ngram", "baseline", "ngram"]


TIMES = "arm,k,context,target_ms,draft_ms,verify_ms,tokens_per_round\n"


def test_phase_times_become_a_modelled_pair_per_class():
    text = TIMES + "eagle,5,2000,1.00,0.40,1.10,4.5\n"

    plain, eagle = arms(text)

    assert (plain.role, plain.metrics, plain.conditions) == (
        "target_only",
        {"tpot_ms": 1.0},
        {"context": 2000},
    )
    # (0.40 + 1.10) / 4.5 tokens = 1/3 ms each.
    assert eagle.metrics["tpot_ms"] == pytest.approx(1 / 3)
    assert {arm.settings["grade"] for arm in (plain, eagle)} == {"modelled"}
    assert codes(text) == {"BREAK_EVEN"}


def test_a_verification_shorter_than_a_step_is_flagged():
    assert "INCONSISTENT_BASELINE" in codes(TIMES + "eagle,5,2000,1.00,0.50,0.65,4.2\n")


def test_units_in_the_cells_of_phase_times_are_heeded():
    text = (
        "Request class\tTarget-only time\tDraft time\tVerify time\tMean output per round\n"
        "long\t1.00 ms/token\t900 us\t0.0012 s\t1.4 tokens\n"
    )

    plain, spec = arms(text)

    assert plain.metrics["tpot_ms"] == 1.0
    assert spec.metrics["tpot_ms"] == pytest.approx(2.1 / 1.4)


def test_times_without_a_unit_are_not_guessed():
    text = "arm,target_only_time,draft_time,verify_time,tokens_per_round\neagle,1,0.5,1.2,2\n"

    assert not [arm for arm in arms(text) if "tpot_ms" in arm.metrics]


@pytest.mark.parametrize(
    ("verify", "rounds", "round_ms"),
    [(5750, 47, 5750 / 47), (122.0, 47, 122.0), (12.0, 100_000, 12.0)],
)
def test_a_column_of_times_is_a_sum_over_rounds_where_only_that_fits(verify, rounds, round_ms):
    # 2.72 tokens at 21.1 tok/s take 129 ms a round.
    text = f"run,tok_s,verify_ms,tok_per_cycle,cycles\nx,21.1,{verify},2.72,{rounds}\n"

    assert windows(text)[0].round_ms == pytest.approx(round_ms)


def named_parts(text):
    data = text.encode()

    assert is_document(data)
    return parts(from_stream("issue.md", BytesIO(data)))


def test_a_pasted_issue_falls_into_its_blocks():
    text = (
        "# Slow\n\nwithout eagle:\n```\nfirst block\n```\n**with eagle**\n\n```json\n"
        '$ curl localhost | jq\n{"a": 1}\n```\n\n| arm | tok/s |\n|---|---|\n| none | 1 |\n\nend\n'
    )

    found = named_parts(text)

    assert [(part.source.name, part.table is not None) for part in found] == [
        ("issue.md::without eagle", False),
        ("issue.md::with eagle", False),
        ("issue.md::with eagle 2", False),
        ("issue.md::part 4", True),
        ("issue.md", False),
    ]
    assert found[2].source.head == b'{"a": 1}\n'
    assert "first block" not in "\n".join(found[-1].lines)


def test_a_log_with_commas_is_no_table():
    line = (
        "INFO 05-06 06:11:23 Avg prompt throughput: 14.3 tokens/s, Avg generation throughput: "
        "93.9 tokens/s, Running: 3 reqs, Waiting: 0 reqs\n"
    )

    assert reader_for((line * 3).encode()).format == "text"


def test_a_table_of_no_rows_is_nothing():
    assert long_rows(Table(["a", "b"], [])) == []
    assert not [r for r in arms("a,tok_s\n") if isinstance(r, Arm)]


def test_speeds_in_a_list_are_arms_where_one_of_them_is_a_baseline():
    table = read_table(
        "My results:\ntp = 1\nwith eagle: 30 tps\nwithout eagle: 20 tps\n"
        "tp = 4\nwith eagle: 59 tps\nwithout eagle: 61 tps\n\nThanks\n"
    )

    assert [(row["label"], row["arm"], row["tok_per_s"]) for row in table.rows] == [
        ("tp = 1", "with eagle", "30 tps"),
        ("tp = 1", "without eagle", "20 tps"),
        ("tp = 4", "with eagle", "59 tps"),
        ("tp = 4", "without eagle", "61 tps"),
    ]


def test_the_last_speed_of_a_line_is_that_of_the_output():
    text = (
        "* vanilla, [02:08<00:00, est. speed input: 47.09 toks/s, output: 128.64 toks/s]\n"
        "* k=2: [01:34<00:00, est. speed input: 64.12 toks/s, output: 175.49 toks/s] **Len 1.89**\n"
    )

    assert [row["tok_per_s"] for row in read_table(text).rows] == ["128.64 toks/s", "175.49 toks/s"]
    assert is_document(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        "eagle: 30 tps\nmtp: 40 tps\n",
        "We got: 30 tps without it\n",
        "a: b\nc: d\n",
        "with k=2: prose 43.7 vs 61.2 tok/s\nbaseline, 8-way concurrency 143.8 vs 163.2 tok/s\n",
        "baseline, 8-way concurrency 163.2 tok/s\nwith eagle: 143.8 tok/s\n",
    ],
)
def test_a_list_without_a_baseline_is_prose(text):
    assert list(tables(text.splitlines())) == []


def test_metrics_as_rows_under_loads_are_classes_and_no_arms():
    table = read_table(
        "| Metric | conc=8 | conc=16 |\n|---|---|---|\n| Mean TPOT (ms) | 12.8 | 17.2 |\n"
    )

    assert long_rows(table) == [
        {"concurrency": "8", "mean_tpot_ms": "12.8"},
        {"concurrency": "16", "mean_tpot_ms": "17.2"},
    ]


def test_rows_that_nothing_tells_apart_are_not_compared():
    assert arms("backend,tok_s\nCUDA,30\nCUDA,50\n") == []


def test_a_column_is_throughput_by_the_units_in_its_cells():
    text = "Draft Model\tnum_speculative_tokens\tInference Speed\nA\t3\t10-11 tokens/s\n"

    (arm,) = arms(text)

    assert (arm.arm, arm.k, arm.metrics) == ("A k=3", 3, {"throughput_tok_s": 10.5})


def test_a_llama_bench_table_says_what_verification_costs():
    text = (
        "| model | size | backend | test | t/s |\n| --- | ---: | --- | --- | ---: |\n"
        "| 7B | 12.55 GiB | CUDA | pp 4 | 50.00 ± 0.64 |\n"
        "| 7B | 12.55 GiB | CUDA | pp 512 | 900.00 ± 0.64 |\n"
        "| 7B | 12.55 GiB | CUDA | tg 128 | 25.00 ± 0.10 |\n"
    )

    (plain,) = arms(text)

    # 4 tokens at 50 tok/s take 80 ms, a step at 25 tok/s 40 ms.
    assert (plain.role, plain.metrics["tpot_ms"]) == ("target_only", 40)
    said = [f for f in read(text) if isinstance(f, Finding)]
    assert [f.evidence["steps_by_tokens"] for f in said] == [{4: 2.0}]


def test_break_even_is_given_for_each_drafter_of_a_table():
    text = "Drafter,acc_len,draft ms/step,verify ms/step\nmtp,1.8,6.0,30.0\ndflash,4.0,40.0,60.0\n"

    (finding,) = [f for f in read(text) if isinstance(f, Finding)]

    assert finding.evidence["break_even_step_ms"] == {"mtp": 20.0, "dflash": 25.0}


@pytest.mark.parametrize(
    ("columns", "cells", "told"),
    [
        ("", "", "a column `tokens_per_round` would decide"),
        (",accepted_tokens", ",3", "a column `tokens_per_round` would decide"),
        (",accepted_tokens", ",1.9", "1.9 accepted a round are more, with or without that token"),
        (",accepted_tokens", ",0.1", "0.1 accepted a round are fewer, with or without that token"),
        (",accepted_tokens", ",0.9", "whether 0.9 accepted a round count that token decides"),
    ],
)
def test_phase_times_without_tokens_per_round_say_what_it_takes(columns, cells, told):
    text = f"target_ms,draft_ms,verify_ms,k{columns}\n20,2,22,4{cells}\n"

    (even,) = (found for found in read(text) if getattr(found, "code", "") == "BREAK_EVEN")

    # 2 + 22 ms against 20 ms for a token: 24 / 20.
    assert even.evidence["break_even_tokens"] == 1.2
    assert told in even.text
    if "." in cells:
        assert all(window.accepted is None for window in windows(text))  # it is no count


def test_a_verification_shorter_than_a_step_is_said_without_tokens_per_round_too():
    text = "target_ms,draft_ms,verify_ms,k\n1.00,0.50,{verify},4\n"

    assert "INCONSISTENT_BASELINE" in codes(text.format(verify="0.65"))
    assert "INCONSISTENT_BASELINE" not in codes(text.format(verify="1.20"))
