"""Who changed the gate, and the ways back: against a store, and against a list of tables."""

from __future__ import annotations

import json
import random
import time

import pytest
from gate.test_gate_commands import run
from store.test_roll import put
from store.traffic import Traffic

from specscope import queries
from specscope.errors import UsageError
from specscope.policy.rollback import rolled_back, standing, stopped
from specscope.policy.stored import (
    HoldOut,
    StoredPolicy,
    detached,
    next_table,
    read_policies,
    write_policy,
)
from specscope.policy.table import Cell, GateTable
from specscope.store.connection import Store
from specscope.store.migrate import migrate
from specscope_hook.gate import Gate

NOW = 1_800_000_000 * 10**9
BLOCK_S = 60
ENDS = NOW + 10**15


def kept(policies, body, note=""):
    """A list of policies as the store would have it, with one more."""
    at = NOW + body["policy"]
    return [*policies, StoredPolicy(body["policy"], at, body["kind"], body, note)]


def applied(policies, k, **more):
    return kept(policies, next_table(policies, GateTable((Cell(k, "sql"),), 1), now=NOW, **more))


def experiment(policies, pairs=5):
    table = policies[-1].table
    hold_out = HoldOut(1.0, BLOCK_S, 10, ("k0", "k4"), pairs)
    return kept(policies, next_table(policies, table, now=NOW, hold_out=hold_out))


def back(policies, now=NOW, **more):
    return kept(policies, rolled_back(policies, now=now, **more))


def k_of(policies):
    (cell,) = policies[-1].table.cells
    return cell.k


def test_rollbacks_walk_back_and_never_to_what_was_rolled_back():
    policies = applied(applied(applied([], 2), 4), 6)

    once = back(policies)
    twice = back(once)

    assert (k_of(once), k_of(twice)) == (4, 2)
    assert (once[-1].restores, twice[-1].restores) == (2, 1)
    with pytest.raises(UsageError, match="no earlier table"):
        back(twice)


def test_a_rollback_after_a_new_table_goes_to_what_was_in_force_before_it():
    policies = applied(back(applied(applied([], 2), 4)), 6)  # 2, 4, back to 2, 6

    assert k_of(back(policies)) == 2


def test_a_rollback_to_a_number_restores_that_table_whatever_came_since():
    policies = back(applied(applied(applied([], 2), 4), 6))

    again = back(policies, to=3)

    assert k_of(again) == 6
    assert again[-1].restores == 3
    with pytest.raises(UsageError, match="gate history"):
        back(policies, to=99)


def test_a_rollback_ends_the_experiment_that_runs_and_then_goes_on_from_the_table_before():
    running = experiment(applied(applied([], 2), 4))

    ended = back(running)
    further = back(ended)

    assert (ended[-1].kind, ended[-1].stops, k_of(ended)) == ("table", 3, 4)
    assert k_of(further) == 2


def test_an_experiment_that_is_over_is_no_step():
    over = experiment(applied(applied([], 2), 4))

    policies = back(over, now=ENDS)

    assert over[-1].ended(ENDS)
    assert k_of(policies) == 2


@pytest.mark.parametrize("seed", range(20))
def test_fifty_random_changes_agree_with_a_stack_of_tables(seed):
    draw = random.Random(seed)
    policies, stack = applied([], 0), [0]
    for _ in range(50):
        if draw.random() < 0.5:
            k = draw.choice([k for k in range(9) if k != stack[-1]])
            policies, stack = applied(policies, k), [*stack, k]
        elif len(stack) > 1:
            policies, stack = back(policies), stack[:-1]
        else:
            with pytest.raises(UsageError, match="no earlier table"):
                back(policies)
        assert k_of(policies) == stack[-1]
        assert [one.table.cells[0].k for one in standing(policies)] == stack


def test_stopping_an_experiment_puts_its_fallback_in_force():
    policies = experiment(applied([], 4))

    body = stopped(policies, policies[-1], now=NOW, author="specscope")

    assert (body["stops"], body["author"], body["kind"]) == (2, "specscope", "table")
    assert body["table"][0]["k"] == 4


@pytest.fixture
def where(tmp_path):
    dsn = f"chdb://{tmp_path}/store"
    with Store.open(dsn) as store:
        migrate(store)
    return dsn


def test_every_change_is_an_event_and_a_line_of_history(where, capsys, tmp_path):
    def change(*words):
        code, _, error = run(capsys, *words, "--store", where, "--author", "ada")
        assert code == 0, error

    for k in (2, 4):
        path = tmp_path / f"{k}.json"
        path.write_text(json.dumps(GateTable((Cell(k, "sql"),), 0).as_json()))
        change("apply", str(path), "--note", f"k = {k}")
    change("rollback", "--note", "slower at night")
    change("rollback", "--to", "2")
    change("detach", "--approve")
    with Store.open(where) as store:
        events = store.rows(queries.events())
    _, out, _ = run(capsys, "history", "--store", where)
    _, plain, _ = run(capsys, "history", "--store", where, "--json")

    kinds = ["policy", "policy", "rollback", "rollback", "detach"]
    assert [(row["kind"], row["policy"], row["author"]) for row in events] == [
        (kind, number, "ada") for number, kind in enumerate(kinds, start=1)
    ]
    assert [one["policy"] for one in json.loads(plain)["policies"]] == [5, 4, 3, 2, 1]
    assert "rollback to 1 by ada: slower at night" in out
    assert "- sql: k = 4" in out
    assert json.loads(plain)["policies"][0]["in_force"]


def test_history_equals_the_policies_after_fifty_random_commands(where, capsys, tmp_path):
    """Against a stack of tables, and against the rows of the store; experiments end on the way."""
    draw, stack, expected = random.Random(12), [], []

    def command(*words):
        code, _, error = run(capsys, *words, "--store", where, "--author", "ada")
        return code, error

    def wrote(kind, table, **more):
        expected.append({"policy": len(expected) + 1, "kind": kind, "table": table, **more})

    for number in range(50):
        choice = draw.choices(["apply", "rollback", "to", "detach"], [5, 4, 2, 1])[0]
        told = [one for one in expected if one["table"] is not None]
        if choice == "apply" or not told:
            k = draw.choice([k for k in range(9) if not stack or k != stack[-1]])
            path = tmp_path / f"{number}.json"
            path.write_text(json.dumps(GateTable((Cell(k, "sql"),), 0).as_json()))
            assert command("apply", str(path)) == (0, "")
            wrote("policy", k)
            stack.append(k)
        elif choice == "rollback":
            others = [place for place, k in enumerate(stack) if k != stack[-1]]
            code, error = command("rollback")
            if not others:
                assert (code, "no earlier table" in error) == (2, True)
                continue
            assert code == 0, error
            stack = stack[: others[-1] + 1]
            wrote("rollback", stack[-1])
        elif choice == "to":
            wanted = draw.choice(told)
            assert command("rollback", "--to", str(wanted["policy"]))[0] == 0
            wrote("rollback", wanted["table"], restores=wanted["policy"])
            with Store.open(where) as store:
                stack = [one.table.cells[0].k for one in standing(read_policies(store))]
            assert stack[-1] == wanted["table"]
        else:
            assert command("detach", "--approve")[0] == 0
            wrote("detach", stack[-1])
            stack.append(stack[-1])
    _, out, _ = run(capsys, "history", "--store", where, "--json", "--all")
    told = json.loads(out)["policies"][::-1]
    with Store.open(where) as store:
        policies = read_policies(store)
        events = store.rows(queries.events())

    assert len(told) == len(policies) == len(expected) > 40
    for one, policy, wanted, event in zip(told, policies, expected, events, strict=True):
        assert one["policy"] == policy.number == wanted["policy"] == event["policy"]
        assert one["kind"] == wanted["kind"] == event["kind"]
        assert (one["author"], one["at"], one["note"]) == ("ada", policy.created_at, policy.note)
        assert (one["restores"], one["stops"]) == (policy.restores, policy.stops)
        assert wanted.get("restores", one["restores"]) == one["restores"]
        assert policy.table.cells[0].k == wanted["table"]
    assert [one["policy"] for one in told if one["in_force"]] == [expected[-1]["policy"]]


def test_history_says_how_many_replicas_follow(where, capsys):
    with Store.open(where) as store:
        write_policy(store, next_table([], GateTable((), 4), now=NOW), "", NOW)
        for replica, policy in (("r0", 1), ("r1", 1), ("r2", None)):
            lately = time.time_ns() - 60 * 10**9
            put(store, Traffic(replica=replica, pairs=1, policy=policy, started_at=lately))

    _, out, _ = run(capsys, "history", "--store", where)
    _, plain, _ = run(capsys, "history", "--store", where, "--json")

    assert "followed by 2 of 3 replicas" in out
    (entry,) = json.loads(plain)["policies"]
    assert entry["followed_by"] == ["r0", "r1"]


def test_detaching_every_hook_asks_first(where, capsys):
    code, out, _ = run(capsys, "detach", "--store", where)
    with Store.open(where) as store:
        untouched = read_policies(store)
    run(capsys, "detach", "--store", where, "--approve", "--note", "incident")
    with Store.open(where) as store:
        (policy,) = read_policies(store)

    assert (code, untouched) == (0, [])
    assert "every hook would detach" in out
    assert policy.detaches
    assert Gate.from_policy(dict(policy.body)).detach
    assert Gate.from_policy(detached([policy])).detach
    assert policy.created_at <= time.time_ns()
