"""The demonstration as a user runs it: a report at its end, and nothing behind it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gate.screens import answer, answers, answers_of_the_panel
from waiting import PATIENCE_S, until

from specscope.store.connection import Store

COMMAND = [sys.executable, "-m", "specscope", "demo", "--quick"]
CLASSES = {"json", "prose", "python", "sql"}


def rings_of(run):
    """What its process keeps in shared memory."""
    return list(Path("/dev/shm").glob(f"specscope-demo-{run.pid}"))


def processes_of(folder):
    """Processes whose environment names the folder."""
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if str(folder).encode() in environ.read_bytes():
                found.append(int(environ.parent.name))
        except OSError:
            continue
    return set(found) - {os.getpid()}


def started(out, *words):
    return subprocess.Popen(
        [*COMMAND, "--out", str(out), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background jobs, of which these tests may be one, ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.mark.slow
def test_a_quick_run_ends_with_a_verdict_for_every_kind_of_text(tmp_path):
    run = started(tmp_path, "--seed", "5")
    said, progress = run.communicate()

    assert run.returncode == 0, progress[-2000:]
    assert "replicate 1 of" in progress
    assert str(tmp_path / "report.html") in said.replace("\n", "")
    report = json.loads((tmp_path / "report.json").read_text())
    assert {segment["label"] for segment in report["segments"]} == CLASSES
    assert len(report["segments"]) == 2 * len(CLASSES)
    for segment in report["segments"]:
        assert [arm["k"] for arm in segment["arms"]] == [0, 4]
        assert segment["arms"][0]["tokens_per_round"] == 1.0
        assert segment["action"] not in ("not_comparable", "no_data", "collect_baseline")
    accounting = report["accounting"]
    assert accounting["recorded"] == accounting["stored"] + accounting["lost"] > 1000
    assert report["losses"] == []
    assert report["outputs_compared"] > 100
    assert report["outputs_differing"] == 0
    assert rings_of(run) == []
    assert processes_of(tmp_path) == set()
    with Store.open(f"chdb://{tmp_path}/store") as store:
        (rounds,) = store.rows("SELECT sum(emitted) AS tokens FROM round FINAL")
        (requests,) = store.rows("SELECT sum(output_tokens) AS tokens FROM request FINAL")
    assert rounds == requests
    assert not (tmp_path / "spool").exists()
    where = f"chdb://{tmp_path}/store"
    written = list(map(answer, report["segments"]))
    assert answers(where) == [written, written, written]
    assert sorted(map(str, answers_of_the_panel(where, judged=False))) == sorted(map(str, written))


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_no_process_and_no_ring_behind(tmp_path, how):
    run = started(tmp_path)
    for line in run.stderr:
        if "measuring" in line:
            break
    assert rings_of(run)
    time.sleep(3)

    run.send_signal(how)
    _, said = run.communicate(timeout=PATIENCE_S)

    assert run.returncode == 1
    assert said.strip().splitlines()[-1] == "specscope demo: interrupted"
    assert processes_of(tmp_path) == set()
    assert rings_of(run) == []


@pytest.mark.slow
def test_what_a_killed_one_leaves_in_memory_is_named_and_swept_by_the_doctor(tmp_path):
    run = started(tmp_path)
    for line in run.stderr:
        if "measuring" in line:
            break
    (folder,) = rings_of(run)
    run.kill()
    run.communicate()
    until(lambda: processes_of(tmp_path) == set())

    said = doctor()
    left = list(folder.iterdir())
    swept = doctor("--sweep")

    assert left
    assert f"rings in {folder}" in said
    assert str(folder) not in swept
    assert rings_of(run) == []


def doctor(*words):
    command = [sys.executable, "-m", "specscope", "doctor", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
