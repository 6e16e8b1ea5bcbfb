"""The same trace against two real engines: bundled pair, with and without speculation."""

import json
import subprocess
import sys
import urllib.request

import pytest
from ports import own_port
from waiting import PATIENCE_S, until

from specscope.cli import main
from specscope.errors import ExitCode
from specscope.evaluate.verdict.verdict import Action
from specscope.store.connection import Store
from specscope.store.migrate import migrate


def serve(folder, k):
    port = own_port()
    log = (folder / f"engine-{k}.log").open("w")
    process = subprocess.Popen(
        [sys.executable, "-m", "specscope", "engine", "serve", "--port", str(port), "--k", str(k)],
        stdout=log,
        stderr=log,
    )
    return process, f"http://127.0.0.1:{port}"


def up(url):
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2):
            return True
    except OSError:
        return False


@pytest.fixture
def engines(tmp_path):
    running = [serve(tmp_path, k) for k in (0, 4)]
    try:
        for _, url in running:
            until(lambda url=url: up(url))
        yield [url for _, url in running]
    finally:
        for process, _ in running:
            process.terminate()
        for process, _ in running:
            process.wait(PATIENCE_S)


def written(path):
    texts = {"sql": "SELECT id, name FROM users WHERE", "prose": "The function returns a"}
    lines = [
        {
            "offset_s": 0.05 * number, "class": label, "session": f"{label} {number}",
            "prompt": f"{text} {number}", "max_tokens": 16, "sampling": {"temperature": 0},
        }
        for number in range(20)
        for label, text in texts.items()
    ]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


@pytest.mark.slow
def test_a_trace_is_replayed_against_two_engines_and_read_by_the_gate(engines, tmp_path, capsys):
    trace, out = written(tmp_path / "trace.jsonl"), tmp_path / "replay.json"

    code = main(
        ["replay", trace, "--a", f"k0={engines[0]}", "--b", f"k4={engines[1]}", "--parts", "4",
         "--out", str(out), "--json"]
    )  # fmt: skip
    result = json.loads(capsys.readouterr().out)

    assert code in (0, 3)
    assert result == json.loads(out.read_text())
    assert (result["schema"], result["arms"]) == ("specscope.replay/1", ["k0", "k4"])
    assert [v["class"] for v in result["verdicts"]] == ["prose", "sql", None]
    assert [v["requests"] for v in result["verdicts"]] == [20, 20, 40]
    assert (result["outputs_compared"], result["outputs_differing"]) == (40, 0)
    assert {v["grade"] for v in result["verdicts"]} <= {"replayed", "none"}
    assert result["failed"] == {"a": 0, "b": 0}
    assert 0 < result["counted"]["b"]["accepted"] < result["counted"]["b"]["proposed"]
    assert list(tmp_path.glob("*.parts.jsonl")) == []
    for gain in result["verdicts"][0]["gains"]:
        assert gain["a"] > 0
        assert gain["b"] > 0

    store = f"chdb://{tmp_path}/store"
    with Store.open(store) as opened:
        migrate(opened)
    accepted = main(["gate", "recommend", "--store", store, "--accept-replayed", str(out)])
    settled = any(Action(v["action"]).settles for v in result["verdicts"] if v["class"])
    # A machine too busy to send in time raises a flag, and the gate then refuses the replay.
    assert accepted == (ExitCode.FAILED if result["flags"] else ExitCode.of_answer(settled))


@pytest.mark.slow
def test_the_same_texts_come_from_the_same_address_at_any_depth(engines, tmp_path, capsys):
    trace = written(tmp_path / "trace.jsonl")

    code = main(
        ["replay", trace, "--a", engines[1], "--b", engines[1], "--concurrency", "4", "--parts",
         "3", "--json"]
    )  # fmt: skip

    result = json.loads(capsys.readouterr().out)
    assert code in (0, 3)
    assert result["arms"] == ["a", "b"]
    assert result["how"]["concurrency"] == 4
    assert result["outputs_differing"] == 0
    assert result["largest"] <= 4
