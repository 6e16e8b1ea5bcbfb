"""Benchmark tables and device tables in the shapes that people write."""

import pytest
from reading import arms, codes, devices, read, windows

from specscope.readers.records import Finding
from specscope.readers.tables.names import K0, OFF, ON, SILENT, WORD, k_of, named


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("no_spec", OFF),
        ("No speculation", OFF),
        ("baseline", WORD),
        ("baseline-bf16", WORD),
        ("target-only", OFF),
        ("w/o draft", OFF),
        ("vanilla", OFF),
        ("mtp_off", OFF),
        ("Reference", WORD),
        ("eagle disabled", OFF),
        ("eagle_base", ON),
        ("mtp_on_tq_off", ON),
        ("dsd_k0", K0),
        ("k=0", K0),
        ("eagle3", ON),
        ("ngram_k8", ON),
        ("offline-eagle", ON),
        ("default 16", SILENT),  # the default of what is no run without it
        ("default", SILENT),
    ],
)
def test_an_arms_name_says_whether_it_speculates(name, state):
    assert named(name).state == state


@pytest.mark.parametrize(
    ("name", "k"),
    [("static_k3", 3), ("k=5", 5), ("ngram-k8-x", 8), ("eagle", None), ("mk12x", None)],
)
def test_a_draft_length_in_a_name_is_read(name, k):
    assert k_of(name) == k


TABLES = [
    "arm,k,batch,ctx,tok/s,TPOT (ms)\nnone,0,8,2048,100,10\neagle,3,8,2048,150,7\n",
    "config;num_speculative_tokens;batch_size;context_length;throughput_tok_s;tpot_ms\n"
    "none;0;8;2048;100;10\neagle;3;8;2048;150;7\n",
    "Run\tGamma\tBS\tInput len\tTokens/s\tMean TPOT (ms)\nnone\t0\t8\t2048\t100\t10\n"
    "eagle\t3\t8\t2048\t150\t7\n",
    "| arm | k | batch | context | tok/s | tpot_ms |\n|---|---|---|---|---|---|\n"
    "| none | 0 | 8 | 2048 | 100 | 10 |\n| eagle | 3 | 8 | 2048 | 150 | 7 |\n",
]


@pytest.mark.parametrize("table", TABLES)
def test_columns_are_known_under_their_common_names(table):
    plain, eagle = arms(table)

    assert (plain.role, eagle.role, eagle.k) == ("target_only", "speculative", 3)
    assert eagle.conditions == {"context": 2048, "batch": 8}
    assert eagle.metrics["throughput_tok_s"] == 150
    assert eagle.metrics["tpot_ms"] == 7


def test_seconds_become_milliseconds_and_percent_a_rate():
    table = "run,first_token_s,decode_time_s,acceptance,accept_len\nx,0.25,2.5,61.5,2.4\n"

    arm = arms(table)[0]

    assert arm.metrics["ttft_ms"] == 250
    assert arm.metrics["decode_ms"] == 2500
    assert windows(table)[0].acceptance_rate == pytest.approx(0.615)


def test_a_run_that_accepts_tokens_is_no_baseline_whatever_its_name():
    arm = arms("run,tok_s,accepted,drafted,cycles\nmtp_off,13.0,85,96,43\n")[0]

    assert arm.role == "speculative"


def test_samples_of_several_devices_are_averaged_apart():
    text = (
        "timestamp, uuid, utilization.gpu [%], power.draw [W]\n"
        "2026/01/01 00:00:00.000, GPU-a, 10 %, 100.5 W\n"
        "2026/01/01 00:00:00.000, GPU-b, 90 %, [Not Supported]\n"
        "2026/01/01 00:00:01.000, GPU-a, 30 %, 101.5 W\n"
        "2026/01/01 00:00:01.000, GPU-b, 70 %, [Not Supported]\n"
    )

    found = {(d.uuid, d.field): d for d in devices(text)}

    assert found["GPU-a", "utilization.gpu"].value == 20
    assert found["GPU-a", "power.draw"].value == 101
    assert found["GPU-b", "power.draw"].value is None
    assert "Not Supported" in found["GPU-b", "power.draw"].reason


def test_a_table_with_a_column_per_arm_is_unfolded():
    table = (
        "batch_size,no_spec_tok_s,eagle_k3_tok_s,no_spec_tpot_ms,eagle_k3_tpot_ms\n1,100,150,10,7\n"
    )

    plain, eagle = arms(table)

    assert (plain.role, eagle.k, eagle.conditions) == ("target_only", 3, {"batch": 1})
    assert (plain.metrics["throughput_tok_s"], eagle.metrics["tpot_ms"]) == (100, 7)


def test_a_speed_or_time_that_cannot_be_is_unknown_and_said_once_a_column():
    table = (
        "arm,k,tok_s,tpot_ms,ttft_s,accepted\n"
        "none,0,100,10,0.1,0\neagle,3,0,-7,0.1,-5\neagle,3,-150,7,0,12\n"
    )

    plain, *eagle = arms(table)
    said = [f for f in read(table) if isinstance(f, Finding)]

    assert set(plain.metrics) == {"throughput_tok_s", "tpot_ms", "ttft_ms", "accepted"}
    assert [arm.metrics for arm in eagle] == [{"ttft_ms": 100}, {"tpot_ms": 7, "accepted": 12}]
    assert {f.code for f in said} == {"IMPOSSIBLE_VALUE"}
    assert [f.text for f in said] == [
        "tok_s is 0 in 2 rows, first in 2: not possible, stored as unknown",
        "tpot_ms is -7 in row 2: not possible, stored as unknown",
        "accepted is -5 in row 2: not possible, stored as unknown",
        "ttft_s is 0 in row 3: not possible, stored as unknown",
    ]


def test_a_column_per_arm_says_impossible_speeds_too():
    table = "batch_size,no_spec_tok_s,eagle_k3_tok_s\n1,100,0\n"

    plain, eagle = arms(table)

    assert (plain.metrics, eagle.metrics) == ({"throughput_tok_s": 100}, {})
    assert "IMPOSSIBLE_VALUE" in codes(table)
