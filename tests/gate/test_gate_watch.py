"""An experiment while it runs: its pairs and its cost, who does not follow, and when it ends."""

from __future__ import annotations

import dataclasses
import json
import time

import pytest
from gate.test_gate_commands import run
from store.test_roll import put
from store.traffic import Traffic

from specscope import queries
from specscope.evaluate.experiment.blocks import BlockTime
from specscope.gate.arms import arms_of_lengths
from specscope.gate.calibration import Window, start
from specscope.gate.progress import Stage, cost_so_far, incumbent, progress, whole_pairs
from specscope.gate.watch import follow, look
from specscope.policy.arms import PolicyArm
from specscope.policy.stored import (
    HoldOut,
    StopRules,
    StoredPolicy,
    next_table,
    read_policies,
    write_policy,
)
from specscope.policy.table import Cell, GateTable
from specscope.service.steward import Steward, deploys, reason_to_stop
from specscope.store.connection import Store
from specscope.store.migrate import migrate
from specscope.store.roll import roll

SECOND = 10**9
BLOCK_S = 10.0
PAIRS = 6


def block(arm, wall_s, tokens, pair=1, replica="r0"):
    return BlockTime(
        epoch="e", policy=7, replica=replica, boot="b", pair=pair, arm=arm, requests=1, rounds=1,
        request_rounds=1, classes=("sql",), k=0, wall_us=1e6 * wall_s, emitted=tokens,
    )  # fmt: skip


def test_a_cost_is_the_time_beyond_the_arm_in_force_for_the_same_tokens():
    pairs = whole_pairs([block("k0", 2.0, 1000), block("k4", 1.0, 1000)], ("k0", "k4"))

    against_k4 = cost_so_far(list(pairs.values()), "k4", planned=4)
    against_k0 = cost_so_far(list(pairs.values()), "k0", planned=None)
    unknown = cost_so_far(list(pairs.values()), None, planned=4)

    assert against_k4.share == pytest.approx(1 / 3)
    assert against_k4.spent == pytest.approx(1 / 12)
    assert against_k0.share == pytest.approx(-1 / 3)
    assert against_k0.spent is None
    assert unknown == against_k4  # an upper bound: the fastest arm is the reference


@pytest.mark.parametrize("closed_loop", [False, True])
def test_a_calibration_says_whether_its_clients_wait(tmp_path, closed_loop):
    window = Window(arms_of_lengths((0, 4)), 30.0, 60.0, closed_loop=closed_loop)
    with Store.open(f"chdb://{tmp_path}/store") as store:
        migrate(store)
        start(store, window, now=time.time_ns(), default_k=4)
        (policy,) = read_policies(store)

    assert policy.closed_loop == closed_loop
    assert policy.stop_rules == window.rules


def test_pairs_without_every_arm_or_without_tokens_cost_nothing():
    blocks = [block("k0", 1.0, 10), block("k0", 1.0, 10, pair=2), block("k4", 1.0, 0, pair=2)]
    voided = dataclasses.replace(block("k4", 1.0, 10), void="guardrail")

    assert list(whole_pairs([*blocks, voided], ("k0", "k4"))) == [("r0", "b", 2)]
    assert cost_so_far(list(whole_pairs(blocks, ("k0", "k4")).values()), "k4", None) is None


def test_the_arm_in_force_is_the_one_that_runs_as_the_table_does():
    one_length, by_class = GateTable((), 4), GateTable((Cell(2, "sql"),), 4)
    same = PolicyArm("same", table=by_class)

    assert incumbent(planned(one_length, "k0", "k4")) == "k4"
    assert incumbent(planned(one_length, "k0", "k2")) is None
    assert incumbent(planned(by_class, "k0", "k4")) is None
    assert incumbent(planned(by_class, "current", "k0")) == "current"
    assert incumbent(planned(by_class, "k0", "same", tables=(same,))) == "same"


def planned(in_force, *arms, tables=()):
    hold_out = HoldOut(1.0, BLOCK_S, 0.0, arms, PAIRS, tables)
    body = next_table([], in_force, now=0, hold_out=hold_out)
    return StoredPolicy(1, 0, "blocks", body, "")


@pytest.fixture
def where(tmp_path):
    dsn = f"chdb://{tmp_path}/store"
    with Store.open(dsn) as store:
        migrate(store)
    return dsn


def begin(store, now, *, arms=("k0", "k4"), rules=None, pairs=PAIRS, default_k=4, tables=()):
    """An experiment that begins at about `now`; its policy, when it begins and ends."""
    hold_out = HoldOut(1.0, BLOCK_S, 0.0, arms, pairs, tables)
    body = next_table(
        read_policies(store),
        GateTable((), default_k),
        now=now - round(2 * BLOCK_S * SECOND),
        hold_out=hold_out,
        author="ada",
        **(rules or StopRules()).as_json(),
    )
    write_policy(store, body, "", now)
    experiment = read_policies(store)[-1]
    return experiment, *experiment.span


def traffic(store, number, began, **more):
    """Rounds of both arms from its beginning on, rolled up."""
    made = Traffic(policy=number, started_at=began, pairs=PAIRS, **more)
    put(store, made)
    roll(store, everything=True)
    return made


def test_a_look_counts_pairs_and_costs_what_the_rounds_say(where):
    now = time.time_ns()
    with Store.open(where) as store:
        experiment, begins, ends = begin(store, now - 600 * SECOND, pairs=2000)
        made = traffic(store, experiment.number, begins)
        seen = look(store, now=now)

    wall = {"k0": 0.0, "k4": 0.0}
    tokens = {"k0": 0, "k4": 0}
    lost = 0.0
    for pair in range(1, PAIRS + 1):
        ran = {}
        for arm in wall:
            rounds = [r for r in made.rounds if (r.pair, r.arm) == (pair, arm)]
            ran[arm] = (
                sum(r.wall_us for r in rounds),
                sum(s.emitted for r in rounds for s in r.sequences),
            )
            wall[arm] += ran[arm][0]
            tokens[arm] += ran[arm][1]
        lost += ran["k0"][0] - ran["k0"][1] * ran["k4"][0] / ran["k4"][1]
    assert (seen.stage, seen.pairs, seen.planned) == (Stage.RUNNING, PAIRS, 2000)
    assert (seen.author, seen.arms, seen.replicas) == ("ada", ("k0", "k4"), 1)
    assert seen.cost.against == "k4"
    assert seen.cost.share == pytest.approx(lost / sum(wall.values()), rel=1e-6)
    assert seen.left_s == pytest.approx((ends - now) / 1e9)
    assert {one.label for one in seen.segments} == {"prose", "code", "sql", "log"}


def test_tables_are_arms_like_any_other(where, capsys):
    now = time.time_ns()
    mine = PolicyArm("mine", table=GateTable((Cell(4, "sql"),), 0))
    arms = (("k0", 0), ("current", 4), ("mine", 4))
    with Store.open(where) as store:
        experiment, begins, _ = begin(
            store, now - 600 * SECOND, arms=tuple(name for name, _ in arms),
            tables=(mine,), pairs=2000,
        )  # fmt: skip
        traffic(store, experiment.number, begins, arms=arms)
        seen = look(store, now=now)
    _, out, _ = run(capsys, "watch", "--store", where, "--once")

    assert (seen.arms, seen.pairs) == (("k0", "current", "mine"), PAIRS)
    assert seen.cost.against == "current"
    assert {one.arm for one in seen.segments} <= {"current", "mine"}
    assert seen.disobeyed == ()
    assert f"experiment {experiment.number} (k0, current, mine) runs" in out
    assert "against current" in out


def test_a_replica_that_follows_another_policy_or_falls_silent_is_named(where):
    now = time.time_ns()
    with Store.open(where) as store:
        experiment, begins, _ = begin(store, now - 60 * SECOND, pairs=2000)
        traffic(store, experiment.number, begins, round_ns=10**8)
        traffic(store, 1000, now - 8 * SECOND, replica="r1", boot="b1", seed=2, round_ns=10**7)
        traffic(store, experiment.number, begins, replica="r2", boot="b2", seed=3, round_ns=10**5)
        policies = read_policies(store)
        seen = progress(store, policies, experiment, None, now)

    assert "r2" in seen.silent
    assert any(line.startswith("r1 runs policy 1000, not ") for line in seen.disobeyed)


@pytest.mark.parametrize(
    ("arms", "line"),
    [
        ((("k0", 3), ("k4", 4)), "r0 drafts 3.0 tokens per round under k = 0"),
        ((("k0", 0), ("k4", 0)), "r0 drafted nothing under k = 4"),
    ],
)
def test_an_engine_that_does_not_draft_as_its_arm_says_is_named(where, arms, line):
    now = time.time_ns()
    with Store.open(where) as store:
        experiment, begins, _ = begin(store, now - 60 * SECOND, pairs=2000)
        traffic(store, experiment.number, begins, arms=arms)
        seen = progress(store, read_policies(store), experiment, None, now)

    assert seen.disobeyed == (line,)


@pytest.mark.parametrize(
    ("k", "drafted", "line"),
    [
        (4, 0, "r0 drafted nothing under mine: does it get traffic of the classes that draft?"),
        (2, 4, "r0 drafts 4.0 tokens per round under mine, which allows 2"),
        (0, 4, "r0 drafts 4.0 tokens per round under mine, which allows 0"),
        (4, 2, None),
    ],
)
def test_an_arm_with_a_table_has_to_draft_within_it(where, k, drafted, line):
    now = time.time_ns()
    mine = PolicyArm("mine", table=GateTable((Cell(k, "sql"),), 0))
    with Store.open(where) as store:
        experiment, begins, _ = begin(
            store, now - 60 * SECOND, arms=("k0", "mine"), tables=(mine,), pairs=2000
        )
        traffic(store, experiment.number, begins, arms=(("k0", 0), ("mine", drafted)))
        seen = progress(store, read_policies(store), experiment, None, now)

    assert seen.disobeyed == (() if line is None else (line,))


def test_following_ends_with_the_experiment_and_says_where_it_stands(where):
    said, slept = [], []
    with Store.open(where) as store:
        experiment, begins, ends = begin(store, time.time_ns())
        clock = iter([begins - 1, begins + 1, ends + 1])

        seen = follow(
            store, None, 15.0, say=said.append, sleep=slept.append, clock=lambda: next(clock)
        )

    assert seen.stage is Stage.ENDED
    assert seen.left_s == 0.0
    assert f"experiment {experiment.number} (k0, k4) has not begun" in said[0]
    assert "runs" in said[1]
    assert slept == [15.0, 15.0]


def test_watch_once_prints_and_exits_undecided(where, capsys):
    with Store.open(where) as store:
        begin(store, time.time_ns() - 3600 * SECOND)

    code, out, _ = run(capsys, "watch", "--store", where, "--once")
    _, plain, _ = run(capsys, "watch", "--store", where, "--json")
    missing, _, error = run(capsys, "watch", "99", "--store", where, "--once")

    assert code == 3
    assert "is over: 0 pairs" in out
    assert json.loads(plain)["stage"] == "ended"
    assert (missing, "no experiment" in error) == (2, True)


def steward(store):
    """A steward that applies as a person on the store's machine would; what it applied."""
    applied = []

    def apply(body, note):
        applied.append((body, note))
        write_policy(store, body, note, time.time_ns())

    return Steward(store, apply), applied


def test_the_service_ends_an_experiment_whose_budget_is_spent(where):
    now = time.time_ns()
    with Store.open(where) as store:
        rules = StopRules(loss_budget=0.05)
        experiment, begins, _ = begin(store, now - 600 * SECOND, rules=rules, pairs=200)
        traffic(store, experiment.number, begins)
        watcher, applied = steward(store)

        early = watcher.tick(None, now)  # 6 of 200 pairs: under 1 % of the window is spent
        spent = progress(store, read_policies(store), experiment, None, now)
        small = dataclasses.replace(spent.cost, spent=0.06)

    assert early is None
    assert applied == []
    assert 0 < spent.cost.spent < 0.05
    assert reason_to_stop(experiment, dataclasses.replace(spent, cost=small)) is not None
    few = dataclasses.replace(small, pairs=3)
    assert reason_to_stop(experiment, dataclasses.replace(spent, cost=few)) is None


@pytest.mark.parametrize(
    ("settled", "pairs", "planned", "ends"),
    [
        ((True, True), (40, 40), 200, True),
        ((True, False), (40, 4), 200, False),  # 20 pairs at the end
        ((True, False), (40, 1), 200, True),  # 5 of them
        ((True, False), (40, 0), None, False),  # a window without an end
        ((False, False), (0, 0), 200, False),
    ],
)
def test_a_segment_too_rare_for_its_window_keeps_no_experiment_going(
    where, settled, pairs, planned, ends
):
    now = time.time_ns()
    with Store.open(where) as store:
        rules = StopRules(when_decided=True)
        experiment, begins, _ = begin(store, now - 600 * SECOND, rules=rules, pairs=2000)
        traffic(store, experiment.number, begins)
        seen = look(store, now=now)
    segments = tuple(
        dataclasses.replace(seen.segments[0], settled=own, pairs=count)
        for own, count in zip(settled, pairs, strict=True)
    )
    seen = dataclasses.replace(seen, segments=segments, pairs=40, planned=planned)

    assert seen.exhausted == ends
    assert seen.decided == all(settled)
    assert (reason_to_stop(experiment, seen) is not None) == ends


def test_the_service_ends_an_experiment_by_a_policy_of_its_own(where):
    now = time.time_ns()
    with Store.open(where) as store:
        rules = StopRules(loss_budget=0.05)
        experiment, begins, _ = begin(store, now - 100 * SECOND, rules=rules, pairs=PAIRS)
        traffic(store, experiment.number, begins)
        watcher, applied = steward(store)

        why = watcher.tick(None, now)
        policies = read_policies(store)
        again = watcher.tick(None, now)
        events = store.rows(queries.events("kind = 'experiment'"))

    assert "is spent" in why
    assert (policies[-1].stops, policies[-1].author) == (experiment.number, "specscope")
    assert policies[-1].table == GateTable((), 4)
    assert again is None
    assert len(applied) == 1
    assert [json.loads(row["detail"]).get("what") for row in events].count("began") == 1


def test_an_experiment_without_rules_is_left_to_its_end(where):
    now = time.time_ns()
    with Store.open(where) as store:
        experiment, begins, _ = begin(store, now - 100 * SECOND, pairs=PAIRS)
        traffic(store, experiment.number, begins)
        watcher, applied = steward(store)

        assert watcher.tick(None, now) is None
    assert applied == []


def test_what_begins_and_ends_is_noted_once(where):
    now = time.time_ns()
    with Store.open(where) as store:
        experiment, begins, ends = begin(store, now - 3600 * SECOND)
        watcher, _ = steward(store)
        watcher.tick(None, now)
        watcher.tick(None, now)
        rows = store.rows(queries.events("kind = 'experiment'"))

    noted = [
        (row["at"], row["subject"])
        for row in rows
        if "ed" in row["subject"] or "an" in row["subject"]
    ]
    assert noted == [(begins, f"{experiment.number} began"), (ends, f"{experiment.number} ended")]


def test_a_deploy_is_a_start_that_differs_from_the_one_before():
    same = {
        "replica": "r0", "epoch": "e", "engine": "vllm", "engine_version": "1", "target": "t",
        "draft": None, "method": "ngram", "k_max": 4, "configuration_digest": "c",
    }  # fmt: skip
    starts = [
        {**same, "boot": "a", "started_at": 1},
        {**same, "boot": "b", "started_at": 2},
        {**same, "boot": "c", "started_at": 3, "engine_version": "2", "epoch": "f"},
        {**same, "boot": "d", "started_at": 4, "replica": "r1"},
    ]

    (found,) = deploys(starts)

    assert (found["subject"], found["replica"], found["epoch"]) == ("c", "r0", "f")
    assert json.loads(found["detail"]) == {"engine_version": ["1", "2"], "epoch": ["e", "f"]}
