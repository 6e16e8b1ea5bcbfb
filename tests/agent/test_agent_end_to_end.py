"""Ring to service with the real sidecar in its own process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from urllib.request import urlopen

import numpy as np
import pytest
from agent_support import Served, Traffic, a_boot, ring_at
from ports import own_port
from waiting import PATIENCE_S, until

from specscope_agent import telemetry_pb2 as wire
from specscope_hook.recorder import Recorder


@pytest.fixture
def served():
    served = Served()
    yield served
    served.stop()


@pytest.fixture
def rings(tmp_path):
    folder = tmp_path / "rings"
    folder.mkdir()
    return folder


@contextmanager
def sidecar(rings, service=None, **more):
    environment = {name: v for name, v in os.environ.items() if not name.startswith("SPECSCOPE_")}
    environment |= {"SPECSCOPE_RINGS": str(rings), "SPECSCOPE_SPOOL": str(rings.parent / "spool")}
    if service:
        environment["SPECSCOPE_SERVICE"] = service
    command = [sys.executable, "-m", "specscope", "agent"]
    process = subprocess.Popen(command, env=environment | more, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stderr.close()


def test_what_an_engine_recorded_arrives_whole_and_the_ring_is_removed(rings, served):
    ring = ring_at(rings, a_boot())
    traffic = Traffic(Recorder(ring, salt=b"s"), np.random.default_rng(1))

    with sidecar(rings, served.address) as process:
        for index in range(300):
            traffic.round(1 + index % 5)
            time.sleep(0.002)
        ring.close()
        until(lambda: not list(rings.iterdir()))
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0, process.stderr.read()

    service = served.service
    assert len(service.rows("round")) == traffic.rounds
    assert service.rows("loss") == []
    born, over = service.rows("boot")
    assert born["ended_at"] is None
    assert over == born | {"ended_at": over["ended_at"]}
    assert over["ended_at"] > over["started_at"]
    ended = {r["request"]: r for r in service.rows("request") if r["reason"] != "none"}
    assert {request: row["output_tokens"] for request, row in ended.items()} == traffic.outputs


def test_a_sidecar_that_is_killed_at_random_moments_loses_and_doubles_nothing(rings, served):
    ring = ring_at(rings, a_boot())
    traffic = Traffic(Recorder(ring, salt=b"s"), np.random.default_rng(2))

    for life in range(6):
        with sidecar(rings, served.address) as process:
            began = time.monotonic()
            while time.monotonic() < began + 0.8 + 0.17 * life:
                traffic.round(3)
                time.sleep(0.003)
            process.kill()
    with sidecar(rings, served.address):
        ring.close()
        until(lambda: not list(rings.iterdir()))

    rows = served.service.rows("round")
    assert len(rows) == traffic.rounds
    assert len({row["seq"] for row in rows}) == traffic.rounds
    assert served.service.rows("loss") == []


def test_sigterm_drains_what_was_written_last(rings, served):
    ring = ring_at(rings, a_boot())
    traffic = Traffic(Recorder(ring, salt=b"s"), np.random.default_rng(3))

    with sidecar(rings, served.address) as process:
        traffic.round(2)
        until(lambda: served.service.rows("round"))
        for _ in range(50):
            traffic.round(2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0, process.stderr.read()

    assert len(served.service.rows("round")) == traffic.rounds


def test_a_writer_that_was_killed_leaves_an_unknown_tail(rings, served, tmp_path):
    script, here = tmp_path / "writer.py", os.path.dirname(__file__)
    script.write_text(
        "import os, sys, signal, pathlib, numpy as np\n"
        f"sys.path += {[here, os.path.dirname(here)]!r}\n"
        "from agent_support import *\n"
        f"ring = ring_at(pathlib.Path({str(rings)!r}), a_boot())\n"
        "traffic = Traffic(Recorder(ring, salt=b's'), np.random.default_rng(4))\n"
        "for _ in range(20): traffic.round(2)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, str(script)]).returncode == -signal.SIGKILL

    with sidecar(rings, served.address):
        until(lambda: not list(rings.iterdir()))

    assert len(served.service.rows("round")) == 20
    assert [boot["ended_at"] for boot in served.service.rows("boot")] == [None]
    (loss,) = served.service.rows("loss")
    assert (loss["reason"], loss["count"]) == ("tail_unknown", None)


def test_a_hook_that_detached_itself_is_said_once_with_its_reason(rings, served):
    ring = ring_at(rings, a_boot())
    recorder = Recorder(ring, salt=b"s")
    Traffic(recorder, np.random.default_rng(5)).round(1)
    recorder.detach("a planted fault")

    with sidecar(rings, served.address):
        until(lambda: served.service.rows("loss"))
        time.sleep(1.0)

    (loss,) = served.service.rows("loss")
    assert (loss["reason"], loss["detail"]) == ("fault", "a planted fault")


def test_a_ring_that_appears_later_is_drained_too(rings, served):
    first = ring_at(rings, a_boot("r0"))
    Traffic(Recorder(first, salt=b"s"), np.random.default_rng(6)).round(1)

    with sidecar(rings, served.address):
        until(lambda: served.service.rows("round"))
        second = ring_at(rings, a_boot("r1"))
        Traffic(Recorder(second, salt=b"s"), np.random.default_rng(7)).round(1)
        until(lambda: len(served.service.rows("round")) == 2)

    assert {row["replica"] for row in served.service.rows("boot")} == {"r0", "r1"}


def test_a_service_that_goes_and_comes_back_gets_everything(rings, served):
    ring = ring_at(rings, a_boot())
    traffic = Traffic(Recorder(ring, salt=b"s"), np.random.default_rng(8))

    with sidecar(rings, served.address):
        for index in range(200):
            if index == 50:
                served.stop()
            if index == 150:
                served.start()
            traffic.round(2)
            time.sleep(0.01)
        ring.close()
        until(lambda: not list(rings.iterdir()))

    assert len(served.service.rows("round")) == traffic.rounds
    assert served.service.rows("loss") == []


def test_a_policy_reaches_the_control_page_and_survives_a_restart_without_the_service(
    rings, served
):
    ring = ring_at(rings, a_boot())
    json = '{"policy":4,"kind":"table","default_k":2}'
    served.service.policy = wire.Policy(number=4, json=json)

    with sidecar(rings, served.address):
        Traffic(Recorder(ring, salt=b"s"), np.random.default_rng(9)).round(1)
        assert until(ring.control)[1] == json
    ring.close()
    served.stop()
    later = ring_at(rings, a_boot("r1"))
    with sidecar(rings, served.address):
        assert until(later.control)[1] == json


def test_a_policy_that_cannot_be_followed_is_left(rings, served):
    ring = ring_at(rings, a_boot())
    served.service.policy = wire.Policy(number=5, json='{"policy":5,"kind":"guesswork"}')
    Traffic(Recorder(ring, salt=b"s"), np.random.default_rng(10)).round(1)

    with sidecar(rings, served.address):
        until(lambda: served.service.rows("round"))
        time.sleep(1.0)

    assert ring.control() is None


def test_without_a_device_there_is_a_row_that_says_why(rings, served):
    ring = ring_at(rings, a_boot())
    Traffic(Recorder(ring, salt=b"s"), np.random.default_rng(11)).round(1)

    with sidecar(rings, served.address):
        until(lambda: served.service.rows("device"))

    row = served.service.rows("device")[0]
    assert row["replica"] == "r0"
    assert (row["value"] is None) == bool(row["reason"])


def test_its_own_metrics_can_be_scraped(rings, served):
    ring = ring_at(rings, a_boot())
    traffic = Traffic(Recorder(ring, salt=b"s"), np.random.default_rng(12))
    port = own_port()

    with sidecar(rings, served.address, SPECSCOPE_METRICS_PORT=str(port)):
        for _ in range(10):
            traffic.round(2)
        until(lambda: len(served.service.rows("round")) == 10)
        for line in (
            'specscope_agent_rows_total{table="round"} 10.0',
            "specscope_agent_connected 1.0",
            "specscope_agent_rings 1.0",
        ):
            until(lambda line=line: line in scraped(port))


def scraped(port):
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        return answer.read().decode()


@pytest.mark.parametrize(
    ("settings", "said", "code"),
    [
        ({"SPECSCOPE_RINGS": "off"}, "SPECSCOPE_RINGS", 2),
        ({"SPECSCOPE_SERVICES": "x:1"}, "did you mean SPECSCOPE_SERVICE", 2),
        ({"SPECSCOPE_SERVICE": "nowhere"}, "host:port", 2),
        ({"SPECSCOPE_SAMPLE": "7"}, "SPECSCOPE_SAMPLE", 2),
        ({"SPECSCOPE_SPOOL": "/proc/nowhere"}, "spool", 1),
    ],
)
def test_a_wrong_setting_is_one_line_and_its_exit_code(rings, settings, said, code):
    with sidecar(rings, **settings) as process:
        assert process.wait(PATIENCE_S) == code
        lines = process.stderr.read().splitlines()

    assert len(lines) == 1
    assert said in lines[0]


def test_of_two_sidecars_on_the_same_spool_one_is_refused(rings):
    with sidecar(rings) as one, sidecar(rings) as other:
        refused = until(lambda: next((s for s in (one, other) if s.poll() is not None), None))

        assert refused.returncode == 1
        assert "another agent" in refused.stderr.read()
        assert (other if refused is one else one).poll() is None
