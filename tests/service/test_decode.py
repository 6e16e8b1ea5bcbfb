"""Small messages that claim much, and types that no sidecar sends: refused undecoded."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from store.traffic import Traffic, stream

from specscope.service.decode import MAX_BYTES, MAX_ROWS, claims, decoded
from specscope.service.intake import admit
from specscope_agent import telemetry_pb2 as wire

ROWS = 20_000_000


def encoded(rows: pa.Table, codec: str | None = "zstd") -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_table(rows)
    return sink.getvalue().to_pybytes()


def dictionary():
    """One long text, and many references to it."""
    indices = pa.array(np.zeros(2_000, np.int32))
    values = pa.array(["x" * 100_000])
    return pa.table({"arm": pa.DictionaryArray.from_arrays(indices, values)})


def run_end():
    ends, values = pa.array([ROWS], pa.int32()), pa.array([1.0], pa.float32())
    return pa.table({"wall_us": pa.RunEndEncodedArray.from_arrays(ends, values)})


def lists_of_nothing():
    offsets = pa.array(np.zeros(2, np.int32))
    return pa.table({"classes": pa.ListArray.from_arrays(offsets, pa.nulls(0))})


BOMBS = {
    "a dictionary": encoded(dictionary()),
    "run ends": encoded(run_end()),
    "a column of nulls": encoded(pa.table({"wall_us": pa.nulls(ROWS)})),
    "an unknown column of nulls": encoded(pa.table({"anything": pa.nulls(ROWS)})),
    "zstd": encoded(pa.table({"seq": pa.array(np.zeros(ROWS, np.uint64))})),
    "zstd, of an unknown column": encoded(pa.table({"x": pa.array(np.zeros(ROWS, np.uint64))})),
    "lz4": encoded(pa.table({"seq": pa.array(np.zeros(ROWS, np.uint64))}), "lz4"),
    "rows that lack most columns": encoded(
        pa.table({"invalid": pa.array(np.zeros(MAX_ROWS, np.uint32))})
    ),
    "many rows": encoded(pa.table({"k": pa.array(np.zeros(MAX_ROWS + 1, np.uint8))})),
    "a structure": encoded(pa.table({"x": [{"a": 1}]})),
    "lists of lists": encoded(pa.table({"classes": [[["x"]]]})),
    "lists of nulls": encoded(lists_of_nothing()),
    "views of text": encoded(pa.table({"arm": pa.array(["x"], pa.string_view())})),
    "a wider number": encoded(pa.table({"k": pa.array([1], pa.uint16())})),
    "a column twice": encoded(pa.table([pa.array([1], pa.uint64())] * 2, names=["seq", "seq"])),
    "no column that is known": encoded(pa.table({"x": [1]})),
}


@pytest.mark.parametrize("what", BOMBS)
def test_a_message_that_claims_too_much_or_other_types_is_refused(what):
    admitted = admit(batch_of(BOMBS[what]), 0)

    assert set(admitted.tables) == {"loss"}
    assert admitted.refusals == {"refused": 1}


def batch_of(arrow):
    batch = wire.Batch(source=wire.Source(replica="r0", boot="b0"), number=1)
    batch.tables.add(name="round", arrow=arrow)
    return batch


PEAK = """
import resource, sys
from specscope.service.intake import admit
from specscope_agent import telemetry_pb2 as wire
batches = [wire.Batch.FromString(bytes.fromhex(line)) for line in sys.stdin]
admit(wire.Batch(), 0)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for batch in batches:
    admit(batch, 0)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_stays_flat_while_they_are_refused():
    lines = "\n".join(batch_of(arrow).SerializeToString().hex() for arrow in BOMBS.values())

    grown = subprocess.run(
        [sys.executable, "-c", PEAK], input=lines, capture_output=True, text=True, check=True
    )

    assert int(grown.stdout) < 16 << 10  # KiB


def test_what_is_decoded_is_no_more_than_what_was_claimed():
    tables = [part for message in Traffic().messages() for part in message.tables]

    for claim in claims(tables):
        rows = decoded(claim)
        assert claim.rows == rows.num_rows
        assert rows.nbytes <= claim.size <= 2 * rows.nbytes + 4096


@pytest.mark.parametrize("codec", ["lz4", "zstd", None])
def test_a_claim_is_the_same_however_it_is_compressed(codec):
    rows = Traffic().batches()[0]["round"]

    (claim,) = claims([wire.Table(name="round", arrow=encoded(rows, codec))])

    assert (claim.rows, claim.fault) == (rows.num_rows, "")
    assert decoded(claim).equals(rows)


def test_what_the_tables_of_a_batch_claim_is_added():
    rows = pa.table({"seq": pa.array(np.zeros(20_000, np.uint64))})

    parts = claims([wire.Table(name="round", arrow=encoded(rows))] * 20)

    assert sum(part.size for part in parts) <= MAX_BYTES
    assert [bool(part.fault) for part in parts] == sorted(bool(part.fault) for part in parts)
    assert parts[-1].fault


def test_a_batch_of_very_many_tables_is_one_refusal():
    batch = wire.Batch(source=wire.Source(replica="r0", boot="b0"), number=1)
    for _ in range(5_000):
        batch.tables.add(name="nothing")

    admitted = admit(batch, 0)

    assert admitted.refused < 50


def test_a_batch_within_a_batch_of_rows_is_counted_row_by_row():
    rows = Traffic().batches()[0]["round"]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=3)

    (claim,) = claims([wire.Table(name="round", arrow=sink.getvalue().to_pybytes())])

    assert claim.rows == rows.num_rows
    assert decoded(claim).num_rows == rows.num_rows


def test_a_column_of_a_newer_sidecar_is_counted_and_left_where_it_is():
    rows = Traffic().batches()[0]["round"]
    newer = rows.append_column("newer", pa.array(["x"] * rows.num_rows))

    (claim,) = claims([wire.Table(name="round", arrow=stream(newer))])

    assert claim.unknown == 1
    assert decoded(claim).column_names == rows.column_names
