from __future__ import annotations

import time
from collections import Counter
from math import ceil, log
from operator import itemgetter

import pyarrow as pa
import pytest
from store.traffic import Traffic, table
from store.truth import blocks, grouped, lengths, positions, sums

from specscope import queries
from specscope.errors import StoreError
from specscope.evidence.outputs import read_outputs
from specscope.service.intake import admit
from specscope.store import rollup_sql
from specscope.store.buckets import CONTEXT, OUTPUT
from specscope.store.roll import Roller, roll

SECOND = 10**9
MINUTE = 60 * SECOND
GRAINS = ("block_time", "block_part", "block_class", "minute", "minute_time", "hour")


def ledger_rows(traffic, *, dated=True):
    """What the service writes for all batches of some traffic."""
    now = traffic.rounds[-1].started_at
    rows = [admit(message, now).ledger(now) for message in traffic.messages()]
    undated = {} if dated else dict.fromkeys(("first_at", "last_at", "admitted_at"))
    return [row | undated for row in rows]


def put(store, traffic, *, ledger=True, only=None, dated=True):
    """Store all batches of some traffic; the ledger last, as the service does."""
    for tables in traffic.batches():
        for name, rows in tables.items():
            if only is None or name in only:
                store.insert(name, rows)
    if ledger:
        store.insert("batch", table("batch", ledger_rows(traffic, dated=dated)))


def rolled(store, grain):
    apart = "EXCEPT (version, computed_at)" if grain.startswith("block") else "EXCEPT version"
    return store.rows(f"SELECT * {apart} FROM {grain} FINAL ORDER BY ALL")


def ns(moment):
    return pa.scalar(moment, pa.timestamp("ns", "UTC")).value


def test_a_minute_adds_up_what_ran_in_it_by_class_and_k(store):
    traffic = Traffic(pairs=4, round_ns=2 * SECOND)  # over several minutes
    put(store, traffic)

    roll(store, everything=True)

    # A part belongs to the minute in which its first round here began.
    starts = {}
    for tables in traffic.batches():
        for part in tables["request_part"].to_pylist():
            for i in range(part["rounds"]):
                starts.setdefault(part["request"], []).append((ns(part["started_at"]), i))
    seen = {request: iter(sorted(times)) for request, times in starts.items()}
    truth = grouped(traffic, lambda r, s: (next(seen[s.request])[0] // MINUTE, s.class_, s.k))
    got = {
        (ns(row["minute"]) // MINUTE, row["class"], row["k"]): row
        for row in rolled(store, "minute")
    }
    assert len({minute for minute, _, _ in truth}) > 2
    assert set(got) == set(truth)
    for key, sequences in truth.items():
        tested, kept, _ = positions(sequences, key[2])
        expected = sums(sequences) | {
            "tested": tested,
            "kept": kept,
            "accepted_length": lengths(sequences, key[2]),
            "context": sum(s.context for s in sequences),
        }
        assert {name: got[key][name] for name in expected} == expected


def test_a_minute_s_time_is_the_sum_of_its_rounds_by_arm_and_k(store):
    traffic = Traffic(pairs=2, round_ns=SECOND)
    put(store, traffic)

    roll(store, everything=True)

    truth: dict = {}
    for round_ in traffic.rounds:
        k = max(s.k for s in round_.sequences)
        truth.setdefault((round_.started_at // MINUTE, round_.arm, k), []).append(round_)
    got = {
        (ns(row["minute"]) // MINUTE, row["arm"], row["k"]): row
        for row in rolled(store, "minute_time")
    }
    assert set(got) == set(truth)
    for key, rounds in truth.items():
        row = got[key]
        assert row["rounds"] == len(rounds)
        assert row["batch"] == sum(len(r.sequences) for r in rounds)
        assert row["emitted"] == sum(s.emitted for r in rounds for s in r.sequences)
        assert row["wall_us"] == pytest.approx(sum(r.wall_us for r in rounds))
        assert row["verify_us"] == pytest.approx(sum(r.wall_us for r in rounds) / 2)
        assert row["idle_us"] is None
        assert sum(row["wall_counts"]) == len(rounds)
        for bin_, rounds_in in zip(row["wall_bins"], row["wall_counts"], strict=True):
            expected = [r for r in rounds if ceil(log(r.wall_us / 1000) / log(1.01 / 0.99)) == bin_]
            assert rounds_in == len(expected)


def test_a_block_adds_up_the_whole_replica_s_rounds(store):
    traffic = Traffic(pairs=3)
    put(store, traffic)

    roll(store, everything=True)

    truth = blocks(traffic)
    got = {(row["pair"], row["arm"]): row for row in rolled(store, "block_time")}
    assert set(got) == set(truth)
    for key, rounds in truth.items():
        row, flat = got[key], [s for r in rounds for s in r.sequences]
        assert (row["epoch"], row["policy"], row["replica"]) == ("e0", 7, "r0")
        assert row["requests"] == traffic.requests
        assert row["rounds"] == len(rounds)
        assert row["classes"] == sorted({s.class_ for s in flat})
        assert {name: row[name] for name in sums(flat)} == sums(flat)
        assert row["n_kv"] == sum(s.context for s in flat)
        assert row["wall_us"] == pytest.approx(sum(r.wall_us for r in rounds))
        assert ns(row["first_at"]) == rounds[0].started_at
        assert ns(row["last_at"]) == rounds[-1].started_at
        # Chunks: each request's rounds but the first of each of its parts.
        assert 0 < sum(row["gap_counts"]) <= len(flat) - traffic.requests
        ended = [r for r in traffic.requests_ended if (r["pair"], r["arm"]) == key]
        bins: dict = {}
        for request in ended:
            if request["output_tokens"] > 1:
                tpot = request["decode_ms"] / (request["output_tokens"] - 1)
                bin_ = ceil(log(tpot) / log(1.01 / 0.99))
                bins[bin_] = bins.get(bin_, 0) + 1
        assert dict(zip(row["tpot_bins"], row["tpot_counts"], strict=True)) == bins


def test_a_block_s_classes_carry_how_long_each_waited_for_its_tokens(store):
    traffic = Traffic(pairs=3)
    put(store, traffic)

    roll(store, everything=True)

    truth: dict = {}
    for request in traffic.requests_ended:
        key = request["pair"], request["arm"], request["class"]
        counts = truth.setdefault(key, Counter())
        if request["output_tokens"] > 1:
            tpot = request["decode_ms"] / (request["output_tokens"] - 1)
            counts[ceil(log(tpot) / log(1.01 / 0.99))] += 1
    got = {(row["pair"], row["arm"], row["class"]): row for row in rolled(store, "block_class")}
    assert set(got) == set(truth)
    assert len({class_ for _, _, class_ in got}) > 1
    for key, counts in truth.items():
        row = got[key]
        assert (row["epoch"], row["policy"], row["replica"]) == ("e0", 7, "r0")
        assert dict(zip(row["tpot_bins"], row["tpot_counts"], strict=True)) == counts
    for block in rolled(store, "block_time"):
        mine = [row for row in got.values() if row["pair"] == block["pair"]]
        assert (
            sum(row["requests"] for row in mine if row["arm"] == block["arm"])
            == (block["requests"])
        )


def test_a_block_s_parts_carry_the_evidence_by_segment(store):
    traffic = Traffic(pairs=3, arms=(("k0", 0), ("k3", 3), ("k5", 5)))
    put(store, traffic)

    roll(store, everything=True)

    prompts = {r["request"]: r["prompt_tokens"] for r in traffic.requests_ended}
    truth = grouped(
        traffic,
        lambda r, s: (r.pair, r.arm, s.class_, CONTEXT.name(prompts[s.request]), s.k),
    )
    got = {
        (row["pair"], row["arm"], row["class"], row["context_bucket"], row["k"]): row
        for row in rolled(store, "block_part")
    }
    assert set(got) == set(truth)
    for key, sequences in truth.items():
        tested, kept, censored = positions(sequences, key[4])
        row = got[key]
        assert {name: row[name] for name in sums(sequences)} == sums(sequences)
        assert (row["tested"], row["kept"], row["censored"]) == (tested, kept, censored)
        assert row["requests"] == len({s.request for s in sequences})
        assert row["output_bucket"] == OUTPUT.name(traffic.output)
    assert sum(row["censored"] for row in got.values()) > 0


def test_a_block_keeps_what_may_explain_it(store):
    traffic = Traffic(pairs=1, arms=(("k4", 4),))
    adapters = {request["request"]: name for request, name in zip(
        traffic.requests_ended, ("legal", None, "legal"), strict=True)}  # fmt: skip
    for _, record in traffic._records:
        if isinstance(record, dict):
            record["adapter"] = adapters[record["request"]]
            record["guided"] = record["adapter"] is not None
            record["cached_tokens"] = 10
    put(store, traffic, only={"boot", "request", "request_part"})
    extra = {"invalid": 2, "preempted": 1, "waiting": 3, "model_bytes": 1000}
    rows = [traffic.round_row(round_) | extra for round_ in traffic.rounds]
    rows[0]["dram_active"], rows[1]["dram_active"] = 0.5, 0.25
    rows[0]["waiting"], rows[-1]["waiting"] = 1, 5
    store.insert("round", table("round", rows))

    roll(store, everything=True)

    (block,) = rolled(store, "block_time")
    count, (first, second) = len(rows), rows[:2]
    assert (block["invalid"], block["preempted"]) == (2 * count, count)
    assert block["waiting"] == 3 * count
    assert (block["waiting_first"], block["waiting_last"]) == (1, 5)
    assert block["model_bytes"] == 1000 * count
    assert block["full_tokens"] == sum(row["batch"] * 5 for row in rows)
    assert block["dram_seen_us"] == pytest.approx(first["wall_us"] + second["wall_us"])
    assert block["dram_busy_us"] == pytest.approx(first["wall_us"] / 2 + second["wall_us"] / 4)
    assert (block["ended_requests"], block["cached_tokens"], block["first_tokens"]) == (3, 30, 3)
    assert block["ttft_us"] == pytest.approx(3 * 50_000)
    assert block["output_tokens"] == sum(r["output_tokens"] for r in traffic.requests_ended)
    assert block["prompt_tokens"] == sum(r["prompt_tokens"] for r in traffic.requests_ended)
    flat = [s for round_ in traffic.rounds for s in round_.sequences]
    found: dict = {}
    for part in rolled(store, "block_part"):
        columns = ("kind_rounds", "kind_emitted", "kind_tested", "kind_kept")
        for kind, *values in zip(part["kinds"], *(part[name] for name in columns), strict=True):
            found[kind] = [a + b for a, b in zip(found.get(kind, [0] * 4), values, strict=True)]
    for kind, name in (("", None), ("legal guided", "legal")):
        mine = [s for s in flat if adapters[s.request] == name]
        tested, kept, _ = positions(mine, 4)
        emitted = sum(s.emitted for s in mine)
        assert found.pop(kind) == [len(mine), emitted, tested[0], kept[0]]
    assert found == {}


def test_an_hour_forgets_the_replica_and_keeps_the_epoch(store):
    one = Traffic(seed=1, replica="r1")
    other = Traffic(seed=2, replica="r2", started_at=one.started_at)
    later = Traffic(seed=3, replica="r3", epoch="e1", started_at=one.started_at)
    for traffic in (one, other, later):
        put(store, traffic)

    roll(store, everything=True)

    rows = rolled(store, "hour")
    for epoch, traffics in (("e0", (one, other)), ("e1", (later,))):
        mine = [row for row in rows if row["epoch"] == epoch]
        flat = [s for t in traffics for r in t.rounds for s in r.sequences]
        assert sum(row["request_rounds"] for row in mine) == len(flat)
        assert sum(row["emitted"] for row in mine) == sum(s.emitted for s in flat)


@pytest.mark.parametrize("restarted", [False, True])
def test_rounds_move_to_the_epoch_of_their_boot_when_it_is_known(store, restarted):
    late, other = Traffic(seed=1, pairs=3), Traffic(seed=2, replica="r2")
    other = Traffic(seed=2, replica="r2", started_at=late.started_at)
    put(store, late, only={"round", "request_part", "request"})
    put(store, other)
    roller = Roller(store)
    roller.recover()
    roller.tick(everything=True)
    assert {row["epoch"] for row in rolled(store, "hour")} == {"", "e0"}

    # A batch that brings no round, such as the one that says how the boot ended.
    store.insert("boot", table("boot", [late.boot_row()]))
    said = ledger_rows(late)[-1]
    said |= {
        "number": said["number"] + 1,
        "first_seq": said["next_seq"],
        "stored_at": time.time_ns(),
    }
    said |= dict.fromkeys(("rounds", "request_parts", "requests", "losses"), 0)
    said |= dict.fromkeys(("first_at", "last_at", "admitted_at"))
    store.insert("batch", table("batch", [said]))
    if restarted:
        roller = Roller(store)
        roller.recover()
    else:
        roller.note([said])
    done = roller.tick(everything=True)

    assert done.blocks == len(blocks(late))
    check_blocks(store, [late, other])
    by_epoch = Counter()
    for row in rolled(store, "hour"):
        by_epoch[row["epoch"]] += row["request_rounds"]
    flat = [s for t in (late, other) for r in t.rounds for s in r.sequences]
    assert by_epoch == {"": 0, "e0": len(flat)}
    assert Roller(store).tick(everything=True) == (0, 0, 0)


def check_blocks(store, traffics):
    """Blocks as the evaluator reads them, against rounds and requests one by one."""
    times, parts, classes = {}, Counter(), Counter()
    for t in traffics:
        for (pair, arm), rounds in blocks(t).items():
            flat = [s for r in rounds for s in r.sequences]
            times[t.epoch, t.replica, pair, arm] = (
                len(rounds),
                len(flat),
                len({s.request for s in flat}),
            )
            for s in flat:
                parts[t.epoch, t.replica, pair, arm, s.class_, s.k] += 1
        for request in t.requests_ended:
            classes[t.epoch, t.replica, request["pair"], request["arm"], request["class"]] += 1
    key = itemgetter("epoch", "replica", "pair", "arm")
    rows = store.rows(queries.blocks())
    assert {
        key(row): (row["rounds"], row["request_rounds"], row["requests"]) for row in rows
    } == times
    assert len(rows) == len(times)
    counted = Counter()
    for row in store.rows(queries.block_parts()):
        counted[*key(row), row["class"], row["k"]] += row["request_rounds"]
    assert counted == parts
    rows = store.rows(queries.block_classes())
    assert Counter({(*key(row), row["class"]): row["requests"] for row in rows}) == classes
    pooled = store.rows(queries.pooled_blocks())
    assert sum(row["rounds"] for row in pooled) == sum(rounds for rounds, *_ in times.values())
    assert sum(row["merged"] for row in pooled) == len(times)


def test_a_cell_that_a_slower_service_brings_afterwards_is_emptied(store):
    put(store, Traffic())
    roll(store, everything=True)
    truth = rolled(store, "hour")
    older = "SELECT * REPLACE ('' AS epoch, version - 1 AS version) FROM hour FINAL"
    store.command(f"INSERT INTO hour {older}")
    assert len(rolled(store, "hour")) == 2 * len(truth)

    store.command(rollup_sql.HOUR_LEFT, {"from": 0, "to": 2 * time.time_ns()})

    assert [row for row in rolled(store, "hour") if row["request_rounds"]] == truth


def test_rolling_again_changes_nothing(store):
    put(store, Traffic())
    roll(store, everything=True)
    before = {grain: rolled(store, grain) for grain in GRAINS}

    roll(store, everything=True)

    assert {grain: rolled(store, grain) for grain in GRAINS} == before


def test_rows_that_were_stored_twice_count_once(store, tmp_path):
    traffic = Traffic()
    put(store, traffic)
    put(store, traffic)

    roll(store, everything=True)

    emitted = sum(s.emitted for r in traffic.rounds for s in r.sequences)
    for grain in set(GRAINS) - {"block_class"}:
        assert sum(row["emitted"] for row in rolled(store, grain)) == emitted
    requests = len(blocks(traffic)) * traffic.requests
    for grain in ("block_time", "block_class"):
        assert sum(row["requests"] for row in rolled(store, grain)) == requests


def test_a_minute_is_rolled_once_it_is_over_and_again_when_late_rows_come(store):
    start = time.time_ns() // MINUTE * MINUTE
    traffic = Traffic(seed=1, pairs=1, started_at=start, policy=None)
    late = Traffic(seed=2, pairs=1, started_at=start, policy=None, replica="late")
    put(store, traffic)
    roller = Roller(store)
    roller.recover()

    early = roller.tick(now=start + 59 * SECOND)
    closed = roller.tick(now=start + 75 * SECOND)
    put(store, late)
    roller.note(ledger_rows(late))
    again = roller.tick(now=start + 80 * SECOND)

    assert (early.minutes, closed.minutes, again.minutes) == (0, 1, 1)
    emitted = sum(s.emitted for t in (traffic, late) for r in t.rounds for s in r.sequences)
    assert sum(row["emitted"] for row in rolled(store, "minute")) == emitted


def test_a_block_is_closed_by_the_next_one_or_by_silence(store):
    traffic = Traffic(pairs=1)
    put(store, traffic)
    roller = Roller(store)
    roller.recover()
    steady = time.monotonic_ns()

    followed = roller.tick(steady=steady)
    silent = roller.tick(steady=steady + 61 * SECOND)

    assert (followed.blocks, silent.blocks) == (1, 1)
    assert len(rolled(store, "block_time")) == 2


def test_after_a_restart_rolling_goes_on_from_the_ledger(store):
    put(store, Traffic(seed=1))
    first = roll(store)
    put(store, Traffic(seed=2, boot="b1"))

    second = Roller(store)
    second.recover()
    done = second.tick(steady=time.monotonic_ns() + 61 * SECOND)

    assert first.blocks == 3  # the last one may still grow
    assert done.blocks >= 5
    assert {(row["boot"], row["pair"]) for row in rolled(store, "block_time")} == {
        (boot, pair) for boot in ("b0", "b1") for pair in (1, 2)
    }


def test_what_could_not_be_rolled_stays_to_be_rolled(store):
    put(store, Traffic())
    roller = Roller(store)
    roller.recover()
    store.command("RENAME TABLE minute TO elsewhere")

    with pytest.raises(StoreError):
        roller.tick(everything=True)
    store.command("RENAME TABLE elsewhere TO minute")
    done = roller.tick(everything=True)

    assert done.minutes > 0
    assert rolled(store, "minute")


def test_rounds_outside_an_experiment_make_no_block(store):
    put(store, Traffic(policy=None))

    done = roll(store, everything=True)

    assert done.blocks == 0
    assert done.minutes > 0
    assert rolled(store, "block_time") == []


def test_a_part_of_time_that_some_rounds_do_not_show_is_unknown_not_less(store):
    traffic = Traffic(pairs=1)
    put(store, traffic, only={"boot", "request", "request_part"})
    rows = [traffic.round_row(round_) for round_ in traffic.rounds]
    speculative = next(row for row in rows if row["k"])
    speculative["draft_us"] = None
    rows[0]["sample_us"] = None
    store.insert("round", table("round", rows))

    roll(store, everything=True)

    got = {row["arm"]: row for row in rolled(store, "block_time")}
    assert got["k4"]["draft_us"] is None
    assert got["k0"]["draft_us"] == 0.0  # nothing was drafted, and that is known
    assert got[rows[0]["arm"]]["sample_us"] is None
    assert got["k4"]["verify_us"] is not None


def blocks_of_5_s(burn_in_ms):
    """A policy that runs k0 in blocks."""
    return {
        "policy": 7, "created_at": 1, "kind": "blocks", "seed": 1, "arms": ["k0"],
        "block_ms": 5000, "burn_in_ms": burn_in_ms, "first_pair": 1, "table": "{}", "note": "",
    }  # fmt: skip


def test_a_block_s_burn_in_is_left_out(store):
    traffic = Traffic(pairs=1, arms=(("k0", 0),))
    put(store, traffic, only={"boot", "request"})
    batches = traffic.batches(records=8)
    parts = [part for tables in batches for part in tables["request_part"].to_pylist()]
    store.insert("request_part", table("request_part", parts))
    rows = [
        traffic.round_row(round_) | {"block_age_ms": 100 * i}
        for i, round_ in enumerate(traffic.rounds)
    ]
    store.insert("round", table("round", rows))
    store.insert("policy", table("policy", [blocks_of_5_s(burn_in_ms=500)]))

    roll(store, everything=True)

    (block,) = rolled(store, "block_time")
    assert block["rounds"] == len(rows) - 5
    assert ns(block["first_at"]) == traffic.rounds[5].started_at
    # Gaps between chunks too: a part counts if it began after the burn-in.
    gaps = Counter()
    for part in parts:
        if part["first_seq"] >= traffic.rounds[5].seq:
            gaps.update(dict(zip(part["gap_bins"], part["gap_counts"], strict=True)))
    assert dict(zip(block["gap_bins"], block["gap_counts"], strict=True)) == gaps
    assert 0 < gaps.total() < sum(sum(part["gap_counts"]) for part in parts)


def test_only_requests_admitted_well_within_a_block_are_timed(store):
    traffic = Traffic(pairs=1, arms=(("k0", 0),))
    put(store, traffic, only={"boot", "request_part"})
    settled = [traffic.round_row(one) | {"block_age_ms": 2000} for one in traffic.rounds]
    store.insert("round", table("round", settled))
    begins = traffic.started_at // (5 * 10**9) * 5 * 10**9  # blocks of 5 s since 1970
    ages_ms = [0, 400, 1000, 2500, 4000, 4001, 4999]
    like = {"policy": 7, "pair": traffic.rounds[0].pair, "arm": "k0", "class": "sql"}
    rows = [
        {
            **traffic.requests_ended[0], **like, "request": i, "seq": 10_000 + i,
            "admitted_at": begins + age * 10**6, "output_tokens": 11, "decode_ms": 100.0 * (i + 1),
        }
        for i, age in enumerate(ages_ms)
    ]  # fmt: skip
    store.insert("request", table("request", rows))
    store.insert("policy", table("policy", [blocks_of_5_s(burn_in_ms=1000)]))

    roll(store, everything=True)

    (block,), (part,) = rolled(store, "block_time"), rolled(store, "block_class")
    # Of the mix, all that were admitted after the burn-in, whenever they end.
    prompt, asked = rows[0]["prompt_tokens"], rows[0]["requested_output"]
    kind = f"sql {CONTEXT.name(prompt)} {OUTPUT.name(asked)}"
    assert (block["admitted_kinds"], block["admitted_counts"]) == ([kind], [5])
    assert block["tpot_bins"] == [ceil(log(10.0 * i) / log(1.01 / 0.99)) for i in (3, 4, 5)]
    assert (part["tpot_bins"], part["tpot_counts"]) == (block["tpot_bins"], [1, 1, 1])
    assert (block["requests"], block["ended_requests"], part["requests"]) == (7, 7, 7)


def test_a_request_whose_admission_is_lost_is_in_an_unknown_segment(store):
    put(store, Traffic(pairs=1), only={"boot", "round", "request_part"})

    roll(store, everything=True)

    assert {
        (row["context_bucket"], row["output_bucket"]) for row in rolled(store, "block_part")
    } == {("unknown", "unknown")}


def test_swapping_the_labels_of_two_classes_swaps_their_rows_and_nothing_else(store):
    put(store, Traffic(pairs=2))
    roll(store, everything=True)
    before = rolled(store, "minute")
    swap = {"prose": "code", "code": "prose"}
    for name in ("request_part",):
        rows = store.query(f"SELECT * FROM {name} FINAL").to_pylist()
        store.command(f"TRUNCATE TABLE {name}")
        store.insert(name, table(name, [row | {"class": swap[row["class"]]} for row in rows]))
    store.command("TRUNCATE TABLE minute")

    roll(store, everything=True)

    expected = [row | {"class": swap[row["class"]]} for row in before]
    order = [(row["minute"], row["class"], row["k"]) for row in expected]
    assert rolled(store, "minute") == [row for _, row in sorted(zip(order, expected, strict=True))]


def test_minutes_that_have_begun_to_age_out_keep_what_was_computed_from_all_of_them(store):
    traffic = Traffic(pairs=1)
    put(store, traffic)

    done = Roller(store)
    done.recover()
    rolled_ = done.tick(now=traffic.started_at + 4 * 86_400 * SECOND, everything=True)

    assert rolled_.minutes == 0
    assert rolled(store, "minute") == []
    assert rolled(store, "block_time") == []


def test_outputs_are_compared_between_copies_of_a_request(store):
    traffic = Traffic(pairs=4)
    ended = traffic.requests_ended
    of_arm = {arm: [r for r in ended if r["arm"] == arm] for arm in ("k0", "k4")}
    of_arm["k4"][0]["digest"] = 1
    of_arm["k4"][1]["reason"] = "abort"
    of_arm["k4"][2]["last_pair"] = 99
    of_arm["k4"][3]["content"] = None
    of_arm["k4"][4]["reason"] = "stop_or_abort"
    twins = [
        r | {"request": r["request"] + 500, "digest": 3 if n == 0 else r["digest"]}
        for n, r in enumerate(of_arm["k0"][:5])
    ]
    store.insert("boot", table("boot", [traffic.boot_row()]))
    store.insert("request", table("request", ended + twins))

    got = {(row["arm"], row["class"]): row for row in store.rows(queries.outputs())}

    sums = {
        arm: [sum(r[name] for (a, _), r in got.items() if a == arm)
              for name in ("compared", "differing")]
        for arm in ("k0", "k4")
    }  # fmt: skip
    assert sums == {"k0": [5, 1], "k4": [len(of_arm["k4"]) - 4, 1]}
    store.insert("request", table("request", ended))  # delivered again
    assert store.rows(queries.outputs()) == list(got.values())
    some = store.rows(queries.outputs(every=2))
    assert 0 < sum(row["compared"] for row in some) < sum(r["compared"] for r in got.values())
    assert sum(check.compared for check in read_outputs(store, most=1)) == 0
    assert sum(check.compared for check in read_outputs(store)) == sums["k4"][0]
    assert {row["epoch"] for row in got.values()} == {"e0"}


def test_outputs_of_a_crossover_are_compared_by_what_each_boot_ran(store):
    sides = {
        name: Traffic(seed=5, replica=f"r'{place}", boot=name, epoch=name)
        for place, name in enumerate(("without", "with", "other"))
    }
    rows = {name: side.requests_ended for name, side in sides.items()}
    assert len(rows["without"]) == len({row["request"] for row in rows["without"]})
    for place, same in enumerate(zip(*rows.values(), strict=True)):
        for row in same:  # one request, which three boots were asked; blocks do not matter
            row |= {"content": 1000 + place, "digest": 7, "arm": "current", "last_pair": 99}
    rows["with"][0]["digest"] = 1
    rows["with"][1]["reason"] = "abort"
    for name, side in sides.items():
        store.insert("boot", table("boot", [side.boot_row()]))
        store.insert("request", table("request", rows[name]))
    ran = {("r'0", "without"): "clean", ("r'1", "with"): "k4"}

    got = store.rows(queries.outputs(ran=ran, baseline="clean"))

    by_arm = {
        arm: [sum(row[name] for row in got if row["arm"] == arm)
              for name in ("compared", "differing")]
        for arm in ("clean", "k4")
    }  # fmt: skip
    assert {row["arm"] for row in got} == {"clean", "k4"}
    assert by_arm == {"clean": [0, 0], "k4": [len(rows["with"]) - 1, 1]}


def test_a_boot_is_open_until_its_end_or_its_cut_tail_is_said(store):
    boots = {name: Traffic(boot=name, pairs=1) for name in ("ended", "cut", "silent")}
    for traffic in boots.values():
        put(store, traffic)
    over = boots["ended"].boot_row() | {"ended_at": time.time_ns()}
    store.insert("boot", table("boot", [over]))
    tail = {
        "replica": "r0", "boot": "cut", "lost_at": 1, "table": "ring", "detail": "",
        "reason": "tail_unknown", "first_seq": None, "count": None,
    }  # fmt: skip
    store.insert("loss", table("loss", [tail]))

    rows = store.rows(queries.endings())

    assert {row["boot"]: row["ending"] for row in rows} == {
        "ended": "ended", "cut": "tail_unknown", "silent": "open"
    }  # fmt: skip
    assert all(0 <= row["silence"] < 600 for row in rows)
