"""A large fleet's blocks, added up over replicas, say what the single blocks say."""

import dataclasses
import time

import pytest
from evaluate.block_rows import Kind, rows
from gate.test_gate_commands import put_rows, typed

from specscope.evaluate.experiment.blocks import LeftOut
from specscope.evaluate.verdict.decide import decide
from specscope.evidence import records
from specscope.evidence.classes import read_class_blocks
from specscope.evidence.read import read_blocks
from specscope.store.connection import Store
from specscope_agent.guardrail import Held
from specscope_agent.loss import rows_table

COST = {0: 1.0, 4: 1.6}
KINDS = {"sql": Kind({0: 1.0, 4: 3.6}, COST), "prose": Kind({0: 1.0, 4: 1.2}, COST)}
REPLICAS = 6


@pytest.fixture
def fleet(tmp_path):
    """Six replicas that ran pairs of the same numbers, of two classes, and a third of both."""
    times, parts = [], []
    for index in range(REPLICAS):
        mine = rows(KINDS, pairs=12, seed=index)
        name = {"replica": f"r{index}", "boot": f"b{index}"}
        times += [
            dataclasses.replace(t, **name, gap_bins=(9, 10 + index), gap_counts=(5, t.rounds))
            for t in mine[0]
        ]
        parts += [
            dataclasses.replace(
                p, **name, kinds=("plain", "guided"), kind_rounds=(p.request_rounds, 7),
                kind_emitted=(p.emitted, 0), kind_tested=(1, 2), kind_kept=(0, 1),
            )
            for p in mine[1]
        ]  # fmt: skip
    where = f"chdb://{tmp_path}/store"
    with Store.open(where) as store:
        put_rows(store, times, parts)
        yield store


def read(store, most, monkeypatch):
    monkeypatch.setattr(records, "MOST_BLOCKS", most)
    return read_blocks(store)


def test_sums_of_each_kind_and_arm_are_the_same(fleet, monkeypatch):
    single, pooled = read(fleet, 10**6, monkeypatch), read(fleet, 10, monkeypatch)

    assert len(single[0]) == REPLICAS * len(pooled[0])
    assert {block.merged for block in pooled[0]} == {REPLICAS}

    def added(rows_, name):
        sums = {}
        for row in rows_:
            value = getattr(row, name)
            value = sum(value) if isinstance(value, tuple) else value or 0
            key = row.arm, getattr(row, "class_", None) or row.classes
            sums[key] = sums.get(key, 0) + value
        return sums

    for name in ("requests", "rounds", "wall_us", "draft_us", "emitted", "gap_counts", "proposed"):
        assert added(pooled[0], name) == pytest.approx(added(single[0], name))
    for name in ("request_rounds", "emitted", "tested", "kept", "requests", "kind_rounds"):
        assert added(pooled[1], name) == added(single[1], name)
    assert added(pooled[1], "kind_tested") == added(single[1], "kind_tested")
    assert all(part.kinds == ("guided", "plain") for part in pooled[1])
    assert {part.kind_emitted[0] for part in pooled[1]} == {0}


def test_verdicts_are_the_same_and_their_ratios_to_the_last_digit(fleet, monkeypatch):
    single = decide(*read(fleet, 10**6, monkeypatch))
    pooled = decide(*read(fleet, 10, monkeypatch))

    assert [(v.segment, v.action, v.k) for v in pooled] == [
        (v.segment, v.action, v.k) for v in single
    ]
    for one, other in zip(pooled, single, strict=True):
        assert one.speedups[0].value == pytest.approx(other.speedups[0].value, rel=1e-12)
        assert one.pairs * REPLICAS == other.pairs  # the pair's number is the cluster


def test_a_block_without_time_spoils_no_other(fleet, monkeypatch):
    name = "replica = 'r3' AND pair = 2 AND arm = 'k0'"
    fleet.command(
        f"INSERT INTO block_time SELECT * REPLACE (NULL AS wall_us, version + 1 AS version)"
        f" FROM block_time FINAL WHERE {name}"
    )
    single = decide(*read(fleet, 10**6, monkeypatch))
    pooled = decide(*read(fleet, 10, monkeypatch))

    for one, other in zip(pooled, single, strict=True):
        assert one.speedups[0].value == pytest.approx(other.speedups[0].value, rel=1e-12)


def test_pairs_that_a_guardrail_cut_are_void_in_a_large_fleet_too(fleet, monkeypatch):
    held = Held(7, 0, 2 * 10**18, "slow")
    loss = {"replica": "r2", "boot": "b2", "lost_at": held.fired_at, "table": "block"}
    loss |= {"reason": "guardrail", "count": 1, "detail": held.detail}
    fleet.insert("loss", rows_table("loss", [loss]))

    blocks, _ = read(fleet, 10, monkeypatch)

    void = {block.replica for block in blocks if block.void}
    assert void == {"r2"}
    assert {block.void for block in blocks} == {None, LeftOut.GUARDRAIL}
    assert {block.merged for block in blocks if not block.void} <= {REPLICAS - 1, REPLICAS - 2, 1}


@pytest.mark.parametrize("alone", ["sql", "shared"])
def test_classes_of_shared_blocks_are_added_up_and_those_alone_stay_apart(
    fleet, monkeypatch, alone
):
    kind = rows({"sql": KINDS["sql"]}, pairs=3)
    times, classes = [], []
    for index in range(2):
        for block in kind[0]:
            name = {"epoch": f"of {alone}", "replica": f"q{index}", "boot": f"b{index}"}
            shared = ("prose", alone) if block.pair < 3 else (alone,)
            times.append(dataclasses.replace(block, **name, classes=shared))
            classes += [
                {
                    **name, "policy": block.policy, "pair": block.pair,
                    "arm": block.arm, "class": class_, "requests": 5, "tpot_bins": [9, 20 + index],
                    "tpot_counts": [1, 4], "version": time.time_ns(),
                }
                for class_ in shared
            ]  # fmt: skip
    put_rows(fleet, times, [])
    fleet.insert("block_class", typed(fleet, "block_class", classes))
    monkeypatch.setattr(records, "MOST_BLOCKS", 3)

    found = [row for row in read_class_blocks(fleet) if row.epoch == f"of {alone}"]

    shared = [row for row in found if row.replica == "shared"]
    assert {(row.pair, row.replica) for row in found if row not in shared} == {
        (3, f"alone {alone}")
    }
    assert sorted((row.pair, row.arm, row.class_) for row in shared) == [
        (pair, arm, class_)
        for pair in (1, 2)
        for arm in ("k0", "k4")
        for class_ in sorted(("prose", alone))
    ]
    assert {row.requests for row in found} == {10}
    assert {row.tpot_bins for row in found} == {(9, 20, 21)}
    assert {row.tpot_counts for row in found} == {(2, 4, 4)}
