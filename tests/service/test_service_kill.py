"""The service is killed at random moments under load; nothing is lost, nothing counts twice.

The check at the end reads the embedded engine directly and shares no code with the product.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

import chdb
import grpc
import pytest
from ports import own_port
from service.sidecar import hello
from store.traffic import Traffic
from waiting import PATIENCE_S, until

from specscope_agent import telemetry_pb2 as wire
from specscope_agent.telemetry_pb2_grpc import TelemetryStub


class Service:
    """`specscope serve` in a process of its own, on a port that stays the same."""

    def __init__(self, dsn, port):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "specscope", "serve", "--json", "--store", dsn,
             "--listen", f"127.0.0.1:{port}", "--http", "127.0.0.1:0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        self.port = port

    def kill(self):
        os.kill(self.process.pid, signal.SIGKILL)
        self._reap()

    def stop(self):
        self.process.terminate()
        self._reap()

    def _reap(self):
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()


class Sidecar(threading.Thread):
    """Sends its batches slowly, goes on where Resume says, keeps what is not acknowledged."""

    def __init__(self, port, traffic, over):
        super().__init__(daemon=True)
        self.port, self.traffic = port, traffic
        self.over = over  # the last batch is kept back until then
        self.batches = traffic.messages(records=6)
        self.acknowledged = set()
        self.resumed = []

    def run(self):
        while len(self.acknowledged) < len(self.batches):
            try:
                self._stream()
            except grpc.RpcError:
                time.sleep(0.1)

    def _stream(self):
        start, ready = [0], threading.Event()

        def up():
            yield hello((self.traffic.replica, self.traffic.boot))
            ready.wait(PATIENCE_S)
            for batch in self.batches[start[0] : -1]:
                yield wire.FromAgent(batch=batch)
                time.sleep(0.05)
            self.over.wait(PATIENCE_S)
            yield wire.FromAgent(batch=self.batches[-1])

        with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            for message in TelemetryStub(channel).Publish(up(), timeout=PATIENCE_S):
                if message.HasField("resume"):
                    start[0] = message.resume.positions[0].number
                    self.resumed.append(start[0])
                    # What was acknowledged is in the store, whatever was killed since.
                    assert start[0] >= max(self.acknowledged, default=0)
                    self.acknowledged |= set(range(1, start[0] + 1))
                    ready.set()
                elif message.HasField("ack"):
                    self.acknowledged.add(message.ack.number)


@pytest.mark.parametrize("kills", [4, pytest.param(20, marks=pytest.mark.slow)])
def test_a_service_that_is_killed_again_and_again_loses_nothing_and_doubles_nothing(
    tmp_path, kills
):
    dsn = f"chdb://{tmp_path}/store"
    moments, over = random.Random(7), threading.Event()
    service = Service(dsn, own_port())
    sidecars = [
        Sidecar(service.port, Traffic(seed=i, replica=f"r{i}", pairs=2 + kills // 2), over)
        for i in (1, 2, 3)
    ]
    for sidecar in sidecars:
        sidecar.start()

    for number in range(kills):
        until(lambda number=number: any(len(s.resumed) > number for s in sidecars))
        # Batches are inserted about once a second: some kills fall between insert and answer.
        time.sleep(moments.uniform(0.3, 2.5))
        service.kill()
        service = Service(dsn, service.port)
    over.set()
    for sidecar in sidecars:
        sidecar.join(timeout=PATIENCE_S)
        assert not sidecar.is_alive()
    service.stop()

    assert max(len(sidecar.resumed) for sidecar in sidecars) > kills
    connection = chdb.connect(f"{tmp_path}/store")
    for sidecar in sidecars:
        recount(connection, sidecar.traffic)
    connection.close()


def recount(connection, traffic):
    """What arrived, against what was meant, by plain SQL over raw rows."""

    def ask(sql):
        text = connection.query(sql, "JSONCompactEachRow").bytes().decode()
        return [json.loads(line) for line in text.splitlines()]

    where = f"replica = '{traffic.replica}'"
    rounds = ask(
        "SELECT toInt64(seq), toInt64(emitted) FROM specscope.round FINAL "
        f"WHERE {where} ORDER BY seq"
    )
    truth = [[r.seq, sum(s.emitted for s in r.sequences)] for r in traffic.rounds]
    assert [[int(a), int(b)] for a, b in rounds] == truth
    ended = ask(
        "SELECT toString(request), toInt64(output_tokens) FROM specscope.request FINAL "
        f"WHERE {where} AND reason != 'none' ORDER BY request"
    )
    assert [[int(a), int(b)] for a, b in ended] == sorted(
        [r["request"], r["output_tokens"]] for r in traffic.requests_ended
    )
    parts = ask(
        "SELECT toString(request), sum(length(accepted)), sum(arraySum(accepted)) "
        f"FROM specscope.request_part FINAL WHERE {where} GROUP BY request ORDER BY request"
    )
    by_request = {}
    for round_ in traffic.rounds:
        for s in round_.sequences:
            n, accepted = by_request.get(s.request, (0, 0))
            by_request[s.request] = (n + 1, accepted + s.accepted)
    assert {int(r): (int(n), int(a)) for r, n, a in parts} == by_request
    ledger = ask(f"SELECT toInt64(number) FROM specscope.batch FINAL WHERE {where} ORDER BY number")
    assert [int(n) for (n,) in ledger] == list(range(1, len(traffic.messages(records=6)) + 1))
    assert ask(f"SELECT count() FROM specscope.loss WHERE {where}") in ([["0"]], [[0]])
