"""Ring records become rows that add up, whatever the rounds were."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from agent_support import Traffic, a_boot, ring_at
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specscope_agent.cut import cut
from specscope_agent.parts import gap_bin
from specscope_agent.rings import Rings
from specscope_hook.recorder import Recorder
from specscope_hook.ring import ROUND, Cursor

# The folder is emptied by each example itself.
UNCHECKED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
SUMS = ("sequences", "proposed", "accepted", "emitted", "context")


def emitted_of(part: dict) -> list[int]:
    return part["emitted"] or [accepted + 1 for accepted in part["accepted"]]


@pytest.fixture
def folder(tmp_path):
    return tmp_path


def rows_of(folder, write, **boot):
    """Tables as lists of rows, of all that `write(recorder)` puts on a ring."""
    ring = ring_at(folder, a_boot(**boot))
    rings = Rings(folder)
    try:
        write(Recorder(ring, salt=b"s"))
        ring.flush()
        rings.refresh()
        (open_ring,) = rings.open
        made = cut(open_ring, Cursor())
    finally:
        rings.close()
        ring.close()
        ring.path.unlink()
    tables = {name: table.to_pylist() for name, table in made.tables.items()}
    return defaultdict(list, tables) | {"loss": made.losses.rows}


def opened(folder):
    rings = Rings(folder)
    rings.refresh()
    return rings.open


@settings(max_examples=60, suppress_health_check=UNCHECKED)
@given(
    seed=st.integers(0, 2**32),
    batches=st.lists(st.integers(0, 9), min_size=1, max_size=40),
    block_length=st.integers(1, 12),
)
def test_a_round_is_the_sum_of_its_request_parts_and_a_request_of_its_own(
    folder, seed, batches, block_length
):
    truth: list[Traffic] = []

    def write(recorder):
        traffic = Traffic(recorder, np.random.default_rng(seed))
        truth.append(traffic)
        for index, batch in enumerate(batches):
            pair = 1 + index // block_length
            recorder.block(7, pair, f"k{pair % 3}")
            traffic.round(batch)

    rows = rows_of(folder, write)
    rounds = {row["seq"]: row for row in rows["round"]}
    by_round = {seq: defaultdict(int) for seq in rounds}
    seqs = sorted(rounds)
    left = {request: [seqs[i] for i in took] for request, took in truth[0].took_part.items()}
    for part in rows["request_part"]:
        covered, left[part["request"]] = (
            left[part["request"]][: part["rounds"]],
            left[part["request"]][part["rounds"] :],
        )
        assert (part["first_seq"], part["last_seq"]) == (covered[0], covered[-1])
        assert len(part["k"]) == len(part["accepted"]) == part["rounds"]
        assert {rounds[seq]["pair"] for seq in covered} == {part["pair"]}
        assert sum(part["gap_counts"]) == part["rounds"]
        for place, seq in enumerate(covered):
            total = by_round[seq]
            total["proposed"] += part["k"][place]
            total["accepted"] += part["accepted"][place]
            total["emitted"] += emitted_of(part)[place]
            total["batch"] += 1
            total["k"] = max(total["k"], part["k"][place])
    assert not any(left.values())
    for seq, row in rounds.items():
        for name in ("proposed", "accepted", "emitted", "batch", "k"):
            assert row[name] == by_round[seq][name]
        assert row["n_q"] == row["proposed"] + row["batch"]
    per_request = defaultdict(int)
    for part in rows["request_part"]:
        per_request[part["request"]] += sum(emitted_of(part))
    assert per_request == truth[0].emitted
    ended = {r["request"]: r["output_tokens"] for r in rows["request"] if r["ended_at"]}
    assert ended == {request: per_request[request] for request in ended} == truth[0].outputs


@settings(max_examples=30, suppress_health_check=UNCHECKED)
@given(seed=st.integers(0, 2**32), batches=st.lists(st.integers(0, 20), min_size=1, max_size=20))
def test_the_sums_by_class_add_up_to_the_round(folder, seed, batches):
    classes = ("sql", "prose", "json", "python", "")

    def write(recorder):
        traffic = Traffic(recorder, np.random.default_rng(seed), classes)
        for batch in batches:
            traffic.round(batch)

    for row in rows_of(folder, write)["round"]:
        lists = {name: row[f"class_{name}"] for name in SUMS}

        assert {len(values) for values in lists.values()} == {len(row["classes"])}
        assert sum(lists["sequences"]) == row["batch"]
        assert sum(lists["proposed"]) == row["proposed"]
        assert sum(lists["accepted"]) == row["accepted"]
        assert sum(lists["emitted"]) == row["emitted"]
        assert sum(lists["context"]) == row["n_kv"]
        assert set(row["classes"]) <= {"sql", "prose", "json", "python", "unlabelled"}


def test_a_cut_into_any_number_of_batches_holds_the_same_rounds(folder):
    ring = ring_at(folder, a_boot())
    traffic = Traffic(Recorder(ring, salt=b"s"), np.random.default_rng(3))
    for _ in range(100):
        traffic.round(5)
    (open_ring,) = opened(folder)
    whole = cut(open_ring, Cursor()).tables["request_part"].to_pylist()

    pieces, cursor = [], Cursor()
    while records := open_ring.reader.pull(cursor, 2_000)[0]:
        made = cut(open_ring, cursor, pull_bytes=2_000)
        assert made.records == records
        pieces += made.tables["request_part"].to_pylist() if "request_part" in made.tables else []
        cursor = made.cursor

    assert len(pieces) > len(whole)
    for name in ("k", "accepted"):
        assert totals_of(pieces, name) == totals_of(whole, name)
    ring.close()


def totals_of(parts: list[dict], name: str) -> dict[int, list[int]]:
    """Values of each request over its parts, in order."""
    values = defaultdict(list)
    for part in sorted(parts, key=lambda part: part["first_seq"]):
        values[part["request"]] += part[name]
    return values


def one_round(recorder, **more):
    given = {
        "started_at": 1_790_000_000_000_000_000,
        "wall_us": 8_000.0,
        "requests": [11],
        "contexts": [100],
        "classes": [recorder.class_id("sql")],
        "k": [4],
        "accepted": [2],
        "emitted": [3],
        "ends": [0],
    }
    recorder.round(**given | more)


def test_what_is_unknown_is_null_and_never_zero(folder):
    (row,) = rows_of(folder, lambda recorder: one_round(recorder, draft_us=0.0))["round"]

    assert row["draft_us"] == 0.0
    unknown = {name for name, value in row.items() if value is None}
    assert unknown == {
        "policy", "pair", "arm", "block_age_ms", "verify_us", "sample_us", "idle_us",
        "catchup_us", "prefill_us", "dram_active", "dram_window_ms",
    }  # fmt: skip


def test_a_request_that_still_runs_has_no_end(folder):
    def write(recorder):
        handle = recorder.admitted(request=5, class_=255, prompt_tokens=9, temperature=0.0)
        recorder.ended(handle, output_tokens=0, reason=4, e2e_ms=12.5)

    admission, end = rows_of(folder, write)["request"]

    names = ("ended_at", "output_tokens", "preemptions", "digest", "e2e_ms", "cached_tokens")
    assert [admission[name] for name in names] == [None] * 6
    assert (admission["reason"], end["reason"], admission["class"]) == ("none", "abort", "other")
    assert (end["output_tokens"], end["e2e_ms"], end["digest"]) == (0, 12.5, None)


def test_an_end_within_the_accepted_prefix_is_spelled_out(folder):
    def write(recorder):
        one_round(recorder)
        one_round(recorder, accepted=[4], emitted=[2], ends=[1])

    (part,) = rows_of(folder, write)["request_part"]

    assert (part["emitted"], part["end"]) == ([3, 2], "eos")


def test_emitted_is_left_out_where_it_is_always_accepted_and_one(folder):
    (part,) = rows_of(folder, lambda recorder: one_round(recorder))["request_part"]

    assert part["emitted"] == []


def test_a_preempted_request_has_one_part_before_and_one_after(folder):
    def write(recorder):
        one_round(recorder, ends=[5])
        one_round(recorder)

    before, after = rows_of(folder, write)["request_part"]

    assert (before["end"], after["end"]) == ("preempt", "none")
    assert before["last_seq"] < after["first_seq"]


def test_the_gap_of_a_round_that_skipped_some_is_the_time_of_all_of_them(folder):
    def write(recorder):
        one_round(recorder, requests=[1], wall_us=1_000.0)
        one_round(recorder, requests=[2], wall_us=2_000.0)
        one_round(recorder, requests=[1], wall_us=4_000.0)

    first, _ = rows_of(folder, write)["request_part"]

    expected = [int(gap_bin(np.array([ms]))[0]) for ms in (1.0, 6.0)]
    assert (first["gap_bins"], first["gap_counts"]) == (expected, [1, 1])


def test_a_bin_is_two_per_cent_wide():
    width = np.log(1.01 / 0.99)
    times = np.array([0.5, 1.0, 1.5, 40.0, 1e12, np.inf, 0.0])

    bins = gap_bin(times)

    assert bins[1] == 0
    assert np.all(np.exp(bins[:4] * width) >= times[:4] * (1 - 1e-12))
    assert np.all(np.exp((bins[:4] - 1) * width) < times[:4])
    assert np.abs(bins).max() < 2**15


def test_the_arm_and_the_pair_are_those_that_ran(folder):
    def write(recorder):
        recorder.block(3, 9, "k4")
        one_round(recorder)

    rows = rows_of(folder, write)

    for row in (rows["round"][0], rows["request_part"][0]):
        assert (row["policy"], row["pair"], row["arm"]) == (3, 9, "k4")


def test_bytes_moved_follow_the_model_card(folder):
    card = {
        "parameters": 1000, "bytes_per_weight": 2.0, "kv_bytes_per_token": 10, "draft": "d",
        "draft_parameters": 100, "draft_bytes_per_weight": 4.0, "draft_kv_bytes_per_token": 3,
    }  # fmt: skip
    batch = {
        "requests": [1, 2], "contexts": [50, 70], "classes": [255, 255], "k": [4, 1],
        "accepted": [0, 0], "emitted": [1, 1], "ends": [0, 0],
    }  # fmt: skip

    (row,) = rows_of(folder, lambda recorder: one_round(recorder, **batch), **card)["round"]

    target = 2000 + (120 + 7) * 10
    draft = 4 * 400 + (4 * 50 + 1 * 70) * 3
    assert row["model_bytes"] == target + draft


def test_bytes_moved_are_unknown_where_the_card_is(folder):
    (row,) = rows_of(folder, one_round, bytes_per_weight=None)["round"]

    assert row["model_bytes"] is None


def test_a_mixture_of_experts_reads_its_active_weights_for_one_token(folder):
    write = lambda recorder: one_round(recorder, k=[0], accepted=[0], emitted=[1])  # noqa: E731

    (row,) = rows_of(folder, write, active_parameters=250_000)["round"]

    assert row["model_bytes"] == 250_000 * 2 + (100 + 1) * 100


def test_a_payload_of_the_wrong_length_is_a_loss_and_its_neighbours_are_not(folder):
    ring = ring_at(folder, a_boot())
    recorder = Recorder(ring, salt=b"s")
    one_round(recorder)
    ring.push(ROUND, b"too short", 3)
    one_round(recorder)
    ring.flush()
    (open_ring,) = opened(folder)

    made = cut(open_ring, Cursor())

    assert made.tables["round"].column("seq").to_pylist() == [1, 3]
    (loss,) = made.losses.rows
    assert (loss["reason"], loss["first_seq"], loss["count"]) == ("corrupt", 2, 1)
    ring.close()


def test_a_full_dictionary_of_classes_is_said(folder):
    def write(recorder):
        for index in range(70):
            class_ = recorder.class_id(f"class-{index}")
            recorder.admitted(request=index + 1, class_=class_, prompt_tokens=1)

    rows = rows_of(folder, write)

    (loss,) = rows["loss"]
    assert (loss["reason"], loss["count"]) == ("classes_full", 6)
    assert [row["class"] for row in rows["request"]][-7:] == ["class-63"] + ["other"] * 6


def test_a_dropped_round_is_a_gap_with_its_numbers(folder):
    ring = ring_at(folder, a_boot(), 4096)
    recorder = Recorder(ring, salt=b"s")
    for _ in range(60):
        one_round(recorder)
    (open_ring,) = opened(folder)

    made = cut(open_ring, Cursor())

    stored = made.tables["round"].column("seq").to_pylist()
    (loss,) = made.losses.rows
    assert loss["reason"] == "ring_full"
    assert (loss["first_seq"], loss["count"]) == (stored[-1] + 1, ring.dropped)
    assert len(stored) + ring.dropped == 60
    ring.close()


def test_a_round_knows_the_device_sample_that_encloses_it(folder):
    from specscope_agent.windows import Window

    ring = ring_at(folder, a_boot())
    recorder = Recorder(ring, salt=b"s")
    for second in (1, 2, 3):
        one_round(recorder, started_at=second * 10**9)
    (open_ring,) = opened(folder)
    windows = [Window(15 * 10**8, 25 * 10**8, 0.75)]

    rows = cut(open_ring, Cursor(), windows).tables["round"].to_pylist()

    assert [row["dram_active"] for row in rows] == [None, 0.75, None]
    assert [row["dram_window_ms"] for row in rows] == [None, 1000.0, None]
    ring.close()
