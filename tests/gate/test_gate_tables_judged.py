"""A table that ran as an arm: named by the verdict and proposed, or not, by what it truly gives."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gate import shared_engine
from gate.shared_engine import KEEPS, experiment, packed, padded

from specscope.evidence.read import Evidence
from specscope.gate import show
from specscope.gate.export import export
from specscope.gate.recommend import recommendation
from specscope.gate.schedule import pool_split
from specscope.policy.arms import PolicyArm
from specscope.policy.stored import HoldOut, StoredPolicy, next_table
from specscope.policy.table import Cell, GateTable, State

NOW = 10**18
SHARP = GateTable((Cell(4, "json"), Cell(4, "sql")), 0)
OFF = GateTable((), 0)
SWITCHES = {f"k{k}": dict.fromkeys(KEEPS, k) for k in (0, 2, 4)}


def lengths_of(table, batch=16):
    return {name: table.k(State(name, context=100, output=100, batch=batch)) for name in KEEPS}


def advised(
    cost, *, in_force=OFF, arms=("k0", "k2", "k4", "sharp"), pairs=24, seed=1, beside=((), ())
):
    """What is recommended after an experiment on that engine. beside: blocks and parts of another,
    policy 1."""
    tables = (
        PolicyArm("sharp", table=SHARP),
        PolicyArm("current+json:2", cells=(Cell(2, "json"),)),
    )
    runs = {arm.name: arm.runs(in_force) for arm in (*tables, PolicyArm("current"))}
    ran = {name: SWITCHES.get(name) or lengths_of(runs[name]) for name in arms}
    hold_out = HoldOut(1.0, 1.0, 0.0, tuple(arms), 2 * pairs, tables)
    body = next_table([], in_force, now=0, hold_out=hold_out) | {"policy": 2}
    blocks, parts = experiment(ran, cost, pairs, seed)
    before = StoredPolicy(1, 0, "blocks", body | {"policy": 1}, "")
    policies = (before, StoredPolicy(2, 0, "blocks", body, ""))
    evidence = Evidence((*beside[0], *blocks), (*beside[1], *parts), policies=policies)
    return recommendation(evidence, now=NOW, closed_loop=True)


def test_the_engines_differ_in_what_a_table_gives():
    arms = {**SWITCHES, "sharp": lengths_of(SHARP)}
    saves, pads = (shared_engine.truth(arms, cost) for cost in (packed, padded))

    assert saves["sharp"] > 1.1 * max(saves["k2"], saves["k4"])
    assert pads["sharp"] < 0.95 * pads["k2"]


@pytest.mark.parametrize("seed", range(3))
def test_a_table_that_beats_every_switch_is_named_and_proposed(seed):
    found = advised(packed, seed=seed)

    (verdict,) = found.verdicts
    assert (verdict.segment.class_, verdict.action, verdict.k) == (None, "set_k", None)
    assert (verdict.arm, verdict.best) == ("sharp", ("sharp",))
    (move,) = found.moves
    assert (move.rule, move.changes, move.table) == ("adopt", True, SHARP)
    assert (move.evidence.arm, move.evidence.baseline) == ("sharp", "k2")
    assert move.evidence.low > 1.0
    assert lengths_of(found.new) == lengths_of(SHARP)
    assert all(cell.basis.arm == "sharp" for cell in found.new.cells)
    assert found.new.k(State("json", context=100, output=100, batch=400)) == 0  # never measured
    assert "adopt, the table of sharp" in "\n".join(show.recommendation_lines(found))
    (plain,) = show.recommendation_json(found)["moves"]
    assert (plain["arm"], plain["rule"]) == ("sharp", "adopt")


@pytest.mark.parametrize("seed", range(3))
def test_on_an_engine_that_pads_the_same_table_is_not(seed):
    found = advised(padded, seed=seed)

    (verdict,) = found.verdicts
    assert (verdict.action, verdict.k, verdict.arm) == ("set_k", 2, "k2")
    sharp = next(t for t in verdict.between if (t.arm, t.baseline) == ("sharp", "k2"))
    assert sharp.loses
    assert len(set(lengths_of(found.new).values())) == 1
    assert all(move.table is None for move in found.moves)


@pytest.mark.parametrize(("apart", "rule"), [("k4", "adopt"), ("k2", "insufficient")])
def test_a_length_of_another_experiment_is_a_rival_unless_it_lies_below(apart, rule):
    lengths = {"k4": SWITCHES["k4"], "k2": lengths_of(SHARP)}[apart]  # of k2: as fast as the table
    before, parts = experiment({"k0": SWITCHES["k0"], apart: lengths}, packed, 8, 5)
    earlier = [replace(one, policy=1) for one in before], [replace(one, policy=1) for one in parts]

    found = advised(packed, arms=("k0", "sharp"), beside=earlier)

    (move,) = found.moves
    assert move.rule == rule


def test_a_draft_length_that_gains_says_that_a_table_may_still_be_better():
    runs = {name: SWITCHES[name] for name in ("k0", "k2")}
    before, parts = experiment(runs, packed, 24, 5)
    earlier = [replace(one, policy=1) for one in before], [replace(one, policy=1) for one in parts]

    young = advised(packed, arms=("k0", "k2", "sharp"), pairs=8, beside=earlier)
    older = advised(packed, arms=("k0", "k2", "sharp"), pairs=24, beside=earlier)

    (move,) = young.moves
    assert (move.rule, move.new_k) == ("enable", 2)
    assert any(note.startswith("sharp may still be better than k2") for note in young.notes)
    assert older.moves[0].rule == "adopt"
    assert not any("may still be better" in note for note in older.notes)


BLUNT = GateTable((Cell(4, "chat"), Cell(4, "prose")), 0)
"""Drafts where nothing is kept: loses to target-only."""


def test_the_table_in_force_is_kept_if_nothing_is_surely_better():
    arms = ("k0", "k2", "k4", "current")
    found = advised(packed, in_force=SHARP, arms=arms)

    (verdict,) = found.verdicts
    assert (verdict.action, verdict.arm, verdict.k) == ("keep", "current", None)
    assert not found.changes
    assert found.new == SHARP


def test_two_arms_that_run_as_fast_as_each_other_change_nothing():
    slower = GateTable((Cell(4, "json"), Cell(4, "sql"), Cell(0, "chat", batch=(0, 9))), 0)
    found = advised(packed, in_force=slower, arms=("k0", "k2", "current", "sharp"))

    (verdict,) = found.verdicts
    assert (verdict.action, verdict.arm) == ("keep", "current")
    assert not found.changes


def test_a_switch_takes_the_place_of_a_table_that_it_surely_beats():
    found = advised(padded, in_force=SHARP, arms=("k0", "k2", "current"))

    (move,) = found.moves
    assert (move.rule, move.table) == ("adopt", GateTable((), 2))
    assert set(lengths_of(found.new).values()) == {2}


def test_a_table_in_force_that_loses_is_switched_off_whatever_its_default_is():
    found = advised(padded, in_force=BLUNT, arms=("k0", "current"))

    (move,) = found.moves
    assert (move.rule, move.changes) == ("disable", True)
    assert set(lengths_of(found.new).values()) == {0}


@pytest.mark.parametrize("arms", [("k0", "k2"), ("k0", "k2", "sharp")])
def test_a_table_in_force_that_did_not_run_is_not_replaced(arms):
    found = advised(packed, in_force=BLUNT, arms=arms)

    (move,) = found.moves
    assert (move.rule, move.changes) == ("insufficient", False)
    assert "add arm current" in move.why
    assert found.new == BLUNT


def test_a_class_of_the_table_in_force_changes_if_that_surely_pays():
    worse = GateTable((Cell(0, "json"), Cell(4, "sql")), 0)
    found = advised(packed, in_force=worse, arms=("k0", "k2", "current", "current+json:2"))

    (verdict,) = found.verdicts
    assert verdict.arm == "current+json:2"
    assert lengths_of(found.new) == {"json": 2, "sql": 4, "chat": 0, "prose": 0}


def test_few_pairs_propose_no_table():
    found = advised(packed, pairs=6)

    assert not found.changes
    assert found.new == OFF


def test_the_engines_schedule_is_told_what_it_leaves_behind_of_a_table():
    found = advised(packed)
    out = export("vllm", found.new, found.moves)

    assert out.settings["num_speculative_tokens"] == 2
    assert out.regret == pytest.approx(1 - 1 / found.moves[0].evidence.value, abs=0.02)


def test_a_router_is_told_which_classes_of_an_adopted_table_draft():
    found = advised(packed)
    shorter = (Cell(2, "sql", batch=(0, 9)), Cell(0, "sql"), Cell(0, "chat"))
    table = GateTable((Cell(4, "json"), *shorter), 0)

    assert found.moves[0].table is not None
    assert pool_split(found.moves, found.new) == (["json", "sql"], [])
    assert pool_split(found.moves, table) == (["json", "sql"], ["chat"])
    pools = {rule["class"]: rule["pool"] for rule in export("vllm", table, found.moves).router}
    assert pools == {"json": "speculative", "sql": "speculative", "chat": "target_only"}
