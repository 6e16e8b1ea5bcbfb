"""A replay moves no cell by itself, and where a person accepts it the table says so."""

import dataclasses
import json

import pytest
from evaluate.block_rows import Kind, rows
from gate.judged import of_epoch, recommend
from gate.test_gate_commands import LOSE, WIN, put_blocks, run
from replay.answers import answers, trace

from specscope.gate.rules import HOUR_NS
from specscope.gate.show import diff_lines, table_lines
from specscope.policy.stored import Change
from specscope.policy.table import Cell, GateTable, State, read_table
from specscope.replay import result
from specscope.replay.judge import judge
from specscope.store.connection import Store
from specscope_hook.gate import Gate

NOW = 10**18
NOTHING = of_epoch([], [])


def a_replay(gain, arms=("k0", "k4"), epoch="", **kwargs):
    asked = trace(160, classes=tuple(gain))
    made = answers(asked, gain=gain, drift=0.02, own_sd=0.02, **kwargs)
    urls, judged = ("http://a", "http://b"), judge(asked, made, arms)
    return result.ReplayResult(1, epoch, arms, urls, "00", 160, {}, judged)


def advise(replays, old_k=0, evidence=NOTHING, history=(), **kwargs):
    return recommend(evidence, GateTable((), old_k), history, now=NOW, replays=replays, **kwargs)


@pytest.mark.parametrize(
    ("gain", "arms", "old_k", "rule", "new_k"),
    [
        (1.5, ("k0", "k4"), 0, "enable", 4),
        (1.5, ("k0", "k4"), 4, "keep", 4),
        (1.5, ("k0", "k4"), 2, "insufficient", 2),
        (1.0, ("k0", "k4"), 4, "no_change", 4),
        (0.7, ("k0", "k4"), 4, "disable", 0),
        (0.7, ("k0", "k4"), 0, "keep", 0),
        (0.7, ("clean", "k4"), 4, "route", 0),
        (1.5, ("clean", "k4"), 0, "enable", 4),
    ],
)
def test_what_an_accepted_replay_does(gain, arms, old_k, rule, new_k):
    found = advise([a_replay({"sql": gain}, arms)], old_k)

    (move,) = found.moves
    assert (move.rule, move.new_k) == (rule, new_k)
    assert move.place.verdict.grade == "replayed"
    assert not move.place.verdict.applicable


def test_a_cell_that_rests_on_a_replay_says_so_and_reaches_no_further_than_it():
    replay = a_replay({"sql": 1.5})

    found = advise([replay])

    (cell,) = found.new.cells
    assert (cell.class_, cell.k, cell.batch) == ("sql", 4, (0, replay.judged.largest + 1))
    assert (cell.basis.grade, cell.basis.arm, cell.basis.baseline) == ("replayed", "k4", "k0")
    assert cell.basis.low < 1.5 < cell.basis.high
    assert found.new.k(State("sql", 100, 100, batch=replay.judged.largest + 1)) == 0
    assert any("replayed; k4 at 1." in line for line in table_lines(found.new))
    assert any(line.endswith("[replayed]") for line in diff_lines(found.old, found.new))
    again = read_table(json.loads(json.dumps(found.new.as_json())))
    assert again.cells[0].basis == cell.basis
    assert Gate.from_policy({"policy": 1, **again.as_json()}).k("sql", 100, 100, 1, 0) == 4


def test_pairs_come_before_a_replay_which_may_only_veto():
    win, lose = of_epoch(*rows({"sql": WIN})), of_epoch(*rows({"sql": LOSE}))

    (measured,) = advise([a_replay({"sql": 1.5})], 4, lose).moves
    vetoed = advise([a_replay({"sql": 0.7})], 0, win)
    agreed = advise([a_replay({"sql": 1.5})], 0, win)

    assert (measured.rule, measured.place.verdict.grade) == ("disable", "measured")
    assert [move.rule for move in vetoed.moves] == ["held"]
    assert any("REPLAY_DISAGREES" in flag for flag in vetoed.flags)
    assert [(m.rule, m.place.verdict.grade) for m in agreed.moves] == [("enable", "measured")]
    assert agreed.new.cells[0].basis.grade == "measured"


def test_a_replay_fills_in_where_pairs_are_too_few():
    thin = of_epoch(*rows({"sql": WIN}, pairs=4))

    found = advise([a_replay({"sql": 1.5})], 0, thin)

    assert sorted(move.rule for move in found.moves) == ["enable", "insufficient"]
    assert found.new.k(State("sql", 100, 100, batch=4)) == 4


def test_a_replay_of_another_epoch_is_left_out_and_named():
    evidence = of_epoch(*rows({"prose": LOSE}))

    found = advise([a_replay({"sql": 1.5}, epoch="e9")], 0, evidence)

    assert [move.place.verdict.segment.class_ for move in found.moves] == ["prose"]
    assert "a replay of epoch e9 was left out" in found.notes


def test_a_cell_rests_after_a_change_whatever_the_replay_says():
    history = [
        Change(NOW - 99 * HOUR_NS, GateTable((), 0)), Change(NOW - 5 * HOUR_NS, GateTable((), 4))
    ]  # fmt: skip

    (move,) = advise([a_replay({"sql": 0.7})], 4, history=history).moves

    assert (move.rule, move.new_k) == ("held", 4)


@pytest.fixture
def files(tmp_path):
    """A store without a decision about sql, and a replay that has one."""
    where, path = f"chdb://{tmp_path}/store", tmp_path / "replay.json"
    with Store.open(where) as store:
        put_blocks(store, {"prose": Kind({0: 1.0, 4: 1.2}, {0: 1.0, 4: 1.6})})
    result.write(path, a_replay({"sql": 1.5}))
    return where, path


def test_without_the_flag_a_replay_never_changes_the_table(files, capsys, tmp_path):
    where, path = files
    table = tmp_path / "table.json"

    _, without, _ = run(capsys, "recommend", "--store", where, "--json")
    _, with_it, _ = run(
        capsys, "recommend", "--store", where, "--accept-replayed", str(path), "--json",
        "--out", str(table),
    )  # fmt: skip
    code, _, refused = run(capsys, "apply", "--store", where, str(table))

    assert not any(cell["class"] == "sql" for cell in json.loads(without)["table"])
    (cell,) = [cell for cell in json.loads(with_it)["table"] if cell["class"] == "sql"]
    assert (cell["k"], cell["basis"]["grade"]) == (4, "replayed")
    assert code in (1, 2)
    assert "1 of its cells are based on a replay" in refused
    assert len(refused.splitlines()) == 1

    code, out, _ = run(
        capsys, "apply", "--store", where, str(table), "--accept-replayed", str(path)
    )
    _, shown, _ = run(capsys, "show", "--store", where)
    again, _, _ = run(capsys, "apply", "--store", where, str(table))  # it is in force now

    assert (code, again) == (0, 0)
    assert "[replayed]" in out
    assert "    replayed; k4 at 1." in shown


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        ({"arms": ("a", "b")}, "a gate needs a draft length"),
        ({"arms": ("k4", "k0")}, "a gate needs a draft length"),
        ({"flags": ("FAILURES",)}, "not valid: FAILURES"),
    ],
)
def test_a_replay_that_says_nothing_about_a_gate_is_refused(files, capsys, spoil, said):
    where, path = files
    replay = result.read(path)
    if "flags" in spoil:
        replay = dataclasses.replace(replay, judged=dataclasses.replace(replay.judged, **spoil))
    else:
        replay = dataclasses.replace(replay, **spoil)
    result.write(path, replay)

    code, _, err = run(capsys, "recommend", "--store", where, "--accept-replayed", str(path))

    assert code in (1, 2)
    assert said in err
    assert len(err.splitlines()) == 1


def test_a_table_of_measured_cells_says_what_they_rest_on():
    found = recommend(of_epoch(*rows({"sql": WIN})), GateTable((), 0), now=NOW)

    (cell,) = found.new.cells
    assert (cell.basis.grade, cell.basis.count) == ("measured", 20)
    assert Cell(cell.k, cell.class_, cell.context, cell.output, cell.batch) == cell
