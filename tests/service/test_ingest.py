from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pyarrow as pa
import pytest
from service.harness import service
from service.sidecar import SOURCE, acknowledged, exchange, hello, refused, resume
from store.traffic import Traffic, stream, table
from waiting import PATIENCE_S, until

from specscope import queries
from specscope.errors import ServiceError, StoreBusy
from specscope.service import app
from specscope.service.app import running
from specscope.service.writer import Backoff, Writer
from specscope.settings import ServiceSettings
from specscope.store.connection import Store
from specscope.store.migrate import migrate
from specscope_agent import telemetry_pb2 as wire
from specscope_agent.telemetry_pb2_grpc import TelemetryStub

DAY = 86_400 * 10**9


@pytest.fixture
def dsn(tmp_path):
    return f"chdb://{tmp_path}/store"


def counts(dsn, *tables):
    with Store.open(dsn) as store:
        return {
            name: store.rows(f"SELECT count() AS n FROM {name} FINAL")[0]["n"] for name in tables
        }


def test_every_row_of_every_batch_is_stored_before_it_is_acknowledged(dsn):
    traffic = Traffic()
    messages = traffic.messages()

    with service(dsn) as running_:
        down = exchange(running_.port, messages)
        seen = running_.store.rows("SELECT count() AS n FROM round FINAL")[0]["n"]

    assert resume(down) == {SOURCE: (0, 0)}
    assert acknowledged(down) == [message.number for message in messages]
    assert refused(down) == 0
    assert seen == len(traffic.rounds)
    assert counts(dsn, "request", "batch") == {
        "request": len(traffic.requests_ended),
        "batch": len(messages),
    }


def test_a_sidecar_that_comes_back_is_told_what_the_store_has(dsn):
    traffic = Traffic()
    messages = traffic.messages()
    with service(dsn) as running_:
        exchange(running_.port, messages[:2])

    with service(dsn) as running_:
        down = exchange(running_.port, messages[2:], sources=[SOURCE, ("r9", "b9")])

    assert resume(down) == {SOURCE: (2, messages[1].next_seq), ("r9", "b9"): (0, 0)}
    assert acknowledged(down) == [m.number for m in messages[2:]]
    assert counts(dsn, "round") == {"round": len(traffic.rounds)}


def test_a_gap_in_the_ledger_is_where_a_sidecar_goes_on(dsn):
    messages = Traffic().messages(records=20)
    with service(dsn) as running_:
        exchange(running_.port, [messages[0], messages[2]])

        down = exchange(running_.port, [])

    assert resume(down) == {SOURCE: (1, messages[0].next_seq)}


def test_a_batch_that_is_sent_again_is_acknowledged_and_stored_once(dsn):
    traffic = Traffic()
    messages = traffic.messages()

    with service(dsn) as running_:
        first = exchange(running_.port, messages)
        again = exchange(running_.port, messages)
        rows = running_.store.rows("SELECT count() AS n FROM round")[0]["n"]

    assert acknowledged(first) == acknowledged(again)
    assert rows == len(traffic.rounds)


@pytest.mark.parametrize("takes_acks", [False, True])
def test_acknowledgements_share_a_message_if_the_sidecar_takes_that(dsn, takes_acks):
    messages = Traffic().messages(records=10)

    with service(dsn) as running_:
        down = exchange(running_.port, messages, takes_acks=takes_acks)

    assert acknowledged(down) == [message.number for message in messages]
    said = [message for message in down if message.HasField("acks" if takes_acks else "ack")]
    assert len(said) < len(messages) if takes_acks else len(said) == len(messages)


def test_batches_of_many_sidecars_share_their_inserts(dsn, monkeypatch):
    sidecars = [Traffic(seed=i, replica=f"r{i}", pairs=1) for i in range(12)]
    due = sum(len(traffic.messages()) for traffic in sidecars)

    class Busy(Writer):
        """Has something else to do until all sidecars have sent all they have."""

        def start(self):
            self.offered, all_sent = itertools.count(1), threading.Event()
            self.all_sent = all_sent
            self.ask(lambda _: all_sent.wait(PATIENCE_S))
            super().start()

        def offer(self, *batch):
            super().offer(*batch)
            if next(self.offered) == due:
                self.all_sent.set()

    monkeypatch.setattr(app, "Writer", Busy)

    with service(dsn) as running_, ThreadPoolExecutor(12) as pool:
        work = [
            pool.submit(exchange, running_.port, t.messages(), sources=[(t.replica, t.boot)])
            for t in sidecars
        ]
        down = [future.result() for future in work]
        text = running_.metrics.text().decode()

    assert sum(len(acknowledged(messages)) for messages in down) == due
    assert 'specscope_insert_seconds_count{table="round"} 1.0' in text
    assert counts(dsn, "round") == {"round": sum(len(t.rounds) for t in sidecars)}


def test_one_bad_clock_does_not_hold_up_the_queue(dsn):
    traffic = Traffic()
    old = Traffic(boot="old", started_at=time.time_ns() - 30 * DAY)

    with service(dsn) as running_:
        down = exchange(running_.port, old.messages(), sources=[("r0", "old")])
        exchange(running_.port, traffic.messages())

    assert len(acknowledged(down)) == len(old.messages())
    assert refused(down) > len(old.rounds)
    with Store.open(dsn) as store:
        (loss,) = store.rows(
            "SELECT reason, sum(count) AS n FROM loss FINAL WHERE table = 'round' GROUP BY reason"
        )
        assert loss == {"reason": "clock", "n": len(old.rounds)}
        assert {row["boot"] for row in store.rows("SELECT DISTINCT boot FROM round")} == {"b0"}


def test_an_insert_into_too_many_parts_is_kept_and_tried_again_until_it_fits(dsn):
    traffic = Traffic()
    messages = traffic.messages()

    with service(dsn, later=Backoff(0.1, 0.2)) as running_, ThreadPoolExecutor(1) as pool:
        exchange(running_.port, messages[:1])
        limit = "parts_to_delay_insert = 1, parts_to_throw_insert = 1"
        running_.store.command("SYSTEM STOP MERGES round")
        running_.store.command(f"ALTER TABLE round MODIFY SETTING {limit}")
        waiting = pool.submit(exchange, running_.port, messages[1:])
        until(lambda: b'insert_errors_total{code="252"}' in running_.metrics.text())
        assert not waiting.done()
        running_.store.command("ALTER TABLE round RESET SETTING parts_to_throw_insert")
        running_.store.command("ALTER TABLE round RESET SETTING parts_to_delay_insert")

        down = waiting.result(timeout=PATIENCE_S)

    assert acknowledged(down) == [m.number for m in messages[1:]]
    assert counts(dsn, "round", "request", "batch") == {
        "round": len(traffic.rounds),
        "request": len(traffic.requests_ended),
        "batch": len(messages),
    }


def test_a_store_that_is_away_for_a_while_loses_nothing(dsn):
    traffic = Traffic()
    messages = traffic.messages()

    with service(dsn) as running_, ThreadPoolExecutor(1) as pool:
        exchange(running_.port, messages[:1])
        running_.store.command("RENAME TABLE request TO elsewhere")
        waiting = pool.submit(exchange, running_.port, messages[1:])
        until(lambda: b'insert_errors_total{code="60"}' in running_.metrics.text())
        assert not waiting.done()
        running_.store.command("RENAME TABLE elsewhere TO request")

        waiting.result(timeout=PATIENCE_S)

    assert counts(dsn, "round", "batch") == {"round": len(traffic.rounds), "batch": len(messages)}


def test_rows_that_the_store_itself_refuses_hold_up_nobody_and_are_counted(dsn):
    good = Traffic(seed=1, replica="good", pairs=1)
    bad = Traffic(seed=2, replica="bad", pairs=1)

    with service(dsn) as running_, ThreadPoolExecutor(2) as pool:
        constraint = "ADD CONSTRAINT none CHECK replica != 'bad'"
        running_.store.command(f"ALTER TABLE round {constraint}")
        work = [
            pool.submit(exchange, running_.port, t.messages(), sources=[(t.replica, t.boot)])
            for t in (good, bad)
        ]
        down = [future.result(timeout=PATIENCE_S) for future in work]
        by_replica = {row["replica"]: row for row in running_.store.rows(queries.reconciliation())}

    assert [refused(messages) for messages in down] == [0, len(bad.rounds)]
    assert by_replica["good"]["rounds"] == len(good.rounds)
    assert by_replica["bad"]["rounds"] == 0
    assert by_replica["bad"]["lost"] == len(bad.rounds)
    assert {row["unaccounted"] for row in by_replica.values()} == {0}


def test_a_store_that_cannot_say_what_it_has_sends_the_sidecar_away_for_now(dsn):
    with service(dsn) as running_:
        running_.store.command("RENAME TABLE batch TO elsewhere")

        with pytest.raises(grpc.RpcError) as raised:
            exchange(running_.port, [])

    assert raised.value.code() == grpc.StatusCode.UNAVAILABLE
    assert "batch" in raised.value.details()


def test_policies_come_down_when_they_change_and_to_whoever_connects_later(dsn):
    with Store.open(dsn) as store:
        migrate(store)
        store.insert("policy", policy(1))

    with service(dsn) as running_:
        with follow(running_.port) as stream_:
            first = next(m.policy for m in stream_ if m.HasField("policy"))
            running_.store.insert("policy", policy(2))
            second = next(m.policy for m in stream_ if m.HasField("policy"))
        with follow(running_.port) as stream_:
            later = next(m.policy for m in stream_ if m.HasField("policy"))

    assert (first.number, first.json) == (1, '{"policy": 1}')
    assert (second.number, later.number) == (2, 2)


def policy(number):
    row = {
        "policy": number, "created_at": 1, "kind": "table", "seed": 0, "arms": ["current"],
        "block_ms": None, "burn_in_ms": None, "first_pair": 0,
        "table": f'{{"policy": {number}}}', "note": "",
    }  # fmt: skip
    return table("policy", [row])


@contextlib.contextmanager
def follow(port):
    """A stream that stays open, as a sidecar's does."""
    done = threading.Event()

    def up():
        yield hello()
        done.wait()

    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = TelemetryStub(channel).Publish(up(), timeout=PATIENCE_S)
        yield call
        done.set()
        call.cancel()


def test_an_empty_batch_is_kept_in_the_ledger_and_acknowledged(dsn):
    empty = wire.Batch(
        source=wire.Source(replica="r0", boot="b0"), number=1, first_seq=0, next_seq=0
    )

    with service(dsn) as running_:
        down = exchange(running_.port, [empty])
        again = exchange(running_.port, [])

    assert acknowledged(down) == [1]
    assert resume(again) == {SOURCE: (1, 0)}


def test_a_number_that_somebody_else_used_does_not_hide_a_batch(dsn):
    traffic = Traffic()
    (first, *_) = traffic.messages()
    empty = wire.Batch(source=first.source, number=first.number, first_seq=0, next_seq=0)

    with service(dsn) as running_:
        exchange(running_.port, [empty])
        down = exchange(running_.port, traffic.messages())
        again = exchange(running_.port, [])

    assert acknowledged(down) == [message.number for message in traffic.messages()]
    assert counts(dsn, "round") == {"round": len(traffic.rounds)}
    assert resume(again)[SOURCE][1] == traffic.messages()[-1].next_seq


def test_a_policy_does_not_come_with_batches(dsn):
    forged = wire.Batch(source=wire.Source(replica="r0", boot="b0"), number=1)
    forged.tables.add(name="policy", arrow=stream(policy(4_294_967_295)))

    with service(dsn) as running_:
        down = exchange(running_.port, [forged])
        stored = running_.store.rows("SELECT count() AS n FROM policy")

    assert refused(down) == 1
    assert stored == [{"n": 0}]


def test_a_batch_of_nonsense_is_acknowledged_with_what_was_refused(dsn):
    bad = wire.Batch(source=wire.Source(replica="r0", boot="b0"), number=1)
    bad.tables.add(name="round", arrow=b"nonsense")
    bad.tables.add(name="secrets", arrow=stream(pa.table({"a": [1]})))

    with service(dsn) as running_:
        down = exchange(running_.port, [bad])

    assert acknowledged(down) == [1]
    assert refused(down) == 2


def test_a_stopping_service_stores_what_it_has_taken(dsn):
    traffic = Traffic()

    with service(dsn) as running_, ThreadPoolExecutor(1) as pool:
        work = pool.submit(exchange, running_.port, traffic.messages())
        until(lambda: b"specscope_streams 1.0" in running_.metrics.text() or work.done())

    assert acknowledged(work.result()) or work.exception()
    stored = counts(dsn, "round")["round"]
    assert stored in (0, len(traffic.rounds))


def test_the_rollups_follow_by_themselves(dsn):
    traffic = Traffic(started_at=time.time_ns() - 600 * 10**9)

    with service(dsn) as running_:
        exchange(running_.port, traffic.messages())
        # Of four blocks, since the last may still grow.
        until(lambda: rows(running_.store, "block_time") >= 3)
        until(lambda: rows(running_.store, "minute") > 0)


def rows(store, name):
    return store.rows(f"SELECT count() AS n FROM {name} FINAL")[0]["n"]


def test_a_port_in_use_and_a_store_that_is_owned_are_named(dsn, tmp_path):
    other = f"chdb://{tmp_path}/other"
    with service(dsn) as running_:
        for settings, error in (
            (ServiceSettings(other, f"127.0.0.1:{running_.port}", "127.0.0.1:0"), ServiceError),
            (
                ServiceSettings(other, "127.0.0.1:0", f"127.0.0.1:{running_.http_port}"),
                ServiceError,
            ),
            (ServiceSettings(dsn, "127.0.0.1:0", "127.0.0.1:0"), StoreBusy),
        ):
            with pytest.raises(error, match=r"in use|owned by process"):
                asyncio.run(enter(settings))


async def enter(settings):
    async with running(settings):
        raise AssertionError("it must not start")
