"""A replay's verdicts in the store: beside the measured ones, and never among them."""

import dataclasses
import json

import pytest
from replay.answers import a_result
from service.harness import service

from specscope import queries
from specscope.cli import main
from specscope.errors import InputError, ServiceError, UsageError
from specscope.policy.remote import Remote
from specscope.replay import result as results
from specscope.replay.stored import keep, verdict_rows
from specscope.report.collect import collect
from specscope.report.render import to_html, write
from specscope.store.connection import Store
from specscope.store.migrate import migrate

TOKEN = "long-secret"


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with service(f"chdb://{tmp_path_factory.mktemp('kept')}/store", apply_token=TOKEN) as running:
        yield running


@pytest.fixture
def store(tmp_path):
    with Store.open(f"chdb://{tmp_path}/store") as opened:
        migrate(opened)
        yield opened


def test_verdicts_are_kept_once_and_apart_from_those_of_pairs(store, tmp_path):
    result = a_result(1.3)

    assert keep(store, result) == keep(store, result) == 2
    rows = store.rows(queries.replays())[::-1]

    assert [row["class"] for row in rows] == ["sql", ""]
    for row, one in zip(rows, result.judged.verdicts, strict=True):
        speedup = one.verdict.speedups[0]
        assert (row["speedup"], row["low"], row["high"]) == (
            speedup.value, speedup.low, speedup.high,
        )  # fmt: skip
        assert (row["arm"], row["baseline"], row["grade"]) == ("k4", "k0", "replayed")
        assert (row["requests"], row["trace"]) == (one.requests, result.trace_sha256)
        assert row["action"] == one.verdict.action
    assert store.rows(queries.verdicts()) == []
    assert store.rows(queries.verdict_history()) == []

    report = collect(store, title="A week")
    assert [row.requests for row in report.kept_replays] == [row["requests"] for row in rows]
    assert report.segments == []
    assert "<h2>Replays</h2>" in to_html(report)
    write(report, tmp_path / "report")
    assert "| sql | k4 | k0 | set k = 4" in (tmp_path / "report" / "report.md").read_text()


def test_a_result_is_kept_through_the_service_that_owns_the_store(
    running, tmp_path, capsys, monkeypatch
):
    path, result = tmp_path / "replay.json", a_result(0.8)
    results.write(path, result)
    monkeypatch.setenv("SPECSCOPE_STORE", f"http://127.0.0.1:{running.http_port}")

    assert main(["replay", str(path), "--keep"]) == 2
    assert "name its service too" in capsys.readouterr().err
    monkeypatch.setenv("SPECSCOPE_SERVICE", f"127.0.0.1:{running.port}")
    monkeypatch.setenv("SPECSCOPE_APPLY_TOKEN", "wrong")
    assert main(["replay", str(path), "--keep"]) == 1
    capsys.readouterr()
    monkeypatch.setenv("SPECSCOPE_APPLY_TOKEN", TOKEN)
    assert main(["replay", str(path), "--keep", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"kept": 2}

    with Store.open(f"http://127.0.0.1:{running.http_port}") as reader:
        rows = reader.rows(queries.replays())
    assert [row["action"] for row in rows] == ["disable", "disable"]
    assert {row["at"] for row in rows} == {result.created_at}


@pytest.mark.parametrize("text", ["", "{}", "[" * 100_000, '{"schema": "specscope.replay/1"}'])
def test_the_service_refuses_what_is_no_result_and_goes_on(running, text):
    remote = Remote(f"127.0.0.1:{running.port}", TOKEN)

    with pytest.raises(UsageError, match="not the result of a replay"):
        remote.keep(text)

    assert remote.keep(json.dumps(results.as_json(a_result(1.0)))) == 2


def test_nobody_writes_without_the_token(running):
    with pytest.raises(ServiceError):
        Remote(f"127.0.0.1:{running.port}", "wrong").keep("{}")


def test_names_are_bounded():
    with pytest.raises(InputError, match="names of 256 characters"):
        verdict_rows(dataclasses.replace(a_result(1.0), epoch="e" * 257))
