from __future__ import annotations

import asyncio
import threading
import time

import pyarrow as pa
import pytest
from store.traffic import Traffic
from waiting import PATIENCE_S

from specscope.service.ingest import ByteRoom
from specscope.service.intake import Admitted, admit
from specscope.service.metrics import Metrics
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


def test_rounds_that_an_interrupted_insert_left_are_not_lost_as_well(store):
    first, second, *_ = admitted(Traffic())
    store.insert("round", first.tables["round"])  # and the service ended before its ledger
    held = first.tables["round"]["seq"].to_pylist()
    losses = Losses(first.source, time.time_ns())
    losses.add("ring", "corrupt", 1, second.next_seq - 1, "a batch in the spool")
    losses.add("ring", "ring_full", 1, 5)
    replaced = Admitted(first.source, 1, 1, second.next_seq, {"loss": losses.table()})
    noted = []
    writer = Writer(store, Metrics(), noted.extend, flush_s=0.0)
    writer.offer(replaced, lambda _: None)

    writer.start()
    writer.close()

    rows = store.rows("SELECT reason, first_seq, count FROM loss ORDER BY first_seq")
    lost = [
        seq
        for row in rows
        if row["reason"] == "corrupt"
        for seq in range(row["first_seq"], row["first_seq"] + row["count"])
    ]
    assert sorted([*lost, *held]) == list(range(1, second.next_seq))
    assert [row["count"] for row in rows if row["reason"] == "ring_full"] == [5]
    began = first.tables["round"]["started_at"].cast(pa.int64()).to_pylist()
    assert (noted[0]["first_at"], noted[0]["last_at"]) == (min(began), max(began))
    assert noted[0]["losses"] == len(rows)
    assert noted[0]["rounds"] == len(held)


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
