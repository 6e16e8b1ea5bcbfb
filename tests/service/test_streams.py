"""Streams and connections that ask too much, or show the wrong certificate: each is ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import queue
import ssl
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from service.harness import service
from service.sidecar import SOURCE, acknowledged, exchange, hello, resume
from service.tokens import CERTIFICATES, write_tokens
from store.traffic import Traffic
from waiting import PATIENCE_S, until

from specscope.errors import UsageError
from specscope.service import access as access_
from specscope.service import ingest as ingest_
from specscope.service import server as server_
from specscope.service.access import ANYBODY
from specscope.service.writer import Writer
from specscope.settings import ServiceSettings
from specscope_agent import telemetry_pb2 as wire
from specscope_agent.channel import Security
from specscope_agent.sealed import sealed
from specscope_agent.telemetry_pb2_grpc import TelemetryStub

POLICY = json.dumps(
    {"policy": 1, "kind": "table", "seed": 7, "arms": [], "table": [], "default_k": 4}
)
OURS = Security(ca=CERTIFICATES / "ours-ca.pem")
TLS = {
    "tls_cert": CERTIFICATES / "ours-service.pem",
    "tls_key": CERTIFICATES / "ours-service.key",
}


def code(running, *batches, sources, token, security=None):
    with pytest.raises(grpc.RpcError) as raised:
        exchange(running.port, batches, sources=sources, token=token, security=security)
    return raised.value.code().name


def bearer(token):
    return [("authorization", f"Bearer {token}")]


def client(who):
    return Security(
        ca=CERTIFICATES / "ours-ca.pem",
        certificate=CERTIFICATES / f"{who}-client.pem",
        key=CERTIFICATES / f"{who}-client.key",
    )


def test_mutual_tls_lets_in_nobody_without_a_certificate_of_ours(tmp_path):
    told = {**TLS, "tls_client_ca": CERTIFICATES / "ours-ca.pem"}
    with service(f"chdb://{tmp_path}/store", told=told) as running:
        for stranger in (OURS, client("theirs")):
            assert code(running, sources=[("a", "b")], token="", security=stranger) == (
                "UNAVAILABLE"
            )
            with pytest.raises((urllib.error.URLError, ConnectionError)):
                https(running, stranger)

        exchange(running.port, [], security=client("ours"))
        assert https(running, client("ours")) == b"ok\n"


def https(running, security):
    context = ssl.create_default_context(cafile=security.ca)
    if security.certificate:
        context.load_cert_chain(security.certificate, security.key)
    url = f"https://127.0.0.1:{running.http_port}/health"
    with urllib.request.urlopen(url, context=context, timeout=PATIENCE_S) as answer:
        return answer.read()


def test_a_renewed_certificate_is_shown_without_a_restart(tmp_path, monkeypatch):
    from specscope.service import app

    monkeypatch.setattr(app, "RENEW_S", 0.05)
    cert, key = tmp_path / "tls.crt", tmp_path / "tls.key"

    def renew(whose):
        key.write_bytes((CERTIFICATES / f"{whose}-service.key").read_bytes())
        cert.write_bytes((CERTIFICATES / f"{whose}-service.pem").read_bytes())

    theirs = Security(ca=CERTIFICATES / "theirs-ca.pem")
    renew("ours")
    told = {"tls_cert": cert, "tls_key": key}
    with service(f"chdb://{tmp_path}/store", told=told) as running:
        exchange(running.port, [], security=OURS)
        renew("theirs")

        exchange(running.port, [], security=theirs)
        until(lambda: https_or_none(running, theirs))


def https_or_none(running, security):
    with contextlib.suppress(urllib.error.URLError):
        return https(running, security)


def test_a_stream_ends_once_its_token_is_taken_away(tmp_path, monkeypatch):
    monkeypatch.setattr(access_, "LOOK_S", 0.0)
    tokens = write_tokens(tmp_path / "tokens.toml", red="publish", blue="publish")
    messages = [wire.FromAgent(batch=b) for b in Traffic().messages()]
    taken = threading.Event()

    def up():
        yield hello()
        yield messages[0]
        taken.wait(PATIENCE_S)
        yield messages[1]

    with (
        service(f"chdb://{tmp_path}/store", told={"tokens": tokens}) as running,
        grpc.insecure_channel(f"127.0.0.1:{running.port}") as channel,
    ):
        given = [("authorization", "Bearer red")]
        stream = TelemetryStub(channel).Publish(up(), timeout=PATIENCE_S, metadata=given)
        assert next(stream).HasField("resume")
        assert next(stream).ack.number == 1
        write_tokens(tokens, blue="publish")
        taken.set()
        with pytest.raises(grpc.RpcError) as raised:
            list(stream)
        down = exchange(running.port, [m.batch for m in messages], token="blue")

    assert raised.value.code().name == "UNAUTHENTICATED"
    assert acknowledged(down)[-1] == messages[-1].batch.number


def test_a_stream_whose_token_was_taken_away_is_sent_no_policy(tmp_path, monkeypatch):
    monkeypatch.setattr(access_, "LOOK_S", 0.0)
    tokens = write_tokens(tmp_path / "tokens.toml", red="publish", operator="apply")
    over = threading.Event()

    def up():
        yield hello()
        over.wait(PATIENCE_S)

    with (
        service(f"chdb://{tmp_path}/store", told={"tokens": tokens}) as running,
        grpc.insecure_channel(f"127.0.0.1:{running.port}") as channel,
    ):
        stub = TelemetryStub(channel)
        stream = stub.Publish(up(), timeout=PATIENCE_S, metadata=bearer("red"))
        assert next(stream).HasField("resume")
        write_tokens(tokens, operator="apply")
        policy = wire.Policy(number=1, json=POLICY)
        stub.Apply(policy, timeout=PATIENCE_S, metadata=bearer("operator"))
        with pytest.raises(grpc.RpcError) as raised:
            next(stream)
        over.set()

    assert raised.value.code().name == "UNAUTHENTICATED"


@pytest.mark.parametrize(
    ("number", "first_seq", "next_seq"),
    [(0, 0, 10), (1 << 32, 0, 10), ((1 << 64) - 1, 0, 10), (1, 10, 9), (1, 0, 1 << 63)],
)
def test_a_batch_of_numbers_that_no_sidecar_comes_to_is_refused(
    tmp_path, number, first_seq, next_seq
):
    batch = Traffic().messages()[0]
    batch.number, batch.first_seq, batch.next_seq = number, first_seq, next_seq

    with service(f"chdb://{tmp_path}/store") as running:
        assert code(running, batch, sources=[SOURCE], token="") == "INVALID_ARGUMENT"
        stored = running.store.rows("SELECT count() AS n FROM batch")

    assert stored == [{"n": 0}]


def test_hellos_of_one_tenant_do_not_hold_up_another_s(tmp_path, monkeypatch):
    """However many wait, the one of another tenant waits for one of them."""
    tokens = write_tokens(tmp_path / "tokens.toml", red="a: publish", blue="b: publish")
    begun, go_on, asked = threading.Event(), threading.Event(), []
    positions, bound, named = ingest_.positions, threading.Semaphore(0), ingest_.named

    def slow(ledger, sources):
        asked.append(sources[0].replica)
        begun.set()
        go_on.wait(PATIENCE_S)
        return positions(ledger, sources)

    def counted(sources, grant):
        bound.release()
        return named(sources, grant)

    monkeypatch.setattr(ingest_, "positions", slow)
    monkeypatch.setattr(ingest_, "named", counted)
    with (
        service(f"chdb://{tmp_path}/store", told={"tokens": tokens}) as running,
        ThreadPoolExecutor(21) as pool,
    ):

        def greet(replica, token):
            return exchange(running.port, [], sources=[(replica, "b")], token=token)

        work = [pool.submit(greet, f"a-{i}", "red") for i in range(20)]
        assert begun.wait(PATIENCE_S)
        for _ in range(20):
            assert bound.acquire(timeout=PATIENCE_S)
        work.append(pool.submit(greet, "b-0", "blue"))
        assert bound.acquire(timeout=PATIENCE_S)
        go_on.set()
        assert all(resume(one.result(timeout=PATIENCE_S)) for one in work)

    assert asked.index("b-0") <= 2
    assert len(asked) == 21


def test_a_source_has_one_stream_and_it_is_the_newest(tmp_path):
    over = threading.Event()

    def up():
        yield hello()
        over.wait(PATIENCE_S)

    with (
        service(f"chdb://{tmp_path}/store") as running,
        grpc.insecure_channel(f"127.0.0.1:{running.port}") as channel,
    ):
        stub = TelemetryStub(channel)
        first = stub.Publish(up(), timeout=PATIENCE_S)
        assert next(first).HasField("resume")
        second = stub.Publish(up(), timeout=PATIENCE_S)
        assert next(second).HasField("resume")
        with pytest.raises(grpc.RpcError) as raised:
            next(first)
        over.set()
        list(second)

    assert raised.value.code().name == "ABORTED"


def test_a_batch_of_a_source_that_was_not_named_is_refused(tmp_path):
    other = Traffic(replica="r7").messages()[0]

    with service(f"chdb://{tmp_path}/store") as running:
        assert code(running, other, sources=[("r0", "b0")], token="", security=None) == (
            "PERMISSION_DENIED"
        )
        stored = running.store.rows("SELECT count() AS n FROM batch")

    assert stored == [{"n": 0}]


def test_a_stream_that_says_nothing_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(ingest_, "HELLO_S", 0.1)
    over = threading.Event()

    def up():
        yield wire.FromAgent()
        over.wait(PATIENCE_S)

    with (
        service(f"chdb://{tmp_path}/store") as running,
        grpc.insecure_channel(f"127.0.0.1:{running.port}") as channel,
    ):
        with pytest.raises(grpc.RpcError) as raised:
            list(TelemetryStub(channel).Publish(up(), timeout=PATIENCE_S))
        over.set()

    assert raised.value.code().name == "DEADLINE_EXCEEDED"


@pytest.mark.parametrize(
    "sources",
    [[("r", str(i)) for i in range(2000)], [("", "b")], [("r", "")], [("r" * 300, "b")]],
    ids=["very many", "no replica", "no boot", "a long name"],
)
def test_a_hello_that_asks_too_much_is_refused(tmp_path, sources):
    with service(f"chdb://{tmp_path}/store") as running:
        assert code(running, sources=sources, token="", security=None) == "INVALID_ARGUMENT"


def test_a_stream_whose_answers_nobody_reads_is_not_read_either(monkeypatch):
    monkeypatch.setattr(ingest_, "MAX_UNHEARD", 4)

    async def attack():
        stream = ingest_.Stream(ANYBODY)
        for _ in range(5):
            stream.down.put_nowait(b"")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(stream.heard(), 0.2)
        stream.down.get_nowait()
        await asyncio.wait_for(stream.heard(), PATIENCE_S)

    asyncio.run(attack())


def test_streams_are_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(ingest_, "MAX_STREAMS", 1)
    over = threading.Event()

    def up():
        yield hello()
        over.wait(PATIENCE_S)

    with (
        service(f"chdb://{tmp_path}/store") as running,
        grpc.insecure_channel(f"127.0.0.1:{running.port}") as channel,
    ):
        first = TelemetryStub(channel).Publish(up(), timeout=PATIENCE_S)
        assert next(first).HasField("resume")
        refused = code(running, sources=[("r1", "b")], token="", security=None)
        over.set()
        list(first)
        exchange(running.port, [])

    assert refused == "RESOURCE_EXHAUSTED"


def test_a_tenant_leaves_streams_to_others(tmp_path, monkeypatch):
    monkeypatch.setattr(ingest_, "MAX_STREAMS_OF_TENANT", 1)
    tokens = write_tokens(tmp_path / "tokens.toml", red="a: publish", blue="b: publish")
    over = threading.Event()

    def up():
        yield hello(("a-0", "b0"))
        over.wait(PATIENCE_S)

    with service(f"chdb://{tmp_path}/store", told={"tokens": tokens}) as running:
        with grpc.insecure_channel(f"127.0.0.1:{running.port}") as channel:
            stub = TelemetryStub(channel)
            first = stub.Publish(up(), timeout=PATIENCE_S, metadata=bearer("red"))
            assert next(first).HasField("resume")
            assert code(running, sources=[("a-1", "b0")], token="red") == "RESOURCE_EXHAUSTED"
            exchange(running.port, [], sources=[("b-0", "b0")], token="blue")
            over.set()
            list(first)
        exchange(running.port, [], sources=[("a-1", "b0")], token="red")


def test_a_connection_without_a_stream_gives_its_place_back(tmp_path, monkeypatch):
    monkeypatch.setattr(server_, "IDLE_S", 0.5)
    states = queue.SimpleQueue()

    with (
        service(f"chdb://{tmp_path}/store") as running,
        grpc.insecure_channel(f"127.0.0.1:{running.port}") as channel,
    ):
        channel.subscribe(states.put, try_to_connect=True)
        while (state := states.get(timeout=PATIENCE_S)) != grpc.ChannelConnectivity.READY:
            assert state != grpc.ChannelConnectivity.SHUTDOWN
        after = states.get(timeout=PATIENCE_S)

    assert after == grpc.ChannelConnectivity.IDLE


def test_bytes_that_are_no_message_are_one_line_however_many_there_are(tmp_path, caplog):
    with (
        service(f"chdb://{tmp_path}/store") as running,
        grpc.insecure_channel(f"127.0.0.1:{running.port}") as channel,
    ):
        publish = channel.stream_stream("/specscope.v1.Telemetry/Publish")
        apply = channel.unary_unary("/specscope.v1.Telemetry/Apply")
        for _ in range(20):
            for call in (lambda: list(publish(iter([b"\xff\xff"]))), lambda: apply(b"\xff\xff")):
                with pytest.raises(grpc.RpcError) as raised:
                    call()
                assert raised.value.code().name == "INVALID_ARGUMENT"
        exchange(running.port, [])

    assert len([r for r in caplog.records if r.name.startswith(("specscope", "grpc"))]) <= 2


def test_a_compressed_message_is_not_expanded(tmp_path):
    batch = wire.Batch(source=wire.Source(replica="r0", boot="b0"), number=1)
    batch.tables.add(name="round", arrow=bytes(3 << 20))

    with (
        service(f"chdb://{tmp_path}/store") as running,
        grpc.insecure_channel(f"127.0.0.1:{running.port}") as channel,
    ):
        stub = TelemetryStub(channel)
        with pytest.raises(grpc.RpcError):
            list(
                stub.Publish(
                    iter([hello(), wire.FromAgent(batch=batch)]),
                    timeout=PATIENCE_S,
                    compression=grpc.Compression.Gzip,
                )
            )


@pytest.mark.parametrize("address", ["0.0.0.0:7070", "[::]:7070", "10.0.0.1:7070", "host:7070"])
@pytest.mark.parametrize("port", ["listen", "http"])
def test_beyond_this_machine_it_starts_with_tokens_and_tls_or_an_explicit_word(port, address):
    given = {"store": "chdb:///x", port: address}
    tokens, tls = {"tokens": Path("t")}, {"tls_cert": Path("c"), "tls_key": Path("k")}

    for half in ({}, tokens, tls):
        with pytest.raises(UsageError) as raised:
            ServiceSettings(**given, **half)
        assert len(str(raised.value).splitlines()) == 1
    ServiceSettings(**given, **tokens, **tls)
    ServiceSettings(**given, insecure=True)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "[::1]:1", "localhost:1", "127.9.9.9:1"])
def test_on_this_machine_it_starts_without(address):
    ServiceSettings(store="chdb:///x", listen=address, http=address)


def test_a_sidecar_that_comes_back_waits_for_what_its_stream_before_left_with_the_writer(
    tmp_path, monkeypatch
):
    given, may_write, insert = threading.Event(), threading.Event(), Writer._insert

    def held_up(writer, batches, repair):
        given.set()
        assert may_write.wait(PATIENCE_S)
        insert(writer, batches, repair)

    monkeypatch.setattr(Writer, "_insert", held_up)
    over, (batch, *_) = threading.Event(), Traffic().messages()

    def up(*batches):
        yield hello()
        yield from (wire.FromAgent(batch=batch) for batch in batches)
        over.wait(PATIENCE_S)

    with (
        service(f"chdb://{tmp_path}/store") as running,
        grpc.insecure_channel(f"127.0.0.1:{running.port}") as channel,
    ):
        stub = TelemetryStub(channel)
        first = stub.Publish(up(batch), timeout=PATIENCE_S)
        assert next(first).HasField("resume")
        assert given.wait(PATIENCE_S)
        second = stub.Publish(up(), timeout=PATIENCE_S)
        with pytest.raises(grpc.RpcError) as raised:
            next(first)  # the service has the second Hello
        may_write.set()
        answer = next(second)
        over.set()

    assert raised.value.code().name == "ABORTED"
    assert resume([answer]) == {SOURCE: (batch.number, batch.next_seq)}


def test_a_message_that_was_damaged_on_its_way_ends_the_stream_and_is_not_stored(tmp_path):
    batch = next(iter(Traffic().messages()))
    raw = bytearray(sealed(wire.FromAgent(batch=batch)))
    raw[len(raw) // 2] ^= 4  # within an Arrow stream, which has no check of its own

    with (
        service(f"chdb://{tmp_path}/store") as running,
        grpc.insecure_channel(f"127.0.0.1:{running.port}") as channel,
    ):
        publish = channel.stream_stream("/specscope.v1.Telemetry/Publish")
        messages = iter([sealed(hello()), bytes(raw)])
        with pytest.raises(grpc.RpcError) as raised:
            list(publish(messages, timeout=PATIENCE_S))
        down = exchange(running.port, [batch])

    assert raised.value.code() is grpc.StatusCode.DATA_LOSS
    assert resume(down)["r0", "b0"] == (0, 0)
    assert acknowledged(down) == [batch.number]
