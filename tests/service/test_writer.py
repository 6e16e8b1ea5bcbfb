from __future__ import annotations

import asyncio
import threading
import time

import pyarrow as pa
import pytest
from store.traffic import Traffic
from waiting import PATIENCE_S

from specscope.errors import StoreError
from specscope.service.ingest import ByteRoom
from specscope.service.intake import Admitted, Met, admit, merged
from specscope.service.metrics import Metrics
from specscope.service.overlap import Overlap
from specscope.service.writer import Backoff, Writer
from specscope.store.connection import Store
from specscope.store.migrate import migrate
from specscope_agent.loss import Losses


@pytest.fixture
def store(tmp_path):
    with Store.open(f"chdb://{tmp_path}/store") as opened:
        migrate(opened)
        yield opened


def admitted(traffic):
    now = traffic.rounds[-1].started_at
    return [admit(message, now) for message in traffic.messages(records=10)]


def test_a_delay_doubles_up_to_its_most_and_is_never_quite_the_same():
    backoff = Backoff(1.0, 30.0)

    delays = [backoff.delay(attempt) for attempt in range(40)]

    for attempt, delay in enumerate(delays):
        assert 0.5 * min(30.0, 2.0**attempt) <= delay <= min(30.0, 2.0**attempt)
    assert len(set(delays)) > 30


def test_batches_that_wait_together_are_one_insert_and_all_are_answered(store):
    batches, answered = admitted(Traffic()), []
    metrics = Metrics()
    writer = Writer(store, metrics, lambda *_: None, flush_s=0.3)
    for batch in batches:
        writer.offer(batch, answered.append)

    writer.start()
    writer.close()

    assert answered == batches
    text = metrics.text().decode()
    assert 'specscope_insert_seconds_count{table="round"} 1.0' in text
    assert 'specscope_insert_seconds_count{table="batch"} 1.0' in text


def test_batches_are_noted_once_the_ledger_has_them_with_what_their_rows_cover(store):
    seen, done, batch = [], threading.Event(), admitted(Traffic())[0]

    def noted(rows):
        ledger = store.rows("SELECT number, first_at, last_at, admitted_at FROM batch")
        began = store.rows("SELECT min(started_at) AS first, max(started_at) AS last FROM round")
        seen.append((rows, ledger, began))

    writer = Writer(store, Metrics(), noted, flush_s=0.0)
    writer.start()
    writer.offer(batch, lambda _: done.set())
    assert done.wait(PATIENCE_S)
    writer.close()

    (((row,), (ledger,), (began,)),) = seen
    assert row["number"] == ledger["number"] == 1
    assert (ledger["first_at"], ledger["last_at"]) == (began["first"], began["last"])
    assert row["first_at"] == ledger["first_at"].value
    assert row["admitted_at"] == ledger["admitted_at"].value


def test_what_could_not_be_stored_when_the_service_ends_is_not_answered(store):
    store.command("RENAME TABLE round TO elsewhere")
    answered = []
    writer = Writer(store, Metrics(), lambda *_: None, flush_s=0.0, soon=Backoff(60.0, 60.0))
    writer.start()
    writer.offer(admitted(Traffic())[0], answered.append)

    writer.close()

    assert answered == []
    assert store.rows("SELECT count() AS n FROM batch") == [{"n": 0}]


def test_a_stream_waits_while_there_is_no_room_and_goes_on_when_there_is():
    async def scene():
        room = ByteRoom(100, Metrics())
        await room.take(80)
        waiting = asyncio.create_task(room.take(40))
        await asyncio.sleep(0.01)
        held = not waiting.done()
        room.free(80)
        await asyncio.wait_for(waiting, PATIENCE_S)
        return held

    assert asyncio.run(scene())


def test_a_batch_larger_than_the_room_fits_when_nothing_else_waits():
    async def scene():
        room = ByteRoom(100, Metrics())
        await asyncio.wait_for(room.take(1000), PATIENCE_S)

    asyncio.run(scene())


def test_what_else_is_asked_is_done_between_inserts_and_its_failure_is_its_own(store):
    batches, answered = admitted(Traffic()), []
    writer = Writer(store, Metrics(), lambda *_: None, flush_s=0.3)
    given_up = writer.ask(lambda _: answered.append("given up"))
    given_up.cancel()
    failed = writer.ask(lambda _: 1 // 0)
    writer.offer(batches[0], answered.append)
    seen = writer.ask(lambda store: store.rows("SELECT count() AS n FROM round")[0]["n"])

    writer.start()
    before = seen.result(PATIENCE_S)
    writer.close()

    assert before == 0
    assert isinstance(failed.exception(), ZeroDivisionError)
    assert answered == batches[:1]


def test_who_asks_waits_neither_for_rows_nor_for_their_age(store):
    writer = Writer(store, Metrics(), lambda *_: None, flush_s=3600.0)
    writer.start()

    answer = writer.ask(lambda store: store.rows("SELECT 1 AS one")[0]["one"]).result(PATIENCE_S)

    writer.close()
    assert answer == 1


def damaged(batch, after):
    """What the sidecar sends in the place of batches up to `after` that its disk has damaged."""
    losses = Losses(batch.source, time.time_ns())
    first = batch.first_seq
    losses.add("ring", "corrupt", first, after - first, "a batch in the spool")
    losses.add("ring", "ring_full", first, 5)
    return Admitted(batch.source, 1, first, after, {"loss": losses.table()})


class Failing:
    """A store whose inserts into one table fail so many times, and do nothing then."""

    def __init__(self, store, table, failures):
        self.store, self.table, self.failures = store, table, failures

    def insert(self, table, rows, token=""):
        if table == self.table and self.failures:
            self.failures -= 1
            raise StoreError("Code: 999. made to fail")
        self.store.insert(table, rows, token)

    def __getattr__(self, name):
        return getattr(self.store, name)


def numbers(rows):
    return {seq for row in rows for seq in range(row["first_seq"], row["first_seq"] + row["count"])}


@pytest.mark.parametrize("stored", [1, 2, 3])
@pytest.mark.parametrize("failures", [0, 1])
def test_what_an_interrupted_insert_left_is_not_lost_as_well(store, stored, failures):
    first, second, *_ = admitted(Traffic())
    tables = list(merged([first]))[1:]
    assert tables == ["request_part", "request", "round"]
    for name in tables[:stored]:  # and the service ended before its ledger
        store.insert(name, first.tables[name])
    noted = []
    failing = Failing(store, "loss", failures)
    writer = Writer(failing, Metrics(), noted.extend, flush_s=0.0, soon=Backoff(0.0, 0.0))
    answered = threading.Event()
    writer.offer(damaged(first, second.next_seq), lambda _: answered.set())

    writer.start()
    assert answered.wait(PATIENCE_S)
    writer.close()

    rows = store.rows("SELECT reason, first_seq, count FROM loss ORDER BY first_seq")
    lost = numbers(row for row in rows if row["reason"] == "corrupt")
    held = {
        row["seq"] for name in ("round", "request") for row in store.rows(f"SELECT seq FROM {name}")
    }
    assert lost | held == set(range(first.first_seq, second.next_seq))
    assert not lost & held
    assert [row["count"] for row in rows if row["reason"] == "ring_full"] == [5]
    (row,) = noted
    counts = {name: store.rows(f"SELECT count() AS n FROM {name}")[0]["n"] for name in tables}
    assert [row["request_parts"], row["requests"], row["rounds"]] == [
        counts[name] for name in tables
    ]
    assert row["losses"] == len(rows)
    began = first.tables["request_part"]["started_at"].cast(pa.int64()).to_pylist()
    assert row["first_at"] == min(began)
    admissions = first.tables["request"]["admitted_at"].cast(pa.int64()).to_pylist()
    assert row["admitted_at"] == (min(admissions) if stored > 1 else None)


@pytest.mark.parametrize(("count", "met"), [(40_000, 3), (200_000, None)])
def test_of_losses_that_no_sidecar_sends_each_record_is_met_once_or_not_at_all(store, count, met):
    first, *_ = admitted(Traffic())
    rounds = first.tables["round"]
    store.insert("round", rounds.slice(0, 3))
    losses = Losses(first.source, time.time_ns())
    for detail in range(count):
        losses.add("ring", "corrupt", 0, 1 << 40, str(detail))
    batch = Admitted(first.source, 1, 0, first.next_seq, {"loss": losses.table()})

    Overlap(store).settle([batch])

    assert batch.met.get("round", Met(0, 0, 0)).rows == (met or 0)
    assert batch.tables["loss"].num_rows >= count


def test_a_loss_of_nothing_but_stored_rounds_is_none(store):
    first, *_ = admitted(Traffic())
    held = first.tables["round"].slice(0, 1)
    store.insert("round", held)
    losses = Losses(first.source, time.time_ns())
    losses.add("ring", "corrupt", held["seq"][0].as_py(), 1, "a batch in the spool")
    replaced = Admitted(first.source, 1, 1, first.next_seq, {"loss": losses.table()})
    answered = []
    writer = Writer(store, Metrics(), lambda *_: None, flush_s=0.0)
    writer.offer(replaced, answered.append)

    writer.start()
    writer.close()

    assert answered == [replaced]
    assert store.rows("SELECT rounds, losses FROM batch") == [{"rounds": 1, "losses": 0}]
    assert store.rows("SELECT count() AS n FROM loss") == [{"n": 0}]
