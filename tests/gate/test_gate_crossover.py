"""A crossover by router: its plan, its policy, and what the store says of it afterwards."""

import dataclasses
import json
import math
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from evaluate.reasons import rows
from gate.test_gate_commands import put_rows, run

from specscope.cli import main
from specscope.errors import UsageError
from specscope.evaluate.experiment.blocks import BlockTime
from specscope.evaluate.experiment.crossover import SIDES, swapping
from specscope.evaluate.verdict.crossover import judge_crossovers
from specscope.evidence.crossovers import crossings
from specscope.gate import calibration
from specscope.gate.swap import (
    Swap,
    crossover_policy,
    haproxy,
    nginx,
    schedule,
    sides_map,
    swap_map,
)
from specscope.policy.stored import next_table, read_policies, write_policy
from specscope.policy.table import GateTable
from specscope.store.connection import Store
from specscope.store.migrate import migrate
from specscope_agent.schemas import schema
from specscope_hook.gate import Gate

NOW = 1_800_000_000 * 10**9
SWAP = Swap(("r0",), ("r1",), 120)
SPEED = {"clean": 1.0, "k0": 0.9, "k4": 1.3}
HARDWARE = 1.1  # the left side is faster by itself
BOOT = {
    "started_at": NOW, "host": "h", "engine": "vllm", "engine_version": "0.32", "target": "llama",
    "hook_version": "1", "role": "both", "gpu_uuids": [], "tensor_parallel": 1,
    "pipeline_parallel": 1, "data_parallel": 1, "expert_parallel": 1, "rank": 0,
}  # fmt: skip


def boot_of(side, arm):
    method = "none" if arm == "clean" else "draft_model"
    return BOOT | {
        "replica": f"r{side}", "boot": f"b{side}{arm}", "epoch": f"e-{method}", "method": method,
        "draft": None if arm == "clean" else "tiny", "k_max": 0 if arm == "clean" else 4,
    }  # fmt: skip


def blocks(deploys, pairs, noise=0.01, seed=0):
    random = np.random.default_rng(seed)
    made, number = [], 0
    for arms in deploys:
        for _ in range(pairs):
            for _half in (0, 1):
                slow = math.exp(random.normal(0, 0.2))
                for side, arm in enumerate(arms):
                    speed = SPEED[arm] * (HARDWARE if side == 0 else 1.0) / slow
                    speed *= math.exp(random.normal(0, noise))
                    made.append(_block(side, arm, number, speed))
                number += 1
    return made


def _block(side, arm, number, speed):
    boot = boot_of(side, arm)
    k = 4 if arm == "k4" else 0
    rows = int(1e6 * speed / (1 + 0.4 * k))
    return BlockTime(
        epoch=boot["epoch"], policy=1, replica=boot["replica"], boot=boot["boot"], pair=number,
        arm="current", requests=100, rounds=rows // 8, request_rounds=rows, classes=("sql",), k=k,
        wall_us=100e6, emitted=int(1e6 * speed), proposed=k * rows,
        accepted=int(1e6 * speed) - rows, first_at=number * 120 * 10**9,
        last_at=number * 120 * 10**9 + 100 * 10**9,
    )  # fmt: skip


def stored(tmp_path, deploys, pairs=24, **kwargs):
    """A store after a crossover of some deploys."""
    where = f"chdb://{tmp_path}/store"
    import time

    with Store.open(where) as store:
        made = blocks(deploys, pairs, **kwargs)
        put_rows(store, made, [], time.time_ns() - 5 * 24 * 3600 * 10**9)
        boots = {
            (side, arm): boot_of(side, arm) for arms in deploys for side, arm in enumerate(arms)
        }
        store.insert("boot", pa.Table.from_pylist(list(boots.values()), schema("boot")))
        body = crossover_policy([], SWAP, now=NOW, default_k=0)
        write_policy(store, body, "crossover", NOW)
    return where


SWAPPED = [("clean", "k4"), ("k4", "clean")]


def test_recommend_says_what_to_start_engines_with(tmp_path, capsys):
    where = stored(tmp_path, SWAPPED)

    _, text, _ = run(capsys, "recommend", "--store", where)
    _, out, _ = run(capsys, "recommend", "--store", where, "--json")

    (found,) = json.loads(out)["crossovers"]
    assert (found["action"], found["k"], found["grade"]) == ("keep", 4, "measured")
    assert found["confidence"] == "high"
    (contrast,) = found["contrasts"]
    assert (contrast["arm"], contrast["baseline"]) == ("k4", "clean")
    assert contrast["low"] < 1.3 < contrast["high"]
    assert "crossover of sql at load 2-4: start with k = 4 (48 pairs, measured)" in text
    assert "the sides' hardware alone: left runs at 1.1" in text
    assert json.loads(out)["moves"] == []


def test_three_contrasts_and_the_tax_of_a_speculative_engine(tmp_path, capsys):
    where = stored(tmp_path, [("clean", "k4"), ("k4", "k0"), ("k0", "clean")])

    _, out, _ = run(capsys, "recommend", "--store", where, "--json")

    (found,) = json.loads(out)["crossovers"]
    told = {(c["arm"], c["baseline"]): c["ratio"] for c in found["contrasts"]}
    assert told == {
        ("k4", "k0"): pytest.approx(1.3 / 0.9, rel=0.02),
        ("k0", "clean"): pytest.approx(0.9, rel=0.02),
        ("k4", "clean"): pytest.approx(1.3, rel=0.02),
    }
    (tax,) = rows(found, "idle_speculation")
    assert tax["numbers"]["loss"] == pytest.approx(0.1, abs=0.02)


def test_without_a_swap_of_the_configurations_nothing_is_measured(tmp_path, capsys):
    where = stored(tmp_path, [("k4", "clean")])

    _, out, _ = run(capsys, "recommend", "--store", where, "--json")

    (found,) = json.loads(out)["crossovers"]
    assert (found["action"], found["grade"], found["confidence"]) == (
        "not_comparable", "none", "none",
    )  # fmt: skip
    assert len(rows(found, "swap_next")) == 1
    assert [one["arm"] for one in rows(found, "hardware_included")] == ["k4"]

    main(["report", "--store", where, "--out", str(tmp_path / "report"), "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["global_action"] == "inconclusive"  # half a crossover keeps or removes nothing
    assert "configurations of the sides swapped" in report["still_needed"][0]


def test_one_side_s_rows_taken_away_leave_nothing(tmp_path, capsys):
    where = stored(tmp_path, SWAPPED)
    with Store.open(where) as store:
        store.command("DELETE FROM block_time WHERE boot IN ('b0clean', 'b1clean')")

    _, out, _ = run(capsys, "recommend", "--store", where, "--json")

    (found,) = json.loads(out)["crossovers"]
    assert (found["action"], found["grade"]) == ("collect_baseline", "none")


def test_the_report_has_it_beside_the_other_verdicts(tmp_path, capsys):
    where = stored(tmp_path, SWAPPED)

    main(["report", "--store", where, "--out", str(tmp_path / "report"), "--json"])
    report = json.loads(capsys.readouterr().out)

    (segment,) = report["segments"]
    assert (segment["action"], segment["k"], segment["grade"]) == ("keep", 4, "measured")
    arms = {arm["arm"]: arm for arm in segment["arms"]}
    assert arms["k4"]["speedup"] == pytest.approx(1.3, rel=0.02)
    assert arms["clean"]["speedup"] is None


def test_few_pairs_are_undecided_and_say_how_many_are_lacking(tmp_path, capsys):
    where = stored(tmp_path, SWAPPED, pairs=4)

    _, out, _ = run(capsys, "recommend", "--store", where, "--json")

    (found,) = json.loads(out)["crossovers"]
    assert found["action"] == "inconclusive"
    (pairs,) = [one for one in rows(found, "thin") if one["numbers"]["unit"] == "pairs"][:1]
    assert (pairs["arm"], pairs["numbers"]["have"]) == ("clean and k4", 4)


def test_all_intervals_of_one_crossover_hold_together_however_many_there_are():
    deploys = [("clean", "k4"), ("k4", "clean"), ("k0", "clean"), ("clean", "k0")]
    policies = {1: crossover_policy([], SWAP, now=NOW, default_k=0)}
    boots = [boot_of(side, arm) for side in (0, 1) for arm in SPEED]

    (two,) = judge_crossovers(crossings(blocks(deploys[:2], 24), policies, boots))
    (three,) = judge_crossovers(crossings(blocks(deploys, 24), policies, boots))

    assert all(one.level == pytest.approx(1 - 0.05) for one in two.joint.estimates)
    assert len(three.joint.estimates) == 3
    assert all(one.level == pytest.approx(1 - 0.05 / 3) for one in three.joint.estimates)


def test_a_stray_pair_at_a_deploy_s_edge_takes_no_confidence_away():
    stray = [dataclasses.replace(b, pair=b.pair + 1000) for b in blocks([("k0", "clean")], 1)]
    policies = {1: crossover_policy([], SWAP, now=NOW, default_k=0)}
    boots = [boot_of(side, arm) for side in (0, 1) for arm in SPEED]

    (found,) = judge_crossovers(crossings([*blocks(SWAPPED, 24), *stray], policies, boots))

    assert (found.verdict.action, found.verdict.confidence) == ("keep", "high")


# --- the plan ----------------------------------------------------------------------------


def test_each_stream_meets_both_sides_in_each_pair_and_a_coin_says_where_it_begins():
    slots = schedule(SWAP, SWAP.first_block(NOW), 200.0)

    assert len(slots) == 6000
    pairs = list(zip(slots[::2], slots[1::2], strict=True))
    assert all(one.streams == other.streams[::-1] for one, other in pairs)
    assert {one.streams for one, _ in pairs} == {("left", "right"), ("right", "left")}
    assert all(one.block % 2 == 0 for one, _ in pairs)
    left_first = sum(one.streams[0] == "left" for one, _ in pairs)
    assert abs(left_first - 1500) < 3 * math.sqrt(3000 / 4)


def test_of_three_sides_each_pair_swaps_two_by_turns():
    swap = Swap(("r0",), ("r1",), 120, third=("r2",))
    slots = schedule(swap, swap.first_block(NOW), 100.0)

    pairs = list(zip(slots[::2], slots[1::2], strict=True))
    met = Counter()
    for one, other in pairs:
        moved = {n for n in range(3) if one.streams[n] != other.streams[n]}
        assert sorted(one.streams) == sorted(other.streams) == ["left", "right", "third"]
        assert {SIDES[n] for n in moved} == set(swapping(one.block // 2, 3))
        met[tuple(sorted(moved))] += 1
    assert set(met.values()) == {500}
    assert (SWAP.least_pairs, swap.least_pairs) == (20, 60)
    assert crossover_policy([], swap, now=NOW, default_k=3)["crossover"]["third"] == ["r2"]
    text = haproxy(swap, {})
    assert "use_backend specscope_right if { var(txn.side) -m int 1 }" in text
    assert "default_backend specscope_third" in text
    assert len(sides_map(swap).splitlines()) == 12
    assert "22 specscope_left;" in nginx(swap, {})
    assert "20 specscope_third;" in nginx(swap, {})


def test_the_hook_numbers_the_blocks_as_the_router_does():
    body = crossover_policy([], SWAP, now=NOW, default_k=3)
    gate = Gate.from_policy(json.dumps(body))

    assert (gate.kind, gate.block_ms, gate.share) == ("blocks", 120_000, 1.0)
    assert gate.order("r0", "b", gate.first_pair) == ["current"]
    assert gate.first_pair == SWAP.first_block(NOW)
    assert gate.first_pair * 120 * 10**9 >= NOW + 2 * 120 * 10**9
    assert gate.k("sql", 1, 1, 1, 1) == 3  # the engine's own length goes on


def test_a_router_gets_the_side_of_each_block():
    slots = schedule(SWAP, 100, 1.0)

    lines = [line.split() for line in swap_map(slots).splitlines()]
    text = haproxy(SWAP, {"r0": "10.0.0.1:8000"})

    assert [int(block) for block, _ in lines] == list(range(100, 130))
    assert all(int(side) == SWAP.side_of(int(block), 0) for block, side in lines)
    assert sides_map(SWAP) == "0 0\n1 1\n2 1\n3 0\n"
    assert "date,div(120),map_int_int(/etc/haproxy/specscope-swap.map,0)" in text
    assert "server r0 10.0.0.1:8000" in text
    assert "upstream specscope_left { random; server r0:8000; }" in nginx(SWAP, {})


def test_plan_prints_the_schedule_and_writes_the_router_s_files(dsn_free, capsys, tmp_path):
    folder = tmp_path / "router"

    code, out, _ = run(
        capsys, "plan", "--store", dsn_free, "--crossover", "r0", "r1,r2", "--hours", "1",
        "--block-s", "60", "--out", str(folder),
    )  # fmt: skip
    _, plain, _ = run(
        capsys,
        "plan",
        "--store",
        dsn_free,
        "--crossover",
        "r0",
        "r1",
        "--router",
        "nginx",
        "--json",
    )

    assert code == 0
    assert "30 pairs in 1 hours" in out
    assert len((folder / "specscope-swap.map").read_text().splitlines()) == 60
    assert "server r2 r2:8000" in (folder / "specscope-crossover.cfg").read_text()
    assert len(json.loads(plain)["slots"]) == 360
    assert "split_clients" in json.loads(plain)["router"]


@pytest.fixture
def dsn_free(tmp_path):
    where = f"chdb://{tmp_path}/store"
    with Store.open(where) as store:
        migrate(store)
    return where


@pytest.mark.parametrize("sides", [((), ("r1",)), (("r0",), ("r0", "r1"))])
def test_sides_that_are_none_are_refused(sides):
    with pytest.raises(UsageError, match="replicas on each side"):
        Swap(*sides, 120)


def test_a_calibration_by_router_ends_with_the_table_before_it(tmp_path):
    window = calibration.Window((), minutes=60, block_s=120, swap=SWAP)
    with Store.open(f"chdb://{tmp_path}/store") as store:
        migrate(store)
        write_policy(store, next_table([], GateTable((), 4), now=NOW), "", NOW)

        calibration.start(store, window, now=NOW)
        policies = read_policies(store)

    begins, ends = policies[1].span
    assert window.pairs == 15
    assert [p.kind for p in policies] == ["table", "blocks"]
    assert policies[1].body["crossover"] == {
        "left": ["r0"],
        "right": ["r1"],
        "seed": 1,
        "differs": [],
    }
    assert ends - begins == 15 * 2 * 120 * 10**9
    assert policies[1].table == policies[1].table_at(ends) == GateTable((), 4)


def test_calibrate_takes_draft_lengths_or_sides_and_not_both(dsn_free, capsys):
    words = ["calibrate", "--store", dsn_free, "--minutes", "30"]

    neither, _, said = run(capsys, *words)
    both, _, _ = run(capsys, *words, "--k", "0,4", "--crossover", "r0", "r1")
    code, out, _ = run(capsys, *words, "--crossover", "r0", "r1")

    assert (neither, both, code) == (2, 2, 0)
    assert "--k" in said
    assert "the router swaps 2 streams between r0 and r1" in out
    assert "nothing is started" in out


def test_blocks_of_a_crossover_are_no_other_experiment(tmp_path, capsys):
    where = stored(tmp_path, SWAPPED)

    _, out, _ = run(capsys, "plan", "--store", where)

    assert out == "crossover of sql at load 2-4: keep, 48 pairs: enough\n"


def test_a_plan_says_how_long_a_crossover_will_take(tmp_path, capsys):
    where = stored(tmp_path, SWAPPED, pairs=4)

    _, out, _ = run(capsys, "plan", "--store", where, "--block-s", "120")

    # 20 of each deploy, of which there are 8, at two blocks a pair.
    assert "inconclusive, 8 pairs, 32 more: about 2.1 hours at 100.0% of the pairs" in out
