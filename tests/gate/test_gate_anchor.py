"""Evidence of open traffic is one growing set: it begins with the epoch, not with the period."""

import dataclasses
import json
import time

import pytest
from evaluate.block_rows import Kind, rows
from gate.test_gate_commands import put_rows, run

from specscope.assess import assess_in_force
from specscope.evidence.read import read, read_blocks
from specscope.gate.swap import Swap, crossover_policy
from specscope.policy.arms import PolicyArm
from specscope.policy.stored import HoldOut, next_table, read_policies, write_policy
from specscope.policy.table import Cell, GateTable
from specscope.queries.period import evidence_condition
from specscope.report.collect import collect
from specscope.store.connection import Store
from specscope.store.migrate import migrate

WIN = Kind({0: 1.0, 4: 2.5}, {0: 1.0, 4: 1.6})
DAY = 24 * 3600 * 10**9


@pytest.fixture
def store(tmp_path):
    with Store.open(f"chdb://{tmp_path}/store") as opened:
        migrate(opened)
        yield opened


def start(store, cell_k, arms, tables=()):
    """A policy that puts a table in force, and goes on comparing."""
    table = GateTable((Cell(cell_k, "sql"),), 0)
    hold_out = HoldOut(0.1, 60.0, 15.0, arms, None, tables)
    body = next_table(read_policies(store), table, now=time.time_ns(), hold_out=hold_out)
    return write_policy(store, body, "test", time.time_ns())


def run_pairs(store, policy, *, days_ago, first, pairs=12, epoch="e1", renamed=None, replica="r0"):
    times, parts = rows({"sql": WIN}, pairs=pairs, seed=first)
    moved = {"policy": policy, "epoch": epoch, "replica": replica}
    names = renamed or {}

    def changed(row):
        arm = names.get(row.arm, row.arm)
        # Rounds fill the block: its requests are not timed, so throughput alone can decide.
        filled = {"last_at": row.first_at + round(1e3 * row.wall_us)} if row in times else {}
        return dataclasses.replace(row, **moved, **filled, arm=arm, pair=row.pair + first)

    put_rows(store, map(changed, times), map(changed, parts), time.time_ns() - days_ago * DAY)


def reading(store, days=7):
    return read(store, since=time.time_ns() - days * DAY)


def arms(found):
    return {arm: sum(b.arm == arm for b in found) for arm in sorted({b.arm for b in found})}


def test_blocks_of_open_traffic_count_from_the_beginning_of_their_epoch(store):
    policy = start(store, 4, ("k0", "k4"))
    run_pairs(store, policy, days_ago=40, first=0)
    run_pairs(store, policy, days_ago=2, first=100)
    run_pairs(store, policy, days_ago=30, first=200, epoch="e0")

    found = reading(store)

    assert found.epochs == ("e1",)  # e0 ended before the period
    assert arms(found.blocks) == {"k0": 24, "k4": 24}
    assert len(found.begun_since(time.time_ns() - 7 * DAY)) == 24
    (note,) = assess_in_force(found).notes
    assert "all blocks of their epoch, since 20" in note
    assert assess_in_force(reading(store, days=60)).notes == ()


def test_a_cohort_is_looked_at_once_and_counts_within_the_period(store):
    run_pairs(store, 7, days_ago=40, first=0)
    run_pairs(store, 7, days_ago=2, first=100)

    found = reading(store)

    assert arms(found.blocks) == {"k0": 12, "k4": 12}
    assert assess_in_force(found).notes == ()


def test_a_report_of_a_week_says_since_when_its_verdicts_have_grown(store):
    policy = start(store, 4, ("k0", "k4"))
    run_pairs(store, policy, days_ago=40, first=0)
    run_pairs(store, policy, days_ago=2, first=100)

    report = collect(store, title="a week", since=time.time_ns() - 7 * DAY)

    (segment,) = report.segments
    assert {arm.pairs for arm in segment.arms} == {24}
    assert any("all blocks of their epoch" in note for note in report.notes)


def test_the_table_in_force_is_not_mixed_with_the_one_before(store):
    held = {"k4": "current"}
    before, after = (start(store, k, ("k0", "current")) for k in (8, 4))
    again = start(store, 4, ("k0", "current"))
    run_pairs(store, before, days_ago=5, first=0, renamed=held)
    run_pairs(store, after, days_ago=3, first=100, renamed=held)
    run_pairs(store, again, days_ago=1, first=200, renamed=held)

    assert arms(reading(store).blocks) == {"current": 24, "k0": 36}


def test_both_deploys_of_a_crossover_count_though_their_epochs_differ(store):
    swap = Swap(("r0",), ("r1",), 60)
    body = crossover_policy(read_policies(store), swap, now=time.time_ns(), default_k=4)
    policy = write_policy(store, body, "test", time.time_ns())
    run_pairs(store, policy, days_ago=20, first=0, epoch="before")
    run_pairs(store, policy, days_ago=2, first=100, epoch="after")

    blocks, _ = read_blocks(store, evidence_condition(time.time_ns() - 7 * DAY))

    assert {block.epoch for block in blocks} == {"before", "after"}


def test_a_plan_counts_the_replicas_of_the_period(store, capsys):
    policy = start(store, 4, ("k0", "k4"))
    run_pairs(store, policy, days_ago=40, first=0, pairs=6)
    for i in range(9):
        run_pairs(store, policy, days_ago=30, first=50, pairs=1, replica=f"gone{i}")
    run_pairs(store, policy, days_ago=2, first=100, pairs=2)
    dsn = store.dsn
    store.close()

    _, one, _ = run(capsys, "plan", "--store", dsn, "--json", "--share", "1")
    _, ten, _ = run(capsys, "plan", "--store", dsn, "--json", "--share", "1", "--replicas", "10")

    (step,), (faster,) = (json.loads(text)["steps"] for text in (one, ten))
    assert (step["pairs"], step["needed"]) == (17, 3)
    assert step["hours"] == pytest.approx(10 * faster["hours"])


@pytest.mark.parametrize(("second", "counted"), [(4, 24), (2, 12)])
def test_an_arm_of_a_file_counts_as_far_back_as_its_name_meant_the_same_table(
    store, second, counted
):
    for number, k in enumerate((4, second)):
        mine = PolicyArm("mine", table=GateTable((Cell(k, "json"),), 0))
        policy = start(store, 4, ("k0", "mine"), (mine,))
        run_pairs(store, policy, days_ago=2, first=100 * number, renamed={"k4": "mine"})

    found = reading(store)

    assert arms(found.blocks) == {"k0": 24, "mine": counted}
    (judged,) = assess_in_force(found).experiments
    assert judged.tables == {("e1", "mine"): GateTable((Cell(second, "json"),), 0)}


def test_an_arm_that_changes_a_class_goes_with_the_table_that_it_changed(store):
    changed = PolicyArm("current+json:2", cells=(Cell(2, "json"),))
    arms_, names = ("k0", changed.name), {"k4": changed.name}
    run_pairs(store, start(store, 4, arms_, (changed,)), days_ago=9, first=0, renamed=names)
    run_pairs(store, start(store, 2, ("k0", "current")), days_ago=2, first=100,
              renamed={"k4": "current"})  # fmt: skip

    assert arms(reading(store).blocks) == {"current": 12, "k0": 24}
