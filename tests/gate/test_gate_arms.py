"""Arms that are tables: what `calibrate --arms` takes, and what the hook then runs."""

from __future__ import annotations

import json
import re

import pytest
from gate.test_gate_commands import NOW, run

from specscope.errors import InputError, UsageError
from specscope.gate import calibration
from specscope.gate.arms import arms_of_lengths, read_arms
from specscope.policy.arms import table_of_arm
from specscope.policy.stored import next_table, read_policies, write_policy
from specscope.policy.table import Cell, GateTable, State
from specscope.store.connection import Store
from specscope.store.migrate import migrate
from specscope_hook.gate import Gate

CLASSES = ("json", "sql", "chat", "prose")
IN_FORCE = GateTable((Cell(4, "json"), Cell(3, None, batch=(0, 9))), 1)
MINE = GateTable((Cell(5, "sql"), Cell(2, "chat", batch=(0, 17))), 0)


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(MINE.as_json()))
    return str(path)


@pytest.fixture
def where(tmp_path):
    dsn = f"chdb://{tmp_path}/store"
    with Store.open(dsn) as store:
        migrate(store)
    return dsn


def started(where, words, in_force=IN_FORCE):
    """The policy of an experiment, as the hook reads it."""
    with Store.open(where) as store:
        if in_force is not None:
            write_policy(store, next_table([], in_force, now=NOW), "", NOW)
        window = calibration.Window(read_arms(words), minutes=600, block_s=60)
        calibration.start(store, window, now=NOW, default_k=3)
        body = read_policies(store)[-1].body
    return body, Gate.from_policy(json.dumps(body))


def test_words_become_arms_in_their_order(mine):
    arms = read_arms(["2", "k0", "current", "current+json:2", mine])

    assert [arm.name for arm in arms] == ["k2", "k0", "current", "current+json:2", "mine"]
    assert arms[:2] == arms_of_lengths([2, 0])
    assert arms[3].cells == (Cell(2, "json"),)
    assert arms[4].table == MINE


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["2", "4"], "name k0"),
        (["0"], "at least one other"),
        (["0", "2", "k2"], "2 arms are called 'k2'"),
        (["0", "256"], "255 at most"),
        (["0", "9" * 5000], "255 at most"),
        (["0", "current+json"], "current+json:2"),
        (["0", "current+json:"], "current+json:2"),
        (["0", "current+json:300"], "255 at most"),
        (["0", f"current+{'x' * 80}:1"], "longer than 64"),
        (["0", "nowhere.json"], "neither a draft length"),
        (["0", "n" * 5000], "neither a draft length"),
        (["0", "-1"], "neither a draft length"),
        ([str(k) for k in range(33)], "32 at most"),
    ],
)
def test_words_that_are_no_arms_are_refused(words, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        read_arms(words)


@pytest.mark.parametrize("name", ["current", "k4", "clean", "2", "a+b", "a'"])
def test_a_file_may_not_take_the_name_of_another_arm(tmp_path, name):
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps(MINE.as_json()))

    with pytest.raises(UsageError, match="would be called"):
        read_arms(["0", str(path)])


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"k": 3}', '{"default_k": 999}', '{"table": [{"klass": "sql", "k": 1}]}',
     json.dumps({"table": [{"k": 1, "batch": [i, i + 1]} for i in range(65)]})],
)  # fmt: skip
def test_a_file_without_a_table_that_a_hook_can_follow_is_refused(tmp_path, text):
    path = tmp_path / "mine.json"
    path.write_text(text)

    with pytest.raises(InputError, match="is not a table"):
        read_arms(["0", str(path)])


@pytest.mark.parametrize("in_force", [IN_FORCE, None])
def test_the_hook_runs_each_arm_as_it_was_asked_for(where, mine, in_force):
    words = ["k0", "2", "current", "current+json:2", mine]
    body, gate = started(where, words, in_force)
    current = in_force or GateTable((), 3)
    wanted = {
        "k0": GateTable((), 0),
        "k2": GateTable((), 2),
        "current": current,
        "current+json:2": GateTable((Cell(2, "json"), *current.cells), current.default_k),
        "mine": MINE,
    }

    assert [arm.name for arm in gate.arms] == list(wanted)
    for name, table in wanted.items():
        for class_ in (*CLASSES, "never seen"):
            for batch in (1, 8, 9, 16, 17, 400):
                k = table.k(State(class_, context=10, output=64, batch=batch))
                assert gate.k(class_, 10, 64, batch, 0, name) == k
                written = table_of_arm(body, name)
                assert written.k(State(class_, context=10, output=64, batch=batch)) == k
    assert sorted(gate.order("r0", "b", gate.first_pair)) == sorted(wanted)
    assert gate.ended().rules == gate.rules


def test_what_an_arm_runs_is_unknown_if_its_policy_does_not_say():
    body = {"policy": 1, "kind": "blocks", "arms": [{"name": "left"}, {"name": "x", "k": 3}]}

    assert table_of_arm(body, "left") is None
    assert table_of_arm(body, "right") is None
    assert table_of_arm(body, "x") == GateTable((), 3)


def test_two_names_of_one_table_are_refused_before_anything_starts(where, tmp_path):
    same = tmp_path / "same.json"
    same.write_text(json.dumps(IN_FORCE.as_json()))

    with pytest.raises(UsageError, match="current and same run the same table"):
        started(where, ["0", "current", str(same)])
    with pytest.raises(UsageError, match="k2 and current run the same table"):
        started(where, ["0", "2", "current"], GateTable((), 2))


def test_the_command_says_what_would_run_and_refuses_in_a_line(where, mine, capsys):
    window = ("calibrate", "--store", where, "--minutes", "60", "--block-s", "30")
    code, out, _ = run(capsys, *window, "--arms", f"k0,2,current+json:2,{mine}")
    _, plain, _ = run(capsys, *window, "--arms", f"k0,{mine}", "--json")

    assert code == 0
    assert "k = 0, k = 2, current+json:2 (the table in force, but json: k = 2), mine (" in out
    assert [arm["name"] for arm in json.loads(plain)["arms"]] == ["k0", "mine"]
    for more in (["--arms", "2,4"], ["--arms", "0,2", "--k", "0,2"], [],
                 ["--arms", "0,current", "--approve"]):  # fmt: skip
        code, out, err = run(capsys, *window, *more)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
    with Store.open(where) as store:
        assert read_policies(store) == []
