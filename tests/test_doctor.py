"""The doctor: what it looks at, what it names, and how it ends."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from specscope.cli import main
from specscope.doctor.check import SEVERE, STATES
from specscope_hook.boot import new_boot
from specscope_hook.recorder import Recorder
from specscope_hook.ring import Ring
from specscope_hook.settings import HookSettings

BOOT = new_boot(HookSettings(None, "r0"), engine="x", engine_version="1", target="x")


@pytest.fixture
def rings(tmp_path, monkeypatch):
    folder = tmp_path / "rings"
    folder.mkdir(mode=0o770)
    for name in ("SPECSCOPE_SERVICE", "SPECSCOPE_STORE", "SPECSCOPE_SPOOL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPECSCOPE_RINGS", str(folder))
    return folder


def examined(capsys):
    code = main(["doctor", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert {check["state"] for check in found} <= set(STATES)
    assert all(check["remedy"] for check in found if check["state"] in (*SEVERE, "missing"))
    return code, {check["what"]: check["state"] for check in found}


def test_a_machine_without_anything_is_no_error(rings, capsys):
    code, found = examined(capsys)

    assert code == 0
    assert found["python"] == "ok"


def test_a_dead_service_and_a_living_one(rings, capsys, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setenv("SPECSCOPE_SERVICE", f"127.0.0.1:{port}")
        alive = examined(capsys)
    dead = examined(capsys)

    assert (alive[0], alive[1][f"service 127.0.0.1:{port}"]) == (0, "ok")
    assert (dead[0], dead[1][f"service 127.0.0.1:{port}"]) == (1, "failed")


def test_a_hook_that_detached_is_named_with_its_reason(rings, capsys):
    good = Ring.create(rings / "good.ring", BOOT, 4096)
    bad = Ring.create(rings / "bad.ring", BOOT, 4096)
    before = examined(capsys)
    bad.fault("planted")
    after = examined(capsys)

    assert (before[0], before[1]["hook bad"]) == (0, "ok")
    assert (after[0], after[1]["hook bad"], after[1]["hook good"]) == (1, "failed", "ok")
    good.close()
    bad.close()


def test_requests_without_a_class_are_counted(rings, capsys):
    states = []
    for labels in (("sql", "chat"), ("sql", "")):
        ring = Ring.create(rings / f"{len(states)}.ring", BOOT, 1 << 16)
        recorder = Recorder(ring, salt="x")
        for number, label in enumerate(labels):
            class_ = recorder.class_id(label)
            recorder.admitted(request=number + 1, class_=class_, prompt_tokens=3)
        recorder.flush()
        states.append(examined(capsys)[1][f"classes of {len(states)}"])
        ring.close()

    assert states == ["ok", "warning"]


def test_logs_that_the_sidecar_follows_are_looked_at(rings, tmp_path, capsys, monkeypatch):
    log = Path(__file__).parent / "data" / "llamacpp" / "ngram.log"
    whole, absent = tmp_path / "whole.log", tmp_path / "absent.log"
    whole.write_bytes(log.read_bytes())
    quiet, closed = tmp_path / "quiet.log", tmp_path / "closed.log"
    quiet.write_text(log.read_text().replace("verbosity = 4", "verbosity = 3"))
    closed.mkdir()
    logs = {"a": whole, "b": absent, "c": quiet, "d": closed}
    sources = ",".join(f"{name}=llama.cpp:{path}" for name, path in logs.items())
    monkeypatch.setenv("SPECSCOPE_SOURCES", sources)

    code, found = examined(capsys)

    states = [found[f"llama.cpp log {path}"] for path in logs.values()]
    assert (code, states) == (1, ["ok", "missing", "failed", "failed"])


def test_a_source_that_cannot_be_read_is_severe(rings, capsys, monkeypatch):
    monkeypatch.setenv("SPECSCOPE_SOURCES", "lama.cpp:/server.log")

    code, found = examined(capsys)

    assert (code, found["setting SPECSCOPE_SOURCES"]) == (1, "refused")


def test_folders_of_spool_and_store_are_looked_at(rings, tmp_path, capsys, monkeypatch):
    spool, store = tmp_path / "spool", tmp_path / "store"
    spool.mkdir(mode=0o755)
    store.mkdir()
    monkeypatch.setenv("SPECSCOPE_SPOOL", str(spool))
    monkeypatch.setenv("SPECSCOPE_STORE", f"chdb://{store}")

    code, found = examined(capsys)

    assert code == 0
    assert found[f"spool {spool}"] == "warning"
    assert found[f"disk of {store}"] == "ok"


def test_a_setting_that_nobody_knows_is_severe(rings, capsys, monkeypatch):
    monkeypatch.setenv("SPECSCOPE_SERVCE", "x")

    assert examined(capsys)[0] == 1
