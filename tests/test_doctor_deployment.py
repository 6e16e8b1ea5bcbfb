"""The doctor on a running deployment: a real service, and what stands for Grafana's two answers."""

from __future__ import annotations

import http.server
import json
import re
import threading
import time

import pytest
from service.harness import service
from store.test_roll import put
from store.traffic import Traffic

from specscope.doctor import deployment
from specscope.policy.stored import insert_policy, next_table
from specscope.policy.table import GateTable

MINUTE = 60 * 10**9


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with service(f"chdb://{tmp_path_factory.mktemp('doctor')}/store") as running:
        yield running


def states(checks):
    return {check.what: (check.state, check.detail) for check in checks}


def looked_at(running):
    where = f"http://127.0.0.1:{running.http_port}"
    return states(deployment.store({"SPECSCOPE_STORE": where}))


def test_a_deployment_is_looked_at_through_its_read_endpoint(running):
    seen = looked_at(running)

    assert {what: state for what, (state, _) in seen.items()} == {
        "store's credential": "ok",
        "store's schema": "ok",
        "clocks": "ok",
    }


def test_replicas_behind_the_newest_policy_and_hooks_of_other_versions_are_named(running):
    store, now = running.store, time.time_ns()
    insert_policy(store, next_table([], GateTable((), 4), now=now), "", now - 5 * MINUTE)
    put(store, Traffic(replica="r0", pairs=1, policy=1, started_at=now - MINUTE), ledger=False)
    follows = looked_at(running)
    put(store, Traffic(replica="r1", pairs=1, policy=None, started_at=now - MINUTE), ledger=False)
    behind = looked_at(running)

    assert follows["policy 1"] == ("ok", "followed by 1 replica")
    assert behind["policy 1"] == ("warning", "1 of 2 replicas do not follow it: r1")
    assert behind["versions"][0] == "warning"  # the made traffic names a version of its own


def test_a_clock_that_is_off_is_said(running, monkeypatch):
    right = time.time_ns
    monkeypatch.setattr(deployment.time, "time_ns", lambda: right() - 60 * 10**9)

    state, detail = looked_at(running)["clocks"]

    assert state == "warning"
    assert re.search(r"is \+(59|60|61) s from", detail)


def test_a_missing_table_and_a_dead_store_are_failures(running):
    running.store.command("RENAME TABLE event TO event_away")
    try:
        without = looked_at(running)["store's schema"]
    finally:
        running.store.command("RENAME TABLE event_away TO event")
    dead = states(deployment.store({"SPECSCOPE_STORE": "http://127.0.0.1:9"}))

    assert without == ("failed", "without event")
    assert dead["store's contents"][0] == "failed"


def test_an_embedded_store_is_left_to_its_own_checks():
    assert list(deployment.store({"SPECSCOPE_STORE": "chdb:///nowhere"})) == []
    assert list(deployment.store({})) == []


class Grafana(http.server.BaseHTTPRequestHandler):
    """Answers as Grafana does to its health and its search."""

    def do_GET(self):
        if self.path == "/api/health":
            self.answer(200, {"database": "ok", "version": "12.0.2"})
        elif self.headers["Authorization"] == "Bearer right":
            self.answer(200, [])
        else:
            self.answer(401, {"message": "Invalid API key"})

    def answer(self, code, body):
        text = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


@pytest.mark.parametrize(
    ("token", "state"), [("right", "ok"), ("wrong", "failed"), ("", None)], ids=str
)
def test_grafana_is_asked_whether_it_is_up_and_takes_the_token(token, state):
    with http.server.HTTPServer(("127.0.0.1", 0), Grafana) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        seen = states(deployment.grafana({"GRAFANA_URL": url, "GRAFANA_TOKEN": token}))
        server.shutdown()

    assert seen["Grafana"] == ("ok", "version 12.0.2")
    assert seen.get("Grafana's token", (None,))[0] == state


def test_a_grafana_that_is_not_there_is_a_failure():
    seen = states(deployment.grafana({"GRAFANA_URL": "http://127.0.0.1:9"}))
    odd = states(deployment.grafana({"GRAFANA_URL": "ftp://x"}))

    assert seen["Grafana"][0] == "failed"
    assert odd["Grafana"][0] == "refused"
