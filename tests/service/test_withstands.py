"""A service under callers who mean harm: queries end, connections end, others are still served."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
import urllib.error
import urllib.request
from http.client import HTTPConnection
from urllib.parse import quote

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from service.harness import service
from service.sidecar import exchange
from waiting import PATIENCE_S, until

from specscope.service import reader as reader_
from specscope.service import web
from specscope.service.access import Access, Grant
from specscope.service.metrics import Metrics
from specscope.service.read import read_app
from specscope.service.reader import Answer, Question, Reader, Unanswered
from specscope.service.server import NAME

SLOW = "SELECT count() FROM numbers(1900000000) WHERE sipHash64(sipHash64(number)) = 1"


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    told = {"metrics": f"127.0.0.1:{own_port()}"}
    with service(f"chdb://{tmp_path_factory.mktemp('withstands')}/store", told=told) as running:
        running.metrics.address = told["metrics"]
        yield running


def own_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def get(running, path="/health", port=None):
    url = f"http://127.0.0.1:{port or running.http_port}{path}"
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        return answer.read()


def at_work(running):
    """How many of the slow queries the engine runs."""
    text = "SELECT count() AS n FROM system.processes WHERE query LIKE '%sipHash64(sip%' AND query NOT LIKE '%proc%'"  # noqa: E501
    return running.store.rows(text)[0]["n"]


def test_a_query_ends_once_its_client_has_left(running):
    with socket.create_connection(("127.0.0.1", running.http_port)) as client:
        client.sendall(f"GET /?query={quote(SLOW)} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        until(lambda: at_work(running))

    until(lambda: not at_work(running))


def asked(running, sql):
    """What the endpoint's own reader answers."""
    return asyncio.run(Reader.open(running.store).answer(Question(sql)))


def test_a_query_past_its_time_is_ended_even_where_the_engine_s_own_limit_is_not_enough(
    running, monkeypatch
):
    monkeypatch.setattr(reader_, "QUERY_S", 0.3)
    monkeypatch.setattr(reader_, "KILL_S", 0.3)

    with pytest.raises(Unanswered) as raised:
        asked(running, SLOW)

    assert raised.value.code == 394
    until(lambda: not at_work(running))


def test_a_query_that_nothing_ends_keeps_the_place_of_its_reader_alone(running, monkeypatch):
    monkeypatch.setattr(reader_, "QUERY_S", 0.1)
    monkeypatch.setattr(reader_, "KILL_S", 0.1)
    monkeypatch.setattr(reader_, "WAIT_S", 0.2)
    monkeypatch.setattr(Reader, "_kill", lambda self, query: None)
    over = threading.Event()

    def run(self, query, question):
        if question.sql == "endless":
            over.wait(PATIENCE_S)
        return Answer(b"1", "TSV")

    monkeypatch.setattr(Reader, "_run", run)

    async def statuses(reader, grant, *texts):
        found = []
        for text in texts:
            try:
                found.append((await reader.answer(Question(text, grant=grant))).body)
            except Unanswered as error:
                found.append(error.status)
        return found

    async def attack():
        reader = Reader.open(running.store)
        greedy, other = (Grant(name, frozenset({"read"})) for name in ("greedy", "other"))
        first = await statuses(reader, greedy, *["endless"] * (reader_.PER_READER + 2))
        others = await statuses(reader, other, *["SELECT 1"] * 5)
        over.set()
        await asyncio.sleep(0.3)
        return first, others, await statuses(reader, greedy, "SELECT 1")

    first, others, after = asyncio.run(attack())

    assert first == [500] * reader_.PER_READER + [503] * 2
    assert others == [b"1"] * 5
    assert after == [b"1"]


def test_a_reader_leaves_a_place_to_others(running, monkeypatch):
    monkeypatch.setattr(reader_, "WAIT_S", 0.2)
    over = threading.Event()
    usual = Reader._run

    def run(self, query, question):
        if question.grant.name == "greedy":
            over.wait(PATIENCE_S)
        return usual(self, query, question)

    monkeypatch.setattr(Reader, "_run", run)

    async def attack():
        reader = Reader.open(running.store)
        greedy = Question("SELECT 1", grant=Grant("greedy", frozenset({"read"})))
        held = [asyncio.create_task(reader.answer(greedy)) for _ in range(6)]
        await asyncio.sleep(0.5)
        answer = await reader.answer(Question("SELECT 2"))
        over.set()
        ends = await asyncio.gather(*held, return_exceptions=True)
        return answer.body, [type(end).__name__ for end in ends]

    body, ends = asyncio.run(attack())

    assert body == b"2\n"
    assert ends.count("Answer") == reader_.PER_READER


def test_requests_that_never_come_whole_are_ended_and_ingest_goes_on(running, monkeypatch):
    monkeypatch.setattr(web, "HEADER_S", 0.5)
    half = [b"GET / HTTP/1.1\r\nHost: a\r\nX: ", b"", b"POST / HTTP/1.1\r\n"]

    with contextlib.ExitStack() as held:
        clients = []
        for number in range(300):
            client = held.enter_context(socket.create_connection(("127.0.0.1", running.http_port)))
            with contextlib.suppress(OSError):
                client.sendall(half[number % 3])
            clients.append(client)
        exchange(running.port, [])
        for client in clients:
            client.settimeout(PATIENCE_S)
            with contextlib.suppress(ConnectionError):
                assert client.recv(100) == b""
    assert get(running) == b"ok\n"


def test_a_connection_that_is_kept_alive_is_not_cut_off_within_an_answer(running, monkeypatch):
    monkeypatch.setattr(web, "HEADER_S", 0.3)
    question = f"/?query={quote('SELECT sum(sipHash64(number)) FROM numbers(20000000)')}"

    client = HTTPConnection("127.0.0.1", running.http_port, timeout=PATIENCE_S)
    with contextlib.closing(client):
        client.connect()
        connection = client.sock
        for path in (question, "/ping"):
            client.request("GET", path)
            answer = client.getresponse()
            assert answer.status == 200
            assert answer.read()
        assert client.sock is connection  # kept alive, so asked twice


LARGE = f"GET /?query={quote('SELECT repeat(toString(0), 1000000) FROM numbers(40)')} HTTP/1.1"


def received(client):
    count = 0
    with contextlib.suppress(ConnectionError):
        while part := client.recv(1 << 20):
            count += len(part)
    return count


def test_an_answer_may_be_read_slowly(running, monkeypatch):
    monkeypatch.setattr(web, "HEADER_S", 0.2)

    with socket.create_connection(("127.0.0.1", running.http_port)) as client:
        client.settimeout(PATIENCE_S)
        client.sendall(f"{LARGE}\r\nHost: a\r\n\r\n".encode())
        first = client.recv(1)
        time.sleep(1.0)
        count = len(first) + received(client)

    assert count > 40_000_000


def test_answers_that_nobody_reads_do_not_fill_the_memory(running, monkeypatch):
    monkeypatch.setattr(web, "MAX_UNREAD", 1 << 20)

    with socket.create_connection(("127.0.0.1", running.http_port)) as client:
        client.settimeout(PATIENCE_S)
        client.sendall(f"{LARGE}\r\nHost: a\r\n\r\n".encode())
        count = received(client)

    assert count < 40_000_000
    assert get(running) == b"ok\n"


def test_a_client_that_leaves_within_its_request_is_no_news(running, caplog):
    with socket.create_connection(("127.0.0.1", running.http_port)) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\nSELECT")
        time.sleep(0.2)
    get(running)

    assert caplog.records == []


def test_grpc_says_whether_it_serves(running):
    with grpc.insecure_channel(f"127.0.0.1:{running.port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for name in ("", NAME):
            answer = stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=PATIENCE_S)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_health_and_metrics_have_an_address_of_their_own_if_asked(running):
    port = int(running.metrics.address.rpartition(":")[2])

    assert get(running, "/health", port) == b"ok\n"
    assert b"specscope_streams" in get(running, "/metrics", port)
    with pytest.raises(urllib.error.HTTPError):
        get(running, "/?query=SELECT+1", port)


@pytest.mark.parametrize(
    ("host", "status"), [("127.0.0.1", 200), ("::1", 200), ("10.0.0.1", 401), (None, 401)]
)
def test_metrics_are_for_this_machine(host, status):
    app = read_app(None, Metrics(), "specscope", lambda: True, Access())
    scope = {
        "type": "http", "method": "GET", "path": "/metrics", "headers": [], "query_string": b"",
        "client": host and (host, 1),
    }  # fmt: skip
    sent = []

    async def receive():
        return {"type": "http.request"}

    async def send(message):
        sent.append(message)

    asyncio.run(app(scope, receive, send))

    assert sent[0]["status"] == status
