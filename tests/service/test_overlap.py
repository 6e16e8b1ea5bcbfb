"""Batches that an interrupted attempt has stored, without a row of the ledger, and that come again
when the service refuses them."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest
from store.traffic import Traffic, stream, table

from specscope import queries
from specscope.service.intake import Admitted, admit, merged
from specscope.service.metrics import Metrics
from specscope.service.writer import Writer
from specscope.store.connection import Store
from specscope.store.migrate import migrate
from specscope_agent import telemetry_pb2 as wire
from specscope_agent.loss import Losses

HOUR = 3600 * 10**9
NUMBERS = {"round": "seq", "request_part": "(request, first_seq)", "request": "seq"}


@pytest.fixture
def store(tmp_path):
    with Store.open(f"chdb://{tmp_path}/store") as opened:
        migrate(opened)
        yield opened


@pytest.fixture
def traffic():
    return Traffic(started_at=time.time_ns() - 60 * 10**9)


def write(store, *batches):
    """Have batches stored as the service does, by a writer of its own. Returns how many rows it
    says are refused."""
    answered = []
    writer = Writer(store, Metrics(), lambda *_: None, flush_s=0.0)
    for batch in batches:
        writer.offer(batch, answered.append)
    writer.start()
    writer.close()
    assert answered == list(batches)
    return sum(sum(batch.refusals.values()) for batch in batches)


def lost(store):
    rows = store.rows("SELECT table, sum(count) AS n FROM loss FINAL GROUP BY table HAVING n > 0")
    return {row["table"]: row["n"] for row in rows}


def reconciled(store):
    (row,) = store.rows(queries.reconciliation())
    return row["recorded"], row["unaccounted"]


@pytest.mark.parametrize("stored", [0, 1, 2, 3])
def test_rows_that_are_stored_are_not_lost_when_the_clock_refuses_them(store, traffic, stored):
    message = traffic.messages()[1]
    whole = admit(message, time.time_ns())
    tables = list(merged([whole]))
    assert tables == ["request_part", "request", "round"]
    for name in tables[:stored]:  # and the service was killed
        store.insert(name, whole.tables[name])
    refused = admit(message, time.time_ns() - 5 * HOUR)
    assert refused.refusals == {"clock": sum(rows.num_rows for rows in whole.tables.values())}

    said = write(store, refused)

    counts = {name: whole.tables[name].num_rows for name in tables}
    assert lost(store) == {name: counts[name] for name in tables[stored:]}
    assert said == sum(counts[name] for name in tables[stored:])
    (row,) = store.rows("SELECT *, toUnixTimestamp64Nano(first_at) AS began FROM batch")
    held = {name: counts[name] * (name in tables[:stored]) for name in tables}
    assert row["request_parts"] == held["request_part"]
    assert (row["requests"], row["rounds"]) == (held["request"], held["round"])
    assert reconciled(store) == (40, 0)
    first = whole.tables["request_part"]["started_at"].cast(pa.int64()).to_pylist()
    assert row["began"] == (min(first) if stored else None)


def test_of_rows_that_are_stored_in_part_the_rest_is_lost(store, traffic):
    message = traffic.messages()[1]
    whole = admit(message, time.time_ns())
    store.insert("round", whole.tables["round"].slice(0, 5))

    write(store, admit(message, time.time_ns() - 5 * HOUR))

    rounds = whole.tables["round"]
    (loss,) = store.rows("SELECT * FROM loss WHERE table = 'round'")
    assert (loss["count"], loss["first_seq"]) == (rounds.num_rows - 5, rounds["seq"][5].as_py())
    assert reconciled(store) == (40, 0)


def test_the_end_of_a_request_accounts_for_its_admission(store, traffic):
    message = traffic.messages(records=1000)[0]
    whole = admit(message, time.time_ns())
    requests = whole.tables["request"]
    store.insert("request", requests)
    store.command("OPTIMIZE TABLE request FINAL")  # admissions are gone

    write(store, admit(message, time.time_ns() - 5 * HOUR))

    assert "request" not in lost(store)
    assert reconciled(store)[1] == 0


def test_an_admission_does_not_account_for_the_end_of_its_request(store, traffic):
    message = traffic.messages(records=1000)[0]
    requests = admit(message, time.time_ns()).tables["request"]
    ended = pa.compute.is_valid(requests["ended_at"])
    store.insert("request", requests.filter(pa.compute.invert(ended)))

    write(store, admit(message, time.time_ns() - 5 * HOUR))

    assert lost(store)["request"] == pa.compute.sum(ended).as_py()


def test_samples_of_devices_are_looked_for_too(store, traffic):
    rows = table(
        "device",
        [
            {"replica": "r0", "sampled_at": time.time_ns() + at, "uuid": "G", "field": "power",
             "value": 1.0, "unit": "W", "reason": ""}
            for at in range(3)
        ],
    )  # fmt: skip
    source = wire.Source(replica="r0", boot="b0")
    message = wire.Batch(source=source, number=1, first_seq=1, next_seq=1)
    message.tables.add(name="device", arrow=stream(rows))
    store.insert("device", rows.slice(1))

    write(store, admit(message, time.time_ns() - 5 * HOUR))

    assert lost(store) == {"device": 1}


def test_rows_of_others_are_never_met(store, traffic):
    mine, other = traffic, Traffic(replica="other", started_at=traffic.started_at)
    store.insert("round", admit(other.messages()[1], time.time_ns()).tables["round"])
    forged = mine.messages()[1]
    del forged.tables[:]
    rows = other.batches()[1]["round"]
    forged.tables.add(name="round", arrow=stream(rows))

    write(store, admit(forged, time.time_ns()), admit(mine.messages()[2], 0))

    assert lost(store)["round"] == rows.num_rows + mine.batches()[2]["round"].num_rows


@pytest.mark.parametrize("before", ["clock", "corrupt"])
def test_losses_of_an_attempt_that_was_interrupted_are_taken_back_when_the_rows_come(
    store, traffic, before
):
    message = traffic.messages()[1]
    whole = admit(message, time.time_ns())
    if before == "clock":
        first = admit(message, time.time_ns() - 5 * HOUR)
    else:  # of a file that could not be read for a while
        losses = Losses(whole.source, time.time_ns())
        losses.add("ring", "corrupt", 40, 40, "a batch in the spool", number=2)
        first = Admitted(whole.source, 2, 40, 80, {"loss": losses.table()})
    store.insert("loss", first.losses())
    assert lost(store)

    write(store, whole)

    assert lost(store) == {}
    assert reconciled(store) == (40, 0)


def test_losses_that_stand_are_not_taken_back(store, traffic):
    message = traffic.messages()[1]
    refused = admit(message, time.time_ns() - 5 * HOUR)
    store.insert("loss", refused.losses())
    before = lost(store)

    write(store, admit(message, time.time_ns() - 4 * HOUR))

    assert lost(store) == before
    assert reconciled(store) == (40, 0)


def test_losses_of_the_ring_in_a_batch_that_was_damaged_since_count_once(store, traffic):
    source = admit(traffic.messages()[1], time.time_ns()).source
    gap, damaged = Losses(source, time.time_ns()), Losses(source, time.time_ns())
    gap.add("ring", "ring_full", 45, 10)
    store.insert("loss", gap.table())
    damaged.add("ring", "corrupt", 40, 40, "a batch in the spool", number=2)

    write(store, Admitted(source, 2, 40, 80, {"loss": damaged.table()}))

    rows = store.rows("SELECT reason, first_seq, count FROM loss FINAL ORDER BY first_seq")
    assert [(row["reason"], row["first_seq"], row["count"]) for row in rows] == [
        ("corrupt", 40, 5), ("ring_full", 45, 10), ("corrupt", 55, 25),
    ]  # fmt: skip
    assert reconciled(store) == (40, 0)


def test_a_batch_that_nobody_could_read_is_lost_but_for_what_is_stored(store, traffic):
    message = traffic.messages()[1]
    whole = admit(message, time.time_ns())
    store.insert("round", whole.tables["round"])
    unread = Admitted(whole.source, 2, 40, 80)
    unread.refuse_all("MemoryError", time.time_ns())

    write(store, unread)

    assert lost(store) == {"ring": 40 - whole.tables["round"].num_rows}
    assert reconciled(store) == (40, 0)
