"""The loop survives whatever one ring, policy or thread does, and says so."""

import threading
import urllib.error
import urllib.request

import pytest
from agent_support import Traffic, a_boot, ring_at

from specscope_agent import probes
from specscope_agent.agent import Agent
from specscope_agent.health import EXIT_S, EXIT_STATUS, FAILING_S, STUCK_S, Health, Watchdog
from specscope_agent.settings import AgentSettings
from specscope_hook.recorder import Recorder


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def agent(tmp_path):
    (tmp_path / "rings").mkdir()
    made = Agent(AgentSettings(rings=tmp_path / "rings", spool=tmp_path / "spool"))
    yield made
    made.close()


def status(url):
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_stage_that_does_not_come_back_is_named_after_a_while(clock):
    health = Health(clock)
    health.doing("drain a.ring")

    clock.now += STUCK_S - 1
    before = health.stuck()
    clock.now += 2

    assert before == []
    assert "drain a.ring" in health.stuck()[0]


def test_a_stage_that_fails_for_a_minute_is_a_problem_and_no_reason_to_restart(clock):
    health = Health(clock)
    for _ in range(int(FAILING_S) + 1):
        health.doing("policy")
        health.failed("policy", "no")
        clock.now += 1.0

    assert "policy" in health.problems()[0]
    assert health.stuck() == []
    health.worked("policy")
    assert health.problems() == []


def test_a_thread_that_died_is_seen(clock):
    thread = threading.Thread(target=lambda: None)
    health = Health(clock, {"uplink": thread})
    before = health.stuck()
    thread.start()
    thread.join()

    assert before == []
    assert "uplink" in health.stuck()[0]


def test_the_watchdog_ends_a_process_that_is_stuck_for_good(clock, caplog):
    ended = []
    health = Health(clock)
    health.doing("rings")
    clock.now += STUCK_S + 1
    watchdog = Watchdog(health, ended.append)

    watchdog.look(1.0)
    assert ended == []
    watchdog.look(EXIT_S + 1)

    assert ended == [EXIT_STATUS]


def test_probes_answer_with_the_truth(clock, agent):
    health = Health(clock)
    server = probes.serve("127.0.0.1", 0, agent.metrics.registry, health)
    url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        health.doing("rings")
        well = {path: status(url + path)[0] for path in ("/health", "/live", "/metrics", "/x")}
        health.failed("rings", "no")
        clock.now += FAILING_S
        health.doing("rings")
        failing = {path: status(url + path) for path in ("/health", "/live")}
        clock.now += STUCK_S + 1
        stuck = {path: status(url + path)[0] for path in ("/health", "/live")}
    finally:
        server.shutdown()
        server.server_close()

    assert well == {"/health": 200, "/live": 200, "/metrics": 200, "/x": 404}
    assert failing["/health"][0] == 503
    assert failing["/live"][0] == 200
    assert stuck == {"/health": 503, "/live": 503}


@pytest.mark.parametrize("error", [KeyError("x"), MemoryError(), RecursionError(), SystemError()])
def test_one_ring_whose_draining_fails_in_any_way_stops_no_other(agent, error):
    import numpy as np

    rings = [ring_at(agent.rings.folder, a_boot(name)) for name in ("bad", "good")]
    for ring in rings:
        Traffic(Recorder(ring, salt=b"s"), np.random.default_rng(1)).round(2)
    empty = agent._drain.empty

    def failing(ring, rows):
        if ring.source.replica == "bad":
            raise error
        empty(ring, rows)

    agent._drain.empty = failing
    agent.tick()
    agent.tick()

    assert [source.replica for source in agent.spool.sources] == ["good"]
    assert agent.metrics.errors.labels("drain")._value.get() == 2
    for ring in rings:
        ring.close()
