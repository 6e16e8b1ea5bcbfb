"""Batches that are checked together become what each of them becomes alone."""

from __future__ import annotations

import dataclasses
import random
import struct
import time

import pyarrow as pa
import pytest
from store.traffic import Traffic, stream, table

from specscope.service import admission
from specscope.service.admission import Admission, Incoming, admit_all
from specscope.service.decode import claims
from specscope.service.intake import admit
from specscope_agent import telemetry_pb2 as wire
from specscope_agent.schemas import schema
from specscope_agent.wire import encode

NOW = time.time_ns()
DAY = 86_400 * 10**9


def message(number=4, replica="r0", **tables):
    batch = wire.Batch(
        source=wire.Source(replica=replica, boot="b0"), number=number, first_seq=100, next_seq=140
    )
    batch.tables.extend(wire.Table(name=name, arrow=arrow) for name, arrow in tables.items())
    return batch


def rounds(count=3, **changes):
    traffic = Traffic()
    row = traffic.round_row(traffic.rounds[0]) | {"started_at": NOW} | changes
    return table("round", [row | {"seq": seq} for seq in range(count)])


def nulled(rows, name):
    """A stream whose header says that a column without NULL has one."""
    place = rows.schema.get_field_index(name)
    field = rows.schema.field(place).with_nullable(True)
    column = pa.array([None] * rows.num_rows, field.type)
    return rows.set_column(place, field, column)


def lying(rows, name):
    """The same, whose schema says that there is none."""
    columns = [nulled(rows, name).column(column) for column in rows.column_names]
    return pa.Table.from_arrays(columns, schema=schema("round"))


def in_parts(rows):
    """A stream of a record batch a row."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=1)
    return sink.getvalue().to_pybytes()


def damaged_inside(rows):
    """A compressed stream with an intact header, whose rows cannot be decompressed."""
    (encoded,) = encode({"round": rows})
    (claim,) = claims([wire.Table(name="round", arrow=encoded.arrow)])
    body = pa.ipc.read_message(pa.py_buffer(claim.messages)).body.to_pybytes()
    size = 8  # of a buffer, before its bytes
    garbage = body[:size] + bytes(len(body) - size)
    return encoded.arrow.replace(body, garbage)


def wide(rows):
    """Rows with columns that take more than we read of a head."""
    return rows.append_column("x" * (300 << 10), pa.array([1] * rows.num_rows))


def without_head(rows):
    """The rows of a stream without the message that declares their columns."""
    (claim,) = claims([wire.Table(name="round", arrow=stream(rows))])
    return bytes(claim.messages)


def crooked(rows):
    """A stream whose second record batch begins at no multiple of 8 bytes."""
    (claim,) = claims([wire.Table(name="round", arrow=stream(rows))])
    (length,) = struct.unpack_from("<i", claim.messages, 4)
    longer = bytearray(claim.messages)
    longer[4:8] = struct.pack("<i", length + 4)
    longer[8 + length : 8 + length] = bytes(4)
    return claim.head + bytes(longer) + bytes(claim.messages)


def odd_messages():
    twice = message(round=stream(rounds()))
    twice.tables.append(twice.tables[0])
    return {
        "good": message(round=stream(rounds())),
        "good, of another replica": message(7, "r1", round=stream(rounds(replica="r1"))),
        "of the wrong time": message(round=stream(rounds(started_at=NOW - 30 * DAY))),
        "of the future": message(round=stream(rounds(started_at=NOW + DAY))),
        "partly of the wrong time": message(
            round=stream(pa.concat_tables([rounds(), rounds(started_at=NOW - 30 * DAY)]))
        ),
        "of another replica": message(round=stream(rounds(replica="r9"))),
        "of another boot": message(round=stream(rounds(boot="b9"))),
        "partly of another replica": message(
            round=stream(pa.concat_tables([rounds(), rounds(replica="r9")]))
        ),
        "with a column more": message(
            round=stream(rounds().append_column("surprise", pa.array([1, 2, 3])))
        ),
        "with a column less": message(round=stream(rounds().drop_columns(["idle_us"]))),
        "without a column that must be known": message(
            round=stream(rounds().drop_columns(["seq"]))
        ),
        "with an unknown value": message(round=stream(nulled(rounds(), "waiting"))),
        "with an unknown value behind a schema that has none": message(
            round=stream(lying(rounds(), "batch"))
        ),
        "no Arrow": message(round=b"nonsense"),
        "damaged inside": message(round=damaged_inside(rounds())),
        "in parts": message(round=in_parts(rounds())),
        "in a crooked part": message(round=crooked(rounds())),
        "without its columns": message(round=without_head(rounds())),
        "with very many columns": message(round=stream(wide(rounds()))),
        "without an end": message(round=stream(rounds())[:-8]),
        "with more behind its end": message(round=stream(rounds()) * 2),
        "compressed": message(round=encode({"round": rounds()})[0].arrow),
        "cut off": message(round=stream(rounds())[:-200]),
        "no such table": message(elsewhere=stream(rounds())),
        "empty": message(),
        "with an empty table": message(round=stream(rounds(0))),
        "with a table twice": twice,
        "with two tables": message(
            round=stream(rounds(started_at=NOW - 30 * DAY)),
            loss=stream(table("loss", [])),
        ),
    }


def as_values(admitted):
    values = {field.name: getattr(admitted, field.name) for field in dataclasses.fields(admitted)}
    rows = {name: table.to_pylist() for name, table in admitted.tables.items() if table.num_rows}
    return values | {"tables": rows}


def offered(batch):
    return Incoming(batch, claims(batch.tables), lambda _: None)


@pytest.mark.parametrize("seed", range(6))
def test_together_each_batch_becomes_what_it_becomes_alone(seed):
    batches = list(odd_messages().values()) * 2 + Traffic(started_at=NOW).messages(records=10)
    random.Random(seed).shuffle(batches)

    together = admit_all([offered(batch) for batch in batches], NOW)

    alone = [admit(batch, NOW) for batch in batches]
    assert [as_values(one) for one in together] == [as_values(one) for one in alone]


@pytest.mark.parametrize("name", odd_messages())
def test_a_turn_of_one_batch_is_the_same(name):
    batch = odd_messages()[name]

    (together,) = admit_all([offered(batch)], NOW)

    assert as_values(together) == as_values(admit(batch, NOW))


def test_what_no_check_foresaw_refuses_one_batch_and_no_other(monkeypatch):
    good, bad = message(), message(9, round=stream(rounds()))

    def failing(batch, now, claimed):
        if batch.number == 9:
            raise MemoryError
        return admit(batch, now, claimed)

    monkeypatch.setattr(admission, "_checked", None)
    monkeypatch.setattr(admission, "admit", failing)
    first, second = admit_all([offered(good), offered(bad)], NOW)

    assert (first.refused, second.refused) == (0, 40)
    (loss,) = second.losses().to_pylist()
    assert (loss["table"], loss["first_seq"], loss["count"]) == ("ring", 100, 40)
    assert loss["detail"] == "MemoryError"


class Writer:
    """Keeps what it is handed."""

    def __init__(self):
        self.batches = []

    def offer(self, batch, answer, since):
        self.batches.append(batch)
        answer(batch)


@pytest.mark.parametrize("linger_s", [0.0, 3600.0])
def test_batches_reach_the_writer_in_order_and_before_the_end(linger_s, monkeypatch):
    monkeypatch.setattr(admission, "TURN_BYTES", 2000)
    writer, answered = Writer(), []
    stage = Admission(writer, linger_s=linger_s)
    stage.start()

    for number in range(1, 41):
        batch = message(number, round=stream(rounds(number % 4)))
        stage.offer(batch, claims(batch.tables), answered.append)
    stage.close()

    assert [batch.number for batch in writer.batches] == list(range(1, 41))
    assert answered == writer.batches
    assert not stage.alive
