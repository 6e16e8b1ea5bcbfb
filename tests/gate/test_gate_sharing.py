"""A class that waits too long in a shared batch is routed: in words, JSON and router rules."""

import dataclasses
import json
import time

import pytest
from evaluate.block_rows import Kind, rows
from gate.test_gate_commands import typed

from specscope.cli import main
from specscope.evaluate.statistics.quantiles import bin_of
from specscope.evidence.read import read
from specscope.policy.stored import HoldOut, next_table, read_policies, write_policy
from specscope.policy.table import Cell, GateTable
from specscope.store.connection import Store
from specscope.store.migrate import migrate

MIXED = Kind({0: 1.0, 4: 2.5}, {0: 1.0, 4: 1.6})
WAITS = {("chat", "current"): 30.0, ("chat", "k0"): 12.0, ("sql", "current"): 8.0,
         ("sql", "k0"): 12.0}  # fmt: skip


def apply(store, table, now):
    body = next_table(read_policies(store), table, now=now, hold_out=HoldOut(0.1, 60.0, 15.0))
    return write_policy(store, body, "test", now)


@pytest.fixture
def dsn(tmp_path):
    """A table in force, and 24 pairs of it and k0 in which two classes shared the batch."""
    where, began = f"chdb://{tmp_path}/store", time.time_ns() - 3600 * 10**9
    with Store.open(where) as store:
        migrate(store)
        policy = apply(store, GateTable((Cell(4, "sql"),), 0), began)
        times = [
            dataclasses.replace(
                block,
                policy=policy,
                arm="current" if block.k else "k0",
                classes=("chat", "sql"),
                first_at=began + block.first_at,
                last_at=began + block.last_at,
            )
            for block in rows({"mixed": MIXED}, pairs=24)[0]
        ]
        classes = [
            {
                **{n: getattr(t, n) for n in ("epoch", "policy", "replica", "boot", "pair", "arm")},
                "class": class_,
                "requests": 4,
                "tpot_bins": [bin_of(ms)],
                "tpot_counts": [4],
                "version": began,
            }
            for t in times
            for (class_, arm), ms in WAITS.items()
            if arm == t.arm
        ]
        plain = [{**dataclasses.asdict(t), "version": began} for t in times]
        store.insert("block_time", typed(store, "block_time", plain))
        store.insert("block_class", typed(store, "block_class", classes))
    return where


def gate(capsys, *words):
    assert main(["gate", *words]) == 0
    return capsys.readouterr().out


def test_it_is_said_with_its_numbers_and_only_of_the_class_that_waits(dsn, capsys):
    words = ("recommend", "--store", dsn, "--tpot-ms", "chat=20", "--tpot-ms", "sql=20")

    said = gate(capsys, *words)
    plain = json.loads(gate(capsys, *words, "--json"))

    assert "route chat: to its own pool" in said
    assert "chat: route (chat takes 30" in said
    assert "sql: keep" in said
    assert plain["routes"] == ["chat"]
    assert {one["class"]: one["action"] for one in plain["delays"]} == {
        "chat": "route",
        "sql": "keep",
    }


def test_what_each_class_got_under_each_arm_is_said_with_or_without_an_allowance(dsn, capsys):
    said = gate(capsys, "recommend", "--store", dsn)
    plain = json.loads(gate(capsys, "recommend", "--store", dsn, "--json"))

    times = {one["class"]: one["tpot_p95_ms"] for one in plain["class_times"]}
    assert set(times) == {"chat", "sql"}
    for (class_, arm), ms in WAITS.items():
        assert times[class_][arm]["value"] == pytest.approx(ms, rel=0.02)
    assert "chat: ms per token (95th percentile of its requests): " in said


def test_a_router_is_told(dsn, capsys):
    out = gate(capsys, "export", "specscope", "--store", dsn, "--tpot-ms", "chat=20", "--json")

    assert {"class": "chat", "pool": "own"} in json.loads(out)["router"]


def test_delays_under_another_table_are_past(dsn, capsys):
    with Store.open(dsn) as store:
        assert len(read(store).classes) == 96
        apply(store, GateTable((), 2), time.time_ns())
        assert read(store).classes == ()


def test_a_store_without_that_rollup_is_read_all_the_same(dsn):
    with Store.open(dsn) as store:
        store.command("DROP TABLE block_class")

        assert read(store).classes == ()
        assert read(store).blocks
