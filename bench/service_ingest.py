"""gRPC into the store, against a bare `insert_arrow` of the same rows into the same tables.

Budget: at least 80 %, with the same fsync. Both ways insert the same rows into a fresh store each,
in turns within one run, and the ratio of the two medians is printed. The service runs in a process
of its own and is timed from the first batch sent to the last acknowledged; the bare way inserts
each table of all batches in blocks as large as the service's, already decoded.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

import grpc
import numpy as np
import pyarrow as pa

from specscope.store.connection import Store
from specscope.store.migrate import migrate
from specscope_agent import telemetry_pb2 as wire
from specscope_agent.schemas import schema
from specscope_agent.telemetry_pb2_grpc import TelemetryStub
from specscope_agent.wire import encode

BLOCK_ROWS = 250_000
CLASSES = pa.array(["chat", "code", "sql", "summary"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=4000, help="rounds a batch")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    batches = [_tables(number, args.rounds) for number in range(args.batches)]
    rows = sum(table.num_rows for tables in batches for table in tables.values())
    messages = [_message(number, tables) for number, tables in enumerate(batches, start=1)]
    size = sum(message.ByteSize() for message in messages)
    bare, served = [], []
    for _ in range(args.repeats):
        bare.append(_bare(batches))
        served.append(_served(messages))
    ratio = statistics.median(bare) / statistics.median(served)
    print(
        json.dumps(
            {
                "rows": rows,
                "megabytes": round(size / 1e6, 1),
                "bare_rows_per_s": round(rows / statistics.median(bare)),
                "grpc_rows_per_s": round(rows / statistics.median(served)),
                "ratio": round(ratio, 3),
                "budget": 0.8,
            }
        )
    )


def _bare(batches: list[dict[str, Any]]) -> float:
    with tempfile.TemporaryDirectory() as folder, Store.open(f"chdb://{folder}/store") as store:
        migrate(store, synced=True)
        began = time.perf_counter()
        for name in batches[0]:
            rows = pa.concat_tables(tables[name] for tables in batches)
            for start in range(0, rows.num_rows, BLOCK_ROWS):
                store.client.insert_arrow(name, rows.slice(start, BLOCK_ROWS))
        return time.perf_counter() - began


def _served(messages: list[Any]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, "-m", "specscope", "serve", "--json", "--store",
             f"chdb://{folder}/store", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"],
            stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        assert process.stdout is not None
        port = json.loads(process.stdout.readline())["grpc"]
        try:
            return _send(port, messages)
        finally:
            process.terminate()
            process.wait()


def _send(port: int, messages: list[Any]) -> float:
    greeted, began = threading.Event(), 0.0

    def up() -> Any:
        source = wire.Source(replica="r", boot="b")
        yield wire.FromAgent(hello=wire.Hello(schema_version=1, sources=[source]))
        greeted.wait()
        yield from (wire.FromAgent(batch=batch) for batch in messages)

    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        acknowledged = 0
        for message in TelemetryStub(channel).Publish(up()):
            if message.HasField("resume"):
                began = time.perf_counter()
                greeted.set()
            acknowledged += message.HasField("ack")
            assert not message.ack.refused_rows
        assert acknowledged == len(messages), acknowledged
        return time.perf_counter() - began


def _message(number: int, tables: dict[str, Any]) -> Any:
    """A wire batch, compressed as sidecars do."""
    source = wire.Source(replica="r", boot="b")
    batch = wire.Batch(source=source, number=number, first_seq=number, next_seq=number + 1)
    for name, rows in tables.items():
        batch.tables.add(name=name, arrow=encode({name: rows})[0].arrow)
    return batch


def _tables(number: int, rounds: int) -> dict[str, Any]:
    random = np.random.default_rng(number)
    seq = np.arange(number * rounds, (number + 1) * rounds, dtype=np.uint64)
    started = time.time_ns() - 3600 * 10**9 + seq.astype(np.int64) * 5_000_000
    return {
        "round": _fill("round", rounds, random, seq=seq, started_at=started),
        "request_part": _fill(
            "request_part",
            rounds // 4,
            random,
            first_seq=seq[::4],
            started_at=started[::4],
            request=random.integers(0, 2**63, rounds // 4).astype(np.uint64),
        ),
    }


def _fill(name: str, count: int, random: Any, **given: Any) -> Any:
    """Plausible values for every column: few labels, small counts, floats that do not repeat."""
    columns = []
    for field in schema(name):
        kind = field.type
        if field.name in given:
            columns.append(pa.array(given[field.name]).cast(kind))
        elif field.name in ("replica", "boot"):
            columns.append(pa.array([field.name[0]] * count))
        elif pa.types.is_list(kind):
            width = 1 if pa.types.is_string(kind.value_type) or name == "round" else 20
            values = _values(kind.value_type, count * width, random)
            offsets = np.arange(0, count * width + 1, width, dtype=np.int32)
            columns.append(pa.ListArray.from_arrays(offsets, values).cast(kind))
        else:
            columns.append(_values(kind, count, random))
    return pa.Table.from_arrays(columns, schema=schema(name))


def _values(kind: Any, count: int, random: Any) -> Any:
    if pa.types.is_string(kind):
        return CLASSES.take(pa.array(random.integers(0, 4, count)))
    if pa.types.is_floating(kind):
        return pa.array(random.uniform(100, 20_000, count)).cast(kind)
    return pa.array(random.integers(0, 60, count)).cast(kind)


if __name__ == "__main__":
    main()
