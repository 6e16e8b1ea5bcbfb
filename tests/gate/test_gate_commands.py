"""The gate's commands against a real store."""

import dataclasses
import json
import time

import pyarrow as pa
import pytest
from evaluate.block_rows import Kind, rows

from specscope.cli import main
from specscope.errors import UsageError
from specscope.evaluate.statistics.quantiles import bin_of
from specscope.gate import calibration
from specscope.gate.arms import arms_of_lengths
from specscope.policy.rollback import rolled_back
from specscope.policy.stored import (
    HoldOut,
    first_pair,
    next_table,
    read_policies,
    write_policy,
)
from specscope.policy.table import Cell, GateTable
from specscope.store.connection import Store
from specscope.store.migrate import migrate
from specscope_hook.blocks import Blocks
from specscope_hook.gate import Gate

COST = {0: 1.0, 2: 1.3, 4: 1.6}
WIN = Kind({0: 1.0, 2: 2.2, 4: 3.6}, COST)
LOSE = Kind({0: 1.0, 2: 1.15, 4: 1.2}, COST)
NOW = 1_800_000_000 * 10**9


def put_blocks(store, kinds, tpot_ms=None, hours_ago=1):
    times, parts = rows(kinds)
    if tpot_ms is not None:
        slow = {"tpot_bins": (bin_of(tpot_ms),), "tpot_counts": (8,)}
        times = [dataclasses.replace(t, **slow) for t in times]
    put_rows(store, times, parts, time.time_ns() - hours_ago * 3600 * 10**9)


def put_rows(store, times, parts, began=0):
    """Blocks and their parts, each `began` ns later than it says."""
    migrate(store)
    for table, values in (("block_time", times), ("block_part", parts)):
        plain = []
        for row in values:
            row = {
                k: float(v) if k.endswith("_us") and v is not None else v
                for k, v in dataclasses.asdict(row).items()
            }
            if "first_at" in row:
                row["first_at"] += began
                row["last_at"] += began
            if "class_" in row:
                row["class"] = row.pop("class_")
            plain.append({**row, "version": time.time_ns()})
        store.insert(table, typed(store, table, plain))


def typed(store, table, plain):
    """Rows with the columns and types that the store has."""
    empty = store.query(f"SELECT * FROM {table} LIMIT 0")
    columns = {
        name: pa.array([row.get(name) for row in plain]).cast(kind, safe=False)
        for name, kind in zip(empty.schema.names, empty.schema.types, strict=True)
    }
    return pa.table(columns)


@pytest.fixture
def dsn(tmp_path):
    where = f"chdb://{tmp_path}/store"
    with Store.open(where) as store:
        put_blocks(store, {"sql": WIN, "prose": LOSE})
    return where


def run(capsys, *words):
    code = main(["gate", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_recommend_diff_apply_show_and_rollback(dsn, capsys, tmp_path):
    table = tmp_path / "table.json"

    code, out, _ = run(capsys, "recommend", "--store", dsn, "--default-k", "4", "--out", str(table))
    assert code == 0
    assert "prose 0-1k 65-256 at load 5-16: disable, k 4 -> 0" in out
    assert "sql 0-1k 65-256 at load 5-16: keep, k = 4" in out
    assert "these classes ran alone" in out
    assert "[measured, medium confidence]" in out

    _, out, _ = run(capsys, "diff", "--store", dsn, "--default-k", "4", str(table))
    assert "+ prose" in out

    code, out, _ = run(capsys, "apply", "--store", dsn, str(table), "--note", "first")
    assert code == 0
    assert "policy 1 is in force" in out

    _, out, _ = run(capsys, "show", "--store", dsn)
    assert out.splitlines()[0] == "policy 1 (table): first"
    assert "otherwise: k = 4" in out

    _, out, _ = run(capsys, "apply", "--store", dsn, str(table))
    assert "no difference: nothing to apply" in out

    other = tmp_path / "other.json"
    other.write_text(json.dumps(GateTable((Cell(1, "sql"),), 0).as_json()))
    run(capsys, "apply", "--store", dsn, str(other))
    _, out, _ = run(capsys, "rollback", "--store", dsn)
    assert "policy 3 puts the table of policy 1 in force" in out
    _, out, _ = run(capsys, "show", "--store", dsn, "--json")
    assert json.loads(out)["table"] == json.loads(table.read_text())["table"]


def test_a_hold_out_that_may_cost_over_one_percent_of_capacity_is_refused(dsn, capsys):
    words = ["apply", "--store", dsn, "--default-k", "4", "--json"]

    code, _, refused = run(capsys, *words, "--hold-out", "50%")
    allowed, small, _ = run(capsys, *words, "--hold-out", "1.5%", "--dry-run")
    agreed, large, _ = run(capsys, *words, "--hold-out", "50%", "--over-budget", "--dry-run")

    assert (code, allowed, agreed) == (2, 0, 0)
    assert "may cost over 1% of capacity, 1.8% may not" in refused  # sql may run at 2.27
    assert (json.loads(small)["share"], json.loads(large)["share"]) == (0.015, 0.5)


def test_a_change_of_a_cell_is_held_while_it_rests(dsn, capsys, tmp_path):
    for k in (0, 4):
        table = tmp_path / f"{k}.json"
        table.write_text(json.dumps(GateTable((), k).as_json()))
        run(capsys, "apply", "--store", dsn, str(table))

    _, out, _ = run(capsys, "recommend", "--store", dsn)

    assert "prose 0-1k 65-256 at load 5-16: held, k = 4 (would disable to k = 0" in out


def test_a_class_that_waits_too_long_in_every_arm_is_routed(tmp_path, capsys):
    where = f"chdb://{tmp_path}/store"
    with Store.open(where) as store:
        put_blocks(store, {"sql": WIN}, tpot_ms=100.0)

    _, free, _ = run(capsys, "recommend", "--store", where)
    _, bound, _ = run(capsys, "recommend", "--store", where, "--tpot-ms", "sql=40")

    assert "enable, k 0 -> 4" in free
    assert "sql 0-1k 65-256 at load 5-16: route, k = 0" in bound
    assert "route sql: to its own pool" in bound


def test_evidence_is_that_of_the_last_week_unless_more_is_asked_for(tmp_path, capsys):
    where = f"chdb://{tmp_path}/store"
    with Store.open(where) as store:
        put_blocks(store, {"sql": WIN}, hours_ago=24 * 20)

    _, week, _ = run(capsys, "recommend", "--store", where)
    _, month, _ = run(capsys, "recommend", "--store", where, "--since", "4w", "--json")

    assert "there is no recommendation" in week
    (move,) = json.loads(month)["moves"]
    assert (move["class"], move["rule"]) == ("sql", "enable")
    assert move["context"] == "0-1k"  # the parts came along

    with pytest.raises(SystemExit) as usage:
        main(["gate", "recommend", "--store", where, "--since", "soon"])
    assert usage.value.code == 2


def test_export_and_plan_and_json(dsn, capsys):
    _, out, _ = run(capsys, "export", "--store", dsn, "--default-k", "4", "vllm", "--json")
    exported = json.loads(out)
    assert exported["settings"]["num_speculative_tokens_per_batch_size"][0][0] == 1
    assert 0 < exported["regret"] < 1
    assert exported["router"][0] == {"class": "prose", "pool": "target_only"}

    code, out, _ = run(capsys, "plan", "--store", dsn)
    assert code == 0
    assert "enough" in out

    code, out, _ = run(capsys, "recommend", "--store", dsn, "--json")
    assert json.loads(out)["schema"] == "specscope.gate/1"


def test_a_plan_asks_for_the_pairs_that_the_gate_will_ask_for(tmp_path, capsys):
    where = f"chdb://{tmp_path}/store"
    slight = Kind({0: 1.0, 4: 1.656}, {0: 1.0, 4: 1.6})  # open traffic is looked at while it grows
    with Store.open(where) as store:
        put_blocks(store, {"sql": slight})
        row = {"policy": 7, "kind": "blocks", "table": json.dumps({"policy": 7}), "note": ""}
        row |= {"created_at": NOW, "block_ms": 1000, "burn_in_ms": 0, "version": 1}
        store.insert("policy", typed(store, "policy", [row]))

    _, out, _ = run(capsys, "recommend", "--store", where, "--json")
    _, planned, _ = run(capsys, "plan", "--store", where, "--json")

    (move,), (step,) = json.loads(out)["moves"], json.loads(planned)["steps"]
    assert move["rule"] == "insufficient"
    assert step["action"] == "inconclusive"
    assert step["needed"] > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show", "--store", "chdb:///nowhere/at/all"], "there is no store"),
        (["show"], "no store"),
        (["rollback"], "no table was ever applied"),
        (["apply", "missing.json"], "is not a table"),
    ],
)
def test_what_cannot_be_done_is_one_line(dsn, capsys, words, said, monkeypatch):
    if words[0] in ("rollback", "apply"):
        monkeypatch.setenv("SPECSCOPE_STORE", dsn)
    else:
        monkeypatch.delenv("SPECSCOPE_STORE", raising=False)

    code, _, err = run(capsys, *words)

    assert code in (1, 2)
    assert said in err
    assert len(err.splitlines()) == 1


FILES = {
    "misspelt.json": '{"table": [{"klass": "sql", "k": 2}], "default_k": 0}',
    "another.json": '{"schema": "specscope.gate/7", "table": [], "default_k": 0}',
    "list.json": "[1]", "empty.json": "{}", "report.json": '{"schema": "specscope.report/1"}',
    "cut.json": '{"table": [', "low.json": '{"table": [], "default_k": -1}',
    "turned.json": '{"table": [{"k": 4, "batch": [5, 2]}]}', "null.json": '{"table": null}',
    "nan.json": '{"table": [{"k": 4, "batch": [NaN, 2]}]}', "deep.json": "[" * 100_000,
}  # fmt: skip


@pytest.fixture(scope="module")
def in_force(tmp_path_factory):
    """A folder of files that are no tables, and a store with a table in force that stays."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "folder").mkdir()
    (folder / "binary.json").write_bytes(b"\xff\xfe")
    for file, text in FILES.items():
        (folder / file).write_text(text)
    where = f"chdb://{folder}/store"
    with Store.open(where) as store:
        migrate(store)
        write_policy(store, next_table([], GateTable((), 4), now=NOW), "", NOW)
    return where, folder


@pytest.mark.parametrize("name", [*FILES, "binary.json", "missing.json", "folder"])
@pytest.mark.parametrize("verb", ["apply", "diff"])
def test_a_file_that_is_no_table_is_one_line_and_changes_nothing(in_force, capsys, verb, name):
    where, folder = in_force

    code, out, err = run(capsys, verb, "--store", where, str(folder / name))

    assert code in (1, 2)
    assert out == ""
    assert len(err.splitlines()) == 1
    assert f"{name} is not a table" in err
    with Store.open(where) as store:
        assert [policy.table.default_k for policy in read_policies(store)] == [4]


@pytest.fixture(scope="module")
def untouched(tmp_path_factory):
    """A store with evidence and no policy, which no test here may change."""
    where = f"chdb://{tmp_path_factory.mktemp('untouched')}/store"
    with Store.open(where) as store:
        put_blocks(store, {"sql": WIN, "prose": LOSE})
    return where


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["plan", "--crossover", "r0", "r0"], "no replica on two sides"),
        (["plan", "--crossover", "r0", "r1", "--hours", "1e8"], "more than 100000 blocks"),
        (["plan", "--crossover", "r0", "r1", "--block-s", "1.5"], "whole seconds"),
        (["plan", "--crossover", "r0", "r1", "--address", "r9=h:1"], "r9: this replica"),
        (["plan", "--crossover", "r0", "r1", "--out", "/proc/none"], "cannot write to /proc/none"),
        (["apply", "--hold-out", "1%", "--block-s", "1e-4"], "a pair takes a second"),
        (["apply", "--hold-out", "1%", "--block-s", "1e7"], "a block a week at most"),
        (["calibrate", "--k", "0,4", "--minutes", "1e8", "--approve"], "longer than a year"),
        (["calibrate", "--k", "0,4", "--minutes", "3", "--approve"], "hold no pair of 2 blocks"),
        (["calibrate", "--k", "0,4", "--minutes", "30", "--approve"], "--default-k"),
        (
            ["calibrate", "--k", "0,4", "--minutes", "30", "--approve", "--default-k", "4",
             "--block-s", "0.1"],
            "a pair takes a second",
        ),
        (["calibrate", "--crossover", "r0", "r1", "--minutes", "30", "--approve"], "--default-k"),
        (["rollback"], "no table was ever applied"),
        (["recommend", "--out", "/proc/none/x"], "cannot write"),
        (["recommend", "--accept-replayed", "/proc/none"], "/proc/none"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_in_a_line_before_anything_changes(untouched, capsys, words, said):
    code, out, err = run(capsys, words[0], "--store", untouched, *words[1:])

    assert code in (1, 2)
    assert out == ""
    assert len(err.splitlines()) == 1
    assert said in err
    with Store.open(untouched) as store:
        assert read_policies(store) == []


@pytest.mark.parametrize(
    "words",
    [
        ["plan", "--replicas", "0"], ["plan", "--share", "101%"], ["plan", "--block-s", "nan"],
        ["recommend", "--default-k", "-1"], ["recommend", "--default-k", "999"],
        ["recommend", "--tpot-ms", "sql"], ["export", "vllm", "--largest-batch", "0"],
        ["plan", "--crossover", "a;b", "r1"], ["plan", "--crossover", "", "r1"],
        ["plan", "--crossover", "r0", "r1", "--address", "r0=h:1;b"],
        ["calibrate", "--k", "4", "--minutes", "9"], ["calibrate", "--k", "0,4"],
    ],
)  # fmt: skip
def test_wrong_words_are_wrong_usage(untouched, capsys, words):
    with pytest.raises(SystemExit) as usage:
        main(["gate", words[0], "--store", untouched, *words[1:]])

    assert usage.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_router_and_hooks_number_the_same_blocks_where_nobody_says_how_long(untouched, capsys):
    _, planned, _ = run(capsys, "plan", "--crossover", "r0", "r1", "--json")
    _, window, _ = run(
        capsys,
        "calibrate",
        "--store",
        untouched,
        "--crossover",
        "r0",
        "r1",
        "--minutes",
        "60",
        "--json",
    )

    assert json.loads(planned)["block_s"] == json.loads(window)["swap"]["block_s"] == 240


def test_an_allowance_of_a_class_that_nobody_serves_is_named(untouched, capsys):
    _, out, _ = run(capsys, "recommend", "--store", untouched, "--tpot-ms", "sqll=40")

    assert "nothing was compared with the latency limit of sqll: no block served that class" in out


def test_an_empty_store_has_nothing_to_say(tmp_path, capsys):
    where = f"chdb://{tmp_path}/store"
    with Store.open(where) as store:
        migrate(store)

    for words, answer, said in (
        (["show"], 0, "no table is in force"),
        (["recommend"], 3, "there is no recommendation"),
        (["plan"], 0, "there is no data for a plan"),
    ):
        code, out, _ = run(capsys, *words, "--store", where)
        assert code == answer
        assert said in out
    code, _, err = run(capsys, "export", "--store", where, "vllm")
    assert code == 2
    assert "--default-k" in err
    code, out, _ = run(capsys, "export", "--store", where, "vllm", "--default-k", "3")
    assert code == 3
    assert '"num_speculative_tokens": 3' in out
    assert "no experiment ran" in out


def test_a_hold_out_goes_on_comparing_and_keeps_the_guardrail(tmp_path):
    table = GateTable((Cell(4, "sql"),), 0)
    hold_out = HoldOut(share=0.02, block_s=120, burn_in_s=30)
    with Store.open(f"chdb://{tmp_path}/store") as store:
        migrate(store)
        body = next_table(read_policies(store), table, now=NOW)
        write_policy(store, {**body, "guardrail": {"gap_p95_ms": 60}}, "", NOW)

        body = next_table(read_policies(store), table, now=NOW, hold_out=hold_out)

    gate = Gate.from_policy(json.dumps(body))
    assert body["policy"] == 2
    assert body["guardrail"] == {"gap_p95_ms": 60}
    assert (gate.kind, gate.share, gate.block_ms) == ("blocks", 0.02, 120_000)
    begins = gate.first_pair * 2 * 120 * 10**9
    assert NOW + 240 * 10**9 <= begins < NOW + 3 * 240 * 10**9


def test_pairs_are_numbered_as_the_hook_numbers_them():
    blocks = Blocks.__new__(Blocks)
    body = next_table([], GateTable(), now=NOW, hold_out=HoldOut(1.0, 60, 15, ("k0", "k2", "k4")))
    gate = Gate.from_policy(json.dumps(body))

    due = blocks._due_ns(gate)

    assert due == first_pair(NOW, 60, 3) * 180 * 10**9
    assert due - NOW >= 2 * 60 * 10**9


def test_a_policy_that_no_hook_can_read_is_named_and_was_never_in_force(tmp_path, capsys):
    where = f"chdb://{tmp_path}/store"
    with Store.open(where) as store:
        migrate(store)
        for k in (2, 4):
            write_policy(
                store, next_table(read_policies(store), GateTable((), k), now=NOW), "", NOW
            )
        row = {"policy": 3, "kind": "table", "note": "", "created_at": NOW, "version": 1}
        row |= {"table": json.dumps({"policy": 3, "table": [{"k": -4}]})}
        store.insert("policy", typed(store, "policy", [row]))

    _, shown, _ = run(capsys, "show", "--store", where)
    _, advised, _ = run(capsys, "recommend", "--store", where)
    code, rolled, _ = run(capsys, "rollback", "--store", where)
    _, after, _ = run(capsys, "show", "--store", where)

    said = "policy 3 cannot be read (k is -4, not within 0 and 255): engines keep the one before"
    assert shown.splitlines()[0] == "policy 2 (table): no note"
    assert said in shown
    assert said in advised
    line = "policy 4 puts the table of policy 1 in force within seconds"
    assert (code, rolled.splitlines()[-1]) == (0, line)
    assert after == "policy 4 (table): no note\notherwise: k = 2\n"


def test_a_rollback_needs_something_to_go_back_to(tmp_path):
    with Store.open(f"chdb://{tmp_path}/store") as store:
        migrate(store)
        write_policy(store, next_table([], GateTable(), now=NOW), "", NOW)

        with pytest.raises(UsageError, match="no earlier table"):
            rolled_back(read_policies(store), now=NOW)


def test_a_calibration_carries_its_end_and_the_table_that_holds_after_it(tmp_path):
    table = GateTable((Cell(4, "sql"),), 1)
    with Store.open(f"chdb://{tmp_path}/store") as store:
        migrate(store)
        write_policy(store, next_table([], table, now=NOW), "", NOW)
        window = calibration.Window(arms_of_lengths((0, 2, 4)), minutes=60, block_s=60)

        number = calibration.start(store, window, now=NOW, author="ada")
        policies = read_policies(store)

    experiment = policies[-1]
    gate = Gate.from_policy(dict(experiment.body))
    begins, ends = experiment.span
    assert (number, window.pairs, experiment.author) == (2, 20, "ada")
    assert [p.kind for p in policies] == ["table", "blocks"]
    assert experiment.body["share"] == 1.0
    assert [arm.name for arm in gate.arms] == ["k0", "k2", "k4"]
    assert ends - begins == 20 * 3 * 60 * 10**9
    assert gate.over(gate.last_pair + 1)
    assert gate.ended().table == gate.table
    assert experiment.runs(ends - 1)
    assert not experiment.runs(ends)
    assert experiment.table_at(ends) == table


def test_a_calibration_that_is_stopped_puts_its_table_back(tmp_path):
    table = GateTable((Cell(4, "sql"),), 1)
    with Store.open(f"chdb://{tmp_path}/store") as store:
        migrate(store)
        write_policy(store, next_table([], table, now=NOW), "", NOW)
        window = calibration.Window(arms_of_lengths((0, 4)), minutes=60, block_s=60)
        number = calibration.start(store, window, now=NOW)

        calibration.stop(store, number, clock=lambda: NOW + 1)
        policies = read_policies(store)

    assert [p.kind for p in policies] == ["table", "blocks", "table"]
    assert policies[-1].stops == number
    assert policies[-1].table == table


def test_a_calibration_without_a_table_before_it_turns_nothing_off(tmp_path):
    window = calibration.Window(arms_of_lengths((0, 4)), minutes=1, block_s=10)

    with Store.open(f"chdb://{tmp_path}/store") as store:
        migrate(store)
        with pytest.raises(UsageError, match="--default-k"):
            calibration.start(store, window, now=NOW)
        refused = read_policies(store)
        calibration.start(store, window, now=NOW, default_k=4)
        (policy,) = read_policies(store)

    assert refused == []
    assert policy.table == GateTable((), 4)
    assert policy.table_at(policy.span[1]) == GateTable((), 4)
