"""The autopilot: simulated weeks, the arithmetic of its budget, its steps in a store."""

import json
import math
import time
from dataclasses import replace

import numpy as np
import pytest
from gate.autopilot_weeks import CLEAR, DRIFTS, SCENARIOS, TRAFFIC, right, week
from gate.test_gate_commands import put_rows, run
from gate.test_gate_watch import steward
from store.test_roll import put
from store.traffic import Traffic

from specscope.evaluate.experiment.blocks import BlockTime
from specscope.evaluate.experiment.pairs import pairs_of
from specscope.evaluate.statistics.ratio import paired_log_ratio
from specscope.gate.autopilot import (
    RECENT,
    Sight,
    drifted_arm,
    next_step,
    plan_window,
    spent_s,
)
from specscope.gate.standings import ArmStanding, reason_to_stop
from specscope.policy.arms import PolicyArm
from specscope.policy.autopilot import AutopilotState, autopilot_state
from specscope.policy.stored import StoredPolicy, next_table, read_policies, write_policy
from specscope.policy.table import Cell, GateTable
from specscope.store.connection import Store
from specscope.store.migrate import migrate
from specscope.store.roll import roll

HOUR = 3600 * 10**9
NOW = 1_800_000_000 * 10**9
OFF = GateTable((), 0)
ARMS = (PolicyArm("k2"), PolicyArm("k4"), PolicyArm("mine", table=GateTable((Cell(4, "sql"),), 0)))
STATE = AutopilotState(ARMS, 0.01, 0.5, False, 120.0, 24.0, NOW, NOW, 2)
BY_NAME = {one.name: one for one in (*SCENARIOS, *DRIFTS, *CLEAR)}


@pytest.mark.parametrize(
    "name", ["one clear winner", "losers beside the best", "a deploy changes the truth"]
)
def test_a_simulated_week_ends_at_the_right_table_within_its_budget(name):
    scenario = BY_NAME[name]

    found = week(scenario, seed=3)

    assert right(scenario, found.table)
    assert not found.over
    assert found.lost_s < 0.01 * found.capacity_s
    assert all(step.split(": ", 1)[1] for step in found.steps)


def test_without_leave_it_proposes_and_changes_nothing():
    found = week(BY_NAME["one clear winner"], seed=3, applies=False, until_decided=True)

    assert " propose: proposes " in found.steps[-1]
    assert found.table == OFF


def test_pairs_are_as_many_as_the_worst_case_allows():
    standings = [ArmStanding("k2", 0.5), ArmStanding("k4", 0.1), ArmStanding("mine", 0.2)]

    plan = plan_window(STATE, OFF, standings, (), replicas=8, now=NOW)

    lost_s = 120.0 * (0.5 + 0.1 + 0.2)
    assert plan.arms == ("k0", "k4", "mine", "k2")
    assert plan.pairs == 180
    assert plan.affordable == int(0.01 * 8 * 86_400 / lost_s)
    assert plan.share == pytest.approx(plan.affordable / (180 * 8))


def test_the_worst_arms_stay_out_if_not_even_one_pair_of_all_is_affordable():
    standings = [ArmStanding("k2", 0.5), ArmStanding("k4", 0.1), ArmStanding("mine", 0.2)]
    small = replace(STATE, budget=0.0005)

    one = plan_window(small, OFF, standings, (), replicas=1, now=NOW)
    none = plan_window(replace(small, spent_s=1e6), OFF, standings, (), replicas=1, now=NOW)

    assert one.arms == ("k0", "k4", "mine")
    assert (none.share, none.affordable) == (0.0, 0)


def test_a_table_in_force_that_drafts_runs_as_an_arm_beside_k0():
    standings = [ArmStanding("k0", 0.4), ArmStanding("k4", 0.1)]

    plan = plan_window(STATE, GateTable((), 2), standings, (), replicas=1, now=NOW)

    assert plan.arms == ("k0", "current", "k4")


def ran(arm, pair=1, wall_s=1.0, tokens=1000, policy=2):
    return BlockTime(
        epoch="e", policy=policy, replica="r0", boot="b", pair=pair, arm=arm, requests=1,
        rounds=400, request_rounds=400, classes=("sql",), k=0, wall_us=1e6 * wall_s, emitted=tokens,
        first_at=NOW + pair * 10**9, last_at=NOW + pair * 10**9 + 10**8,
    )  # fmt: skip


def test_what_was_spent_is_counted_at_its_worst():
    standings = [ArmStanding("k2", 0.5), ArmStanding("k4", 0.1)]

    lost = spent_s(replace(STATE, spent_s=7.0), standings, [ran("k2"), ran("k4"), ran("current")])

    assert lost == pytest.approx(7.0 + 120.0 * 0.6)


def policy(state, number=2, ended=False, share=0.1, at=NOW):
    body = next_table([], OFF, now=at, **state.as_json()) | {
        "policy": number, "kind": "blocks", "arms": [{"name": "k0"}, {"name": "k2"}],
        "block_ms": 120_000, "first_pair": 1, "last_pair": 2 if ended else 2**31, "share": share,
        "fallback": OFF.as_json(),
    }  # fmt: skip
    return StoredPolicy(number, at, "blocks", body, "")


def test_a_window_without_news_goes_on_and_the_next_follows_its_end():
    sight = Sight(1, "e")

    assert next_step(STATE, policy(STATE), [policy(STATE)], sight, NOW) is None
    over = policy(STATE, ended=True)
    step = next_step(STATE, over, [over], sight, NOW + HOUR)

    assert step.kind == "window"
    assert autopilot_state(step.body).epoch == "e"


def test_nothing_runs_once_the_budget_of_a_window_is_spent():
    state = replace(STATE, budget=1e-9)
    window = policy(state)

    step = next_step(state, window, [window], Sight(1, "e", [ran("k2")] * 10**5), NOW)

    assert step.body["share"] == 0.0
    pause = StoredPolicy(3, NOW, "blocks", step.body, "")
    assert next_step(state, pause, [window, pause], Sight(1, "e", [ran("k2")] * 10**5), NOW) is None


def test_while_it_rests_so_many_pairs_go_on_as_the_budget_allows_at_the_worst():
    state = replace(
        STATE, stopped=tuple((arm.name, "it loses with 95 % confidence") for arm in ARMS)
    )
    window = policy(state)

    step = next_step(state, window, [window], Sight(8, "e"), NOW)

    assert step.kind == "rest"
    assert [arm["name"] for arm in step.body["arms"]] == ["k0", "k2", "k4", "mine"]
    assert step.body["share"] == pytest.approx(0.01 * 4 / (3 * 0.5))
    assert autopilot_state(step.body).rests


def of_ratio(value, pairs, noise=0.08, seed=1):
    """A contrast of pairs, each block's noise shared by chance between the two arms."""
    random = np.random.default_rng(seed)
    base = np.exp(random.normal(0, 0.1, pairs))
    return paired_log_ratio(
        1000 * value * base * np.exp(random.normal(0, noise, pairs)), np.ones(pairs),
        1000 * base, np.ones(pairs),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ratio", "pairs", "why"),
    [
        (0.6, 6, "it loses with 95 % confidence"),  # long before a sequence may be looked at
        (0.6, 3, ""),
        (0.95, 80, "it loses with 95 % confidence"),
        (1.0, 120, "it cannot gain 3%"),
        (1.0, 15, ""),
        (1.06, 500, ""),
    ],
)
def test_an_arm_stops_when_it_surely_loses_or_cannot_gain_what_matters(ratio, pairs, why):
    assert reason_to_stop([of_ratio(ratio, pairs)]).startswith(why or "")
    assert bool(reason_to_stop([of_ratio(ratio, pairs)])) == bool(why)


def test_an_arm_that_may_gain_in_some_traffic_goes_on():
    loses, gains = of_ratio(0.8, 60), of_ratio(1.1, 6)

    assert reason_to_stop([loses])
    assert not reason_to_stop([loses, gains])
    assert not reason_to_stop([])


def test_arms_are_stopped_wrongly_in_at_most_one_trial_of_twenty():
    """At the edge, an arm that gains exactly what matters, looked at after every tenth pair."""
    stopped = 0
    for seed in range(200):
        whole = of_ratio(1.03, 150, seed=seed)
        stopped += any(
            reason_to_stop([part_of(whole, pairs)]) for pairs in range(10, 151, 10)
        )  # fmt: skip

    assert stopped <= 200 * 0.05 + 2 * math.sqrt(200 * 0.05 * 0.95)


def part_of(contrast, pairs):
    own = contrast.own[:pairs]
    return paired_log_ratio(np.exp(own), np.ones(pairs), np.ones(pairs), np.ones(pairs))


def test_the_first_arm_that_gains_waits_for_one_that_may_gain_more():
    scenario = BY_NAME["one clear winner"]  # k1 gains 5 %, k2 12 %

    lengths = [week(scenario, seed, until_decided=True).table.k(TRAFFIC) for seed in range(6)]

    assert lengths == [2] * 6


def test_a_change_while_it_rests_is_seen_within_a_day():
    found = week(BY_NAME["the truth changes"], seed=5)

    assert 84.0 < found.changed_h < 108.0
    assert found.table.k(TRAFFIC) == 2
    assert not found.over


@pytest.mark.parametrize("change", ["deploy", "drift"])
def test_it_starts_again_when_the_engine_or_an_effect_has_changed(change):
    state = replace(STATE, epoch="e", stopped=(("k2", "it loses with 95 % confidence"),))
    window = policy(state)
    sight = Sight(1, "f") if change == "deploy" else Sight(1, "e", drifted="k4")

    step = next_step(state, window, [window], sight, NOW + HOUR)

    fresh = autopilot_state(step.body)
    assert step.kind == "restart"
    assert (fresh.stopped, fresh.first, fresh.since) == ((), 3, NOW + HOUR)
    assert [arm["name"] for arm in step.body["arms"]] == ["k0", "k2", "k4", "mine"]


def test_rest_ends_after_days_or_with_a_deploy():
    resting = replace(STATE, epoch="e").resting()
    before = policy(resting)

    assert next_step(resting, before, [before], Sight(1, "e"), NOW + HOUR) is None
    assert next_step(resting, before, [before], Sight(1, "f"), NOW + HOUR).kind == "restart"
    assert next_step(resting, before, [before], Sight(1, "e"), NOW + 72 * HOUR) is None
    assert next_step(resting, before, [before], Sight(1, "e"), NOW + 169 * HOUR).kind == "restart"
    blind = policy(resting, share=0.0)
    assert next_step(resting, blind, [blind], Sight(1, "e"), NOW + 49 * HOUR).kind == "restart"


@pytest.mark.parametrize(("later", "drifted"), [(1000, None), (1600, "k2")])
def test_drift_is_an_effect_that_is_not_what_it_was(later, drifted):
    blocks = []
    for pair in range(1, 3 * RECENT + 1):
        noise = 1 + 0.02 * (pair % 5)
        tokens = later if pair > 2 * RECENT else 1000
        blocks += [ran("k0", pair), ran("k2", pair, tokens=round(tokens * noise))]

    assert drifted_arm(pairs_of(blocks, []), ["k2", "k4"], "k0") == drifted
    assert drifted_arm(pairs_of(blocks[:40], []), ["k2"], "k0") is None


def test_the_state_is_in_the_policy_and_what_cannot_be_read_is_no_autopilot():
    cells = PolicyArm("current+json:2", cells=(Cell(2, "json"),))
    state = replace(STATE, arms=(*ARMS, cells), stopped=(("k2", "why"),), spent_s=3.5)
    body = json.loads(json.dumps(state.as_json()))

    assert autopilot_state(body) == state
    for broken in ({}, {"autopilot": 3}, {"autopilot": {"arms": "x"}}, {"autopilot": {"arms": []}}):
        assert autopilot_state(broken) is None


@pytest.fixture
def where(tmp_path):
    dsn = f"chdb://{tmp_path}/store"
    with Store.open(dsn) as store:
        migrate(store)
    return dsn


def test_the_command_says_what_it_would_do_and_starts_it(where, capsys):
    words = ["autopilot", "--store", where, "--arms", "2,4", "--default-k", "0", "--block-s", "60"]

    code, out, _ = run(capsys, *words)
    assert code == 0
    assert "nothing is started (--approve)" in out
    code, out, _ = run(
        capsys, *words, "--approve", "--author", "ada", "--budget", "2%", "--closed-loop", "--json"
    )
    assert code == 0
    with Store.open(where) as store:
        (stored,) = read_policies(store)
    assert stored.closed_loop
    assert autopilot_state(stored.body).closed_loop
    state = autopilot_state(stored.body)
    assert (state.budget, state.worst, state.applies) == (0.02, 0.5, False)
    assert [arm.name for arm in state.arms] == ["k2", "k4"]
    assert (stored.author, stored.table) == ("ada", OFF)


@pytest.mark.parametrize(
    "words",
    [
        ("--arms", "2,4"),  # no table is in force
        ("--arms", "0", "--default-k", "0"),
        ("--arms", "4", "--default-k", "4"),
        ("--arms", "2,nothing.json", "--default-k", "0"),
        ("--arms", "2", "--default-k", "0", "--window-h", "0.01"),
    ],
)
def test_wrong_input_starts_nothing(where, capsys, words):
    code, _, error = run(capsys, "autopilot", "--store", where, *words, "--approve")
    with Store.open(where) as store:
        assert read_policies(store) == []

    assert code == 2
    assert error.strip()


def test_the_service_takes_its_steps_until_a_person_changes_the_gate(where, capsys):
    run(
        capsys, "autopilot", "--store", where, "--arms", "4", "--default-k", "0", "--block-s", "10",
        "--window-h", "0.5", "--worst", "10%", "--approve",
    )  # fmt: skip
    with Store.open(where) as store:
        (first,) = read_policies(store)
        begins, ends = first.span
        put(store, Traffic(policy=first.number, started_at=begins, pairs=6))
        roll(store, everything=True)
        watcher, applied = steward(store)

        assert watcher.tick(None, begins + 10**9) is None
        why = watcher.tick(None, ends + 10**9)
        second = read_policies(store)[-1]

        assert applied[0][1] == why
        assert (second.number, second.author) == (2, "autopilot")
        assert autopilot_state(second.body).first == first.number
        body = next_table(read_policies(store), GateTable((), 2), now=time.time_ns())
        write_policy(store, body, "by hand", time.time_ns())
        assert watcher.tick(None, second.span[1] + 10**9) is None
        assert read_policies(store)[-1].note == "by hand"


def test_rollback_ends_it(where, capsys):
    run(
        capsys, "autopilot", "--store", where, "--arms", "4", "--default-k", "0", "--block-s", "60",
        "--approve",
    )  # fmt: skip

    assert run(capsys, "rollback", "--store", where)[0] == 0
    with Store.open(where) as store:
        newest = read_policies(store)[-1]
    assert autopilot_state(newest.body) is None
    assert newest.table == OFF


def test_rows_of_other_experiments_are_no_evidence(where):
    with Store.open(where) as store:
        put_rows(store, [ran("k0", policy=1), ran("k2", policy=1)], [], time.time_ns() - NOW)
        from specscope.evidence.read import read
        from specscope.gate.sight import evidence_since

        assert len(read(store).blocks) == 2
        assert evidence_since(read(store), STATE).blocks == ()
