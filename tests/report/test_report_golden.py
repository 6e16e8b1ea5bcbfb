"""Each figure of the report equals numpy on the raw rows that the store was filled with."""

import json
import math
import re
import time
from collections import defaultdict

import golden_models as models
import golden_numpy as golden
import numpy as np
import pyarrow as pa
import pytest
from golden_traffic import Engine, run_blocks, run_cohorts

from specscope.policy.row import policy_row
from specscope.report.collect import collect
from specscope.report.render import to_html, to_json
from specscope.store.connection import Store
from specscope.store.migrate import migrate
from specscope.store.roll import roll
from specscope_agent.loss import rows_table

PRICE = 3.6
BLOCK_MS, PAIRS = 1000, 24
REPLICATES = 10  # of each replica
HISTOGRAM = 0.0101  # what a bin may be off by
RAW = ("round", "request_part", "request", "policy", "boot", "batch", "loss")


def put(store, engines, began):
    now = time.time_ns()
    for engine in engines:
        rows = {**engine.rows, "boot": [engine.boot_row(began)], "batch": engine.batch_rows(now)}
        for table, values in rows.items():
            if values:
                # Some rows come twice, as after a lost acknowledgement.
                for again in (values, values[:50]):
                    store.insert(table, rows_table(table, again))
    roll(store, everything=True)


def exported(store):
    """Raw rows by table, each once, with times in ns."""
    tables = {}
    for name in RAW:
        table = store.query(f"SELECT * FROM {name} FINAL")
        for at, field in enumerate(table.schema):
            if pa.types.is_timestamp(field.type):
                table = table.set_column(at, field.name, table[field.name].cast(pa.int64()))
        tables[name] = table.to_pylist()
    return tables


def policy(number, kind, arms, began, **lengths):
    body = {"policy": number, "kind": kind, "seed": 1, "arms": [{"name": arm} for arm in arms]}
    return policy_row(body | lengths, "made", began)


def written(folder, engines, rows, began):
    """The report on made traffic, its raw rows, and its page."""
    with Store.open(f"chdb://{folder}/store") as store:
        migrate(store)
        store.insert("policy", rows)
        put(store, engines, began)
        report = collect(store, title="golden")
        return json.loads(to_json(report)), exported(store), to_html(report)


@pytest.fixture(scope="module")
def cohorts(tmp_path_factory):
    began = time.time_ns() - 3600 * 10**9
    engines = [Engine(name, "e1", 5, PRICE) for name in ("r0", "r1")]
    for engine in engines:
        run_cohorts(engine, REPLICATES, began)
    rows = policy(5, "cohort", ("k0", "k2", "k4"), began)
    return written(tmp_path_factory.mktemp("golden"), engines, rows, began)


@pytest.fixture(scope="module")
def blocks(tmp_path_factory):
    """Open traffic on an engine that keeps up with it, and on one that does not."""
    length = 2 * BLOCK_MS * 10**6
    first = (time.time_ns() - 3600 * 10**9) // length
    engines = [Engine("calm", "e2", 6), Engine("full", "e3", 6)]
    for engine, gap_ms, pair in zip(engines, (90.0, 40.0), (first + 1, first), strict=True):
        run_blocks(engine, PAIRS, pair * length, BLOCK_MS, gap_ms, seats=6)
    rows = policy(
        6, "blocks", ("k0", "k2"), first * length, block_ms=BLOCK_MS, burn_in_ms=BLOCK_MS // 4,
        first_pair=first, last_pair=first + PAIRS + 1,
    )  # fmt: skip
    return written(tmp_path_factory.mktemp("open"), engines, rows, first * length)


class DearVerification(Engine):
    """An engine whose verify passes and gaps cost more than its drafts are worth."""

    def _times(self, k, batch, slow):
        times = super()._times(k, batch, slow)
        more = {"verify_us": 4.0, "idle_us": 30.0, "sample_us": 3.0} if k else {}
        return {name: us * more.get(name, 1.0) for name, us in times.items()}


@pytest.fixture(scope="module")
def losing(tmp_path_factory):
    began = time.time_ns() - 3600 * 10**9
    engine = DearVerification("r0", "e4", 5)
    run_cohorts(engine, REPLICATES, began)
    rows = policy(5, "cohort", ("k0", "k2", "k4"), began)
    return written(tmp_path_factory.mktemp("losing"), [engine], rows, began)


def by_segment(pairs):
    """Pairs by class and size: each cohort is of one class, and its load its requests."""
    segments = defaultdict(list)
    for _, pair in sorted(pairs.items()):
        (size,) = {len(block.requests) for block in pair.values()}
        ((class_,),) = {block.classes for block in pair.values()}
        segments[class_, "2-4" if size < 5 else "5-16"].append(pair)
    return segments


def near(got, want, rel=1e-6):
    """Equal, or both unknown."""
    return got is None if want is None else got == pytest.approx(want, rel=rel)


def check_arm(arm, want):
    """What an arm did, but for its cost."""
    for name in ("batch", "tokens_per_round", "tokens_per_second", "queue", "acceptance",
                 "queue_delay_ms", "chunk_gap_p95_ms", "bandwidth", "dram_active"):  # fmt: skip
        assert near(arm[name], want[name]), name
    assert arm["ms_per_token"] == pytest.approx(want["ms_per_token"], rel=1e-5)
    if arm["arm"] != "k0":
        assert arm["survival"] == pytest.approx(want["survival"])
        assert arm["at_risk"] == pytest.approx(want["at_risk"])
        assert arm["survival_low"] == pytest.approx(want["survival_low"])
        assert arm["survival_high"] == pytest.approx(want["survival_high"])
    assert near(arm["token_time_p95_ms"]["value"], want["token_time_p95_ms"], HISTOGRAM)


def test_every_arm_of_every_segment(cohorts):
    report, raw, _ = cohorts
    segments = by_segment(golden.pairs_of(raw))

    assert {(row["label"], row["load"]) for row in report["segments"]} == segments.keys()
    for row in report["segments"]:
        pairs = segments[row["label"], row["load"]]
        assert {arm["arm"] for arm in row["arms"]} == {"k0", "k2", "k4"}
        base = golden.arm_figures([pair["k0"] for pair in pairs])
        for arm in row["arms"]:
            want = golden.arm_figures([pair[arm["arm"]] for pair in pairs])
            check_arm(arm, want)
            cost, baseline = (PRICE / 3600 / of["tokens_per_second"] * 1e6 for of in (want, base))
            assert near(arm["cost_per_million"], cost)
            assert near(arm["cost_difference"], None if arm["k"] == 0 else cost - baseline, 1e-5)


def test_every_speedup_and_its_interval(cohorts):
    report, raw, _ = cohorts
    segments = by_segment(golden.pairs_of(raw))
    contrasts = {
        (*key, arm): golden.log_speedup(pairs, arm)
        for key, pairs in segments.items()
        for arm in ("k2", "k4")
    }
    of_error = {share: 0.05 / share for share in range(1, len(contrasts) + 1)}

    shares = []
    for row in report["segments"]:
        for arm in row["arms"][1:]:
            contrast = contrasts[row["label"], row["load"], arm["arm"]]
            assert arm["pairs"] == contrast[2]
            assert near(arm["speedup"], math.exp(contrast[0]))
            got = arm["low"], arm["high"]
            shares += [
                share
                for share, error in of_error.items()
                if got == pytest.approx(golden.interval(contrast, error), rel=1e-5)
            ]
    # Claims hold together at 95 % (Holm): all are sure, so each has the share of those that are no
    # surer; claims that are equally sure have one share.
    assert len(shares) == len(contrasts)
    assert all(sum(one <= share for one in shares) == share for share in shares)


def test_both_sides_of_the_bargain(cohorts):
    report, raw, _ = cohorts
    segments = by_segment(golden.pairs_of(raw))
    names = {"token_time_p95_ms": "token_time_p95_ms", "device_ms_per_token": "busy_ms_per_token",
             "preemptions_per_request": "preempted_per_request"}  # fmt: skip

    seen = set()
    for row in report["segments"]:
        pairs = segments[row["label"], row["load"]]
        for one in row["tradeoffs"]:
            before, after = (
                golden.arm_figures([pair[arm] for pair in pairs])[names[one["metric"]]]
                for arm in (one["baseline"], one["arm"])
            )
            rel = HISTOGRAM if one["metric"] == "token_time_p95_ms" else 1e-6
            assert near(one["before"], before, rel)
            assert near(one["after"], after, rel)
            assert near(one["ratio"], after / before, 2 * rel)
            seen.add(one["metric"])
    assert seen == names.keys()


def test_one_switch_for_everyone_and_the_fleet(cohorts):
    report, raw, _ = cohorts
    segments = by_segment(golden.pairs_of(raw))

    for story in report["stories"]:
        chosen = {key[0]: pairs for key, pairs in segments.items() if key[1] == story["load"]}
        for switch in story["switches"]:
            arms = [f"k{switch['k']}"] * len(chosen)
            assert near(switch["value"], golden.one_switch(list(chosen.values()), arms))
        gate = [f"k{story['table'][name]}" for name in chosen]
        assert near(story["gate"]["value"], golden.one_switch(list(chosen.values()), gate))
        best = max(story["switches"], key=lambda one: one["value"])
        assert story["best_k"] == best["k"]
        assert near(story["gain"]["value"], story["gate"]["value"] / best["value"])
    assert {story["load"] for story in report["stories"]} == {"2-4", "5-16"}

    for arm in report["fleet"]:
        pooled, mixed = golden.over_the_fleet(list(segments.values()), arm["arm"])
        assert near(arm["pooled"], pooled)
        assert near(arm["standardised"], mixed)


def test_outputs_that_differ(cohorts):
    report, raw, _ = cohorts

    assert {row["arm"] for row in report["outputs"]} == {"k2", "k4"}
    for row in report["outputs"]:
        want = golden.outputs(raw["request"], row["arm"])
        for name in ("compared", "differing", "twins", "twins_differing"):
            assert row[name] == want[f"{row['label']} {name}"], name
    assert report["outputs_compared"] == sum(row["compared"] for row in report["outputs"])
    assert report["outputs_differing"] == sum(row["differing"] for row in report["outputs"]) > 0


def test_the_records_add_up(cohorts):
    report, raw, _ = cohorts
    lost = sum(row["count"] for row in raw["loss"])
    requests = sum(1 + (row["ended_at"] is not None) for row in raw["request"])

    assert report["accounting"] == {
        "recorded": len(raw["round"]) + requests + lost,
        "stored": len(raw["round"]) + requests,
        "lost": lost,
    }
    assert lost > 0
    for segment in report["segments"]:  # each ran on both replicas
        share = lost / (len(raw["round"]) + requests + lost)
        assert near(segment["quality"]["lost_share"], share)
    assert sum(row["count"] for row in report["losses"]) == lost


def test_what_a_change_is_worth(cohorts):
    report, raw, _ = cohorts
    segments = by_segment(golden.pairs_of(raw))
    emitted = {key: sum(b.total("emitted") for p in pairs for b in p.values())
               for key, pairs in segments.items()}  # fmt: skip

    assert report["changes"]
    for change in report["changes"]:
        (row,) = [one for one in report["segments"] if one["name"] == change["segment"]]
        key = row["label"], row["load"]
        arm = next(one for one in row["arms"] if one["k"] == change["new_k"])
        old, new = (
            golden.arm_figures([pair[f"k{k}"] for pair in segments[key]])
            for k in (change["old_k"], change["new_k"])
        )
        worth = change["worth"]
        assert near(worth["speedup"]["value"], arm["speedup"])
        assert near(
            worth["tokens_per_second"]["value"],
            old["tokens_per_second"] * (arm["speedup"] - 1),
        )
        for got, want in zip(worth["token_time_p95_ms"], (old, new), strict=True):
            assert near(got, want["token_time_p95_ms"], HISTOGRAM)
        hours = emitted[key] * 168 / golden.hours(raw["round"])
        hours *= (1 - 1 / arm["speedup"]) / old["tokens_per_second"] / 3600
        assert near(worth["replica_hours"]["value"], hours, 0.02)  # parts leave out lost rounds
        assert near(worth["gpu_hours"]["value"], 2 * worth["replica_hours"]["value"])
        assert near(worth["money"]["value"], PRICE * worth["replica_hours"]["value"])


def test_blocks_of_open_traffic(blocks):
    report, raw, _ = blocks
    pairs = golden.pairs_of(raw)

    assert [row["epoch"] for row in report["segments"]] == ["e2", "e3"]
    for row, replica in zip(report["segments"], ("calm", "full"), strict=True):
        chosen = [pair for key, pair in pairs.items() if key[0] == replica]
        both = [pair for pair in chosen if {"k0", "k2"} <= pair.keys()]
        for arm in row["arms"]:
            check_arm(arm, golden.arm_figures([pair[arm["arm"]] for pair in chosen]))
        weight = golden.saturation(block for pair in chosen for block in pair.values())
        timed = [pair for pair in both if all(pair[arm].timed for arm in ("k0", "k2"))]
        counted = timed if weight < 1 else both
        assert row["pairs"] == len(counted)
        assert bool(weight) == (replica == "full")
        tokens, _, _ = golden.log_speedup(counted, "k2")
        times, _, _ = golden.log_speedup(
            timed, "k2", lambda b: len(b.timed), lambda b: float(np.sum(b.token_times_ms))
        )
        fast = row["arms"][1]
        plain = fast["speedup"] if fast["unadjusted"] is None else fast["unadjusted"]
        assert near(plain, math.exp(weight * tokens + (1 - weight) * times), 2 * HISTOGRAM)
        assert bool(fast["held_equal"]) == (fast["unadjusted"] is not None)


def test_an_engine_that_keeps_up_gains_time_per_token_and_no_tokens(blocks):
    report, raw, _ = blocks
    pairs = [pair for key, pair in golden.pairs_of(raw).items() if key[0] == "calm"]

    (change,) = report["changes"]
    worth = change["worth"]
    old, new = (golden.arm_figures([pair[f"k{k}"] for pair in pairs]) for k in (0, 2))
    assert (change["old_k"], change["new_k"]) == (0, 2)
    assert near(worth["speedup"]["value"], report["segments"][0]["arms"][1]["speedup"])
    assert (worth["tokens_per_second"], worth["money"]) == (None, None)
    less_busy = old["busy_ms_per_token"] / new["busy_ms_per_token"]
    tokens = sum(row["emitted"] for row in raw["round"]) * 168 / golden.hours(raw["round"])
    hours = tokens / old["tokens_per_second"] / 3600 * (1 - 1 / less_busy)
    assert near(worth["replica_hours"]["value"], hours, 0.02)  # parts leave out lost rounds


def test_the_page_prints_these_figures(cohorts):
    report, raw, page = cohorts
    segments = by_segment(golden.pairs_of(raw))
    names = {row["name"]: (row["label"], row["load"]) for row in report["segments"]}
    (table,) = re.findall(r"Every arm in numbers.*?</table>", page, re.S)
    printed = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in table.split("<tr>")[2:]]

    assert len(printed) == 3 * len(segments)
    for name, arm, pairs, tokens, needed, speed, speedup, _, gap, _ in printed:
        chosen = segments[names[name]]
        want = golden.arm_figures([pair[arm] for pair in chosen])
        assert int(pairs) == len(chosen)
        assert float(tokens) == pytest.approx(want["tokens_per_round"], abs=0.005)
        assert float(speed) == pytest.approx(want["tokens_per_second"], abs=0.5)
        assert float(gap.removesuffix(" ms")) == pytest.approx(want["chunk_gap_p95_ms"], abs=0.05)
        if arm != "k0":
            ratio = math.exp(golden.log_speedup(chosen, arm)[0])
            assert float(speedup) == pytest.approx(ratio, abs=0.005)
            assert float(needed) == pytest.approx(golden.break_even(want, ratio), abs=0.006)


def test_how_fast_an_arm_would_run_without_each_cause(losing):
    report, raw, _ = losing
    segments = by_segment(golden.pairs_of(raw))
    parts = {"verify_cost": "verify", "idle": "idle", "sampling": "sample"}

    seen = set()
    for row in report["segments"]:
        pairs = segments[row["label"], row["load"]]
        for loss in row["causes"]:
            assert near(loss["speedup"], math.exp(golden.log_speedup(pairs, loss["arm"])[0]))
            for cause in loss["causes"]:
                if cause["cause"] in parts:
                    part = parts[cause["cause"]]
                    assert near(cause["speedup"], models.without(pairs, loss["arm"], part))
                    seen.add(cause["cause"])
    assert seen == parts.keys()


def test_what_an_untried_length_could_reach(cohorts):
    report, raw, _ = cohorts
    segments = by_segment(golden.pairs_of(raw))
    fit = models.verify_fit(b for pairs in segments.values() for p in pairs for b in p.values())

    assert {row["k"] for row in report["untried"]} == {1, 3, 5, 6}
    for row in report["untried"]:
        class_, load = row["segment"].split()[0], row["segment"].split()[-1]
        pairs = segments[class_, load]
        tokens = models.most_tokens([[p[arm] for p in pairs] for arm in ("k2", "k4")], row["k"])
        assert near(row["at_best"], models.at_best(pairs, fit, tokens, row["k"]), 1e-5)


def test_an_interval_of_live_traffic_holds_at_any_time(blocks):
    """It is the published sequence, made wider by what neighbouring pairs share."""
    report, raw, _ = blocks
    (row,) = [one for one in report["segments"] if one["epoch"] == "e3"]  # saturated: uncorrected
    pairs = [pair for key, pair in golden.pairs_of(raw).items() if key[0] == "full"]
    fast = row["arms"][1]
    delta, error, count = golden.log_speedup(
        [pair for pair in pairs if {"k0", "k2"} <= pair.keys()], "k2"
    )

    # By tokens per second alone, and uncorrected: the engine is saturated.
    assert golden.saturation(block for pair in pairs for block in pair.values()) == 1.0
    low, high = math.log(fast["low"]), math.log(fast["high"])
    assert (low + high) / 2 == pytest.approx(delta, abs=1e-9)
    least = min(
        golden.sequence(error * math.sqrt(count), count, 0.045 / claims) for claims in (1, 2)
    )
    assert 1.0 - 1e-4 <= (high - low) / 2 / least < 3.0
