"""Two services on one server: one is killed, sidecars go on with the other, no row is lost.

The server is the real engine behind its HTTP interface (`http_engine`); a cluster of servers has
not been run.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import chdb
from ports import own_port
from service import http_engine
from service.test_service_kill import Service, Sidecar, recount
from store.traffic import Traffic
from store.truth import MINUTE_NS, grouped, sums
from waiting import PATIENCE_S, until

from specscope.store.connection import Store


def listening(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_two_services_on_one_server_lose_and_double_nothing_when_one_is_killed(tmp_path):
    port, over = own_port(), threading.Event()
    server = subprocess.Popen(
        [sys.executable, str(Path(http_engine.__file__)), f"{tmp_path}/store", str(port)]
    )
    try:
        until(lambda: listening(port))
        dsn = f"clickhouse://default@127.0.0.1:{port}/specscope"
        first = Service(dsn, own_port())
        second = Service(dsn, own_port())
        began = time.time_ns() - 3600 * 10**9
        sidecars = [
            Sidecar(service.port, Traffic(seed=i, replica=f"r{i}", pairs=3, started_at=began), over)
            for i, service in enumerate((first, first, second), start=1)
        ]
        for sidecar in sidecars:
            sidecar.start()
        until(lambda: all(sidecar.acknowledged for sidecar in sidecars))
        first.kill()
        for sidecar in sidecars:
            sidecar.port = second.port
        # A third takes the place of the first: it finds what the killed one left unrolled.
        third = Service(dsn, own_port())
        over.set()
        for sidecar in sidecars:
            sidecar.join(timeout=PATIENCE_S)
            assert not sidecar.is_alive()
        with Store.open(dsn, create=False) as store:
            until(lambda: rolled(store) == truth(sidecars))
        for service in (second, third):
            service.stop()
    finally:
        server.terminate()
        server.wait()

    assert all(len(sidecar.resumed) > 1 for sidecar in sidecars[:2])
    connection = chdb.connect(f"{tmp_path}/store")
    for sidecar in sidecars:
        recount(connection, sidecar.traffic)
    connection.close()


def rolled(store):
    """Sums of the rollup of minutes by replica and minute, by its rows that stand."""
    rows = store.rows(
        "SELECT replica, toUnixTimestamp64Nano(toDateTime64(minute, 9, 'UTC')) AS minute, "
        "sum(request_rounds) AS request_rounds, sum(proposed) AS proposed, "
        "sum(accepted) AS accepted, sum(emitted) AS emitted "
        "FROM minute FINAL GROUP BY replica, minute"
    )
    return {(row.pop("replica"), row.pop("minute")): row for row in rows}


def truth(sidecars):
    """The same from the rounds that were meant."""
    found = {}
    for sidecar in sidecars:
        by_minute = grouped(sidecar.traffic, lambda r, _: r.started_at - r.started_at % MINUTE_NS)
        found |= {(sidecar.traffic.replica, at): sums(each) for at, each in by_minute.items()}
    return found
