"""What `gate plan` says about draft lengths that nobody ran, against a known truth."""

import dataclasses
import json
import time

import pytest
from evaluate.block_rows import Kind, rows
from gate.test_gate_commands import put_rows, run

from specscope.cli import main
from specscope.evaluate.verdict.untried import draft_time
from specscope.store.connection import Store

HOUR = 3600 * 10**9
KEPT = {"sql": 0.8, "prose": 0.1}  # chance of every position


def tokens(p, k):
    return sum(p**j for j in range(k + 1))


def cost(k):
    return 1.0 + 0.1 * k + (0.05 if k else 0.0)


def stored(where, tried):
    kinds = {
        name: Kind({k: tokens(p, k) for k in tried}, {k: cost(k) for k in tried})
        for name, p in KEPT.items()
    }
    times, parts = rows(kinds, noise=0.01, drift=0.05)
    exact = [
        dataclasses.replace(
            part,
            tested=tuple(
                round(part.request_rounds * KEPT[part.class_] ** j) for j in range(part.k)
            ),
            kept=tuple(
                round(part.request_rounds * KEPT[part.class_] ** (j + 1)) for j in range(part.k)
            ),
        )
        for part in parts
    ]
    with Store.open(where) as store:
        put_rows(store, times, exact, time.time_ns() - HOUR)


def planned(capsys, where):
    _, out, _ = run(capsys, "plan", "--store", where, "--json")
    _, text, _ = run(capsys, "plan", "--store", where)
    return json.loads(out)["untried"], text


def test_a_plan_bounds_the_lengths_that_nobody_ran(tmp_path, capsys):
    where = f"chdb://{tmp_path}/store"
    stored(where, (0, 2, 4))

    found, text = planned(capsys, where)
    _, out, _ = run(capsys, "recommend", "--store", where, "--json")

    at = {(one["segment"].split()[0], one["k"]): one for one in found}
    assert sorted(at) == [(name, k) for name in ("prose", "sql") for k in (1, 3, 5, 6)]
    for (name, k), one in at.items():
        truth = tokens(KEPT[name], k) / cost(k)
        assert one["at_best"] >= 0.97 * truth
        if k < 4:  # acceptance up to there was seen, though short drafts may meet easier text
            assert one["at_best"] <= 1.2 * truth
    assert {at["prose", k]["worth"] for k in (1, 3, 5, 6)} == {"cannot_pay"}
    assert at["sql", 6]["worth"] == "worth_exploring"
    assert at["sql", 1]["worth"] == "below_best"
    (line,) = [line for line in text.splitlines() if "untried, with upper limits" in line]
    assert f"k = 6 {at['sql', 6]['at_best']:.2f}x" in line
    assert "in 2 segments" not in line
    assert {move["new_k"] for move in json.loads(out)["moves"]} <= {0, 2, 4}
    assert json.loads(out)["untried"] == found
    _, advised, _ = run(capsys, "recommend", "--store", where)
    main(["report", "--store", where, "--out", str(tmp_path / "report"), "--json"])
    report = json.loads(capsys.readouterr().out)
    rows_ = {(one["segment"].split()[0], one["k"]): one["worth"] for one in report["untried"]}
    assert rows_ == {key: one["worth"] for key, one in at.items()}
    worth = f"k = 6 {at['sql', 6]['at_best']:.2f}x"
    for view in (advised, *((tmp_path / "report" / f"report.{kind}").read_text()
                            for kind in ("md", "html"))):  # fmt: skip
        assert worth in view
        assert not any(
            line.startswith("prose")
            for line in view.splitlines()
            if "untried, with upper limits" in line
        )


def test_without_the_parts_of_a_round_nothing_is_bounded(tmp_path, capsys):
    where = f"chdb://{tmp_path}/store"
    times, parts = rows({"sql": Kind({0: 1.0, 4: 3.0}, {0: 1.0, 4: 1.5})})
    began = time.time_ns() - HOUR
    with Store.open(where) as store:
        put_rows(store, [dataclasses.replace(t, draft_us=None) for t in times], parts, began)

    found, text = planned(capsys, where)

    assert found == []
    assert "not tried" not in text


def test_one_length_alone_bounds_its_draft_from_below():
    assert draft_time({4: 400.0}, 2) == 200.0
    assert draft_time({4: 400.0}, 6) == 400.0
    assert draft_time({2: 300.0, 4: 400.0}, 6) == pytest.approx(500.0)
