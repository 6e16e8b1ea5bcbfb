"""gRPC into the store, against a bare `insert_arrow` of the same rows into the same tables.

Budget: at least 80 %, with the same fsync. Both ways insert the same rows into a fresh store each,
one after the other, and the median of the pairs' ratios is printed. The service runs in a process
of its own and is timed from the first batch sent to the last acknowledged; the bare way inserts
each table of all batches in blocks as large as the service's, already decoded. `cpu_ratio` holds
their processor time against each other, which other programs on the machine do not disturb.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import numpy as np
import pyarrow as pa

from specscope.service.writer import TAKE_ROWS
from specscope.store.connection import INSERT_SETTINGS, Store
from specscope.store.migrate import migrate
from specscope_agent import telemetry_pb2 as wire
from specscope_agent.schemas import schema
from specscope_agent.telemetry_pb2_grpc import TelemetryStub
from specscope_agent.wire import encode

DRAFT = 4  # tokens
PART_ROUNDS = 20  # of a request in one batch
CLASSES = pa.array(["chat", "code", "sql", "summary"])


class Spent(NamedTuple):
    """Seconds on the clock, and of processors, of the process that inserts."""

    wall: float
    cpu: float


class Service(NamedTuple):
    """A running `specscope serve`, and the port that it takes batches on."""

    process: subprocess.Popen[str]
    port: int


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=4000, help="rounds a batch")
    parser.add_argument("--repeats", type=int, default=9, help="pairs")
    args = parser.parse_args()
    batches = [tables(number, args.rounds) for number in range(1, args.batches + 1)]
    rows = sum(table.num_rows for batch in batches for table in batch.values())
    messages = [
        wire_batch(number, batch, "r", args.rounds) for number, batch in enumerate(batches, start=1)
    ]
    size = sum(message.ByteSize() for message in messages)
    pairs = [_pair(batches, messages, served_first=turn % 2 == 1) for turn in range(args.repeats)]
    ratios = [bare.wall / served.wall for bare, served in pairs]
    print(
        json.dumps(
            {
                "rows": rows,
                "megabytes": round(size / 1e6, 1),
                "bare_rows_per_s": round(rows / statistics.median(b.wall for b, _ in pairs)),
                "grpc_rows_per_s": round(rows / statistics.median(s.wall for _, s in pairs)),
                "ratio": round(statistics.median(ratios), 3),
                "ratios": [round(ratio, 2) for ratio in sorted(ratios)],
                "cpu_ratio": round(statistics.median(b.cpu / s.cpu for b, s in pairs), 3),
                "budget": 0.8,
            }
        )
    )


def _pair(batches: list[Any], messages: list[Any], *, served_first: bool) -> tuple[Spent, Spent]:
    if served_first:
        served = _served(messages)
        return _bare(batches), served
    return _bare(batches), _served(messages)


def _bare(batches: list[dict[str, Any]]) -> Spent:
    with tempfile.TemporaryDirectory() as folder, Store.open(f"chdb://{folder}/store") as store:
        migrate(store, synced=True)
        began, before = time.perf_counter(), time.process_time()
        for name in batches[0]:
            rows = pa.concat_tables(tables[name] for tables in batches)
            for start in range(0, rows.num_rows, TAKE_ROWS):
                part = rows.slice(start, TAKE_ROWS)
                store.client.insert_arrow(name, part, settings=INSERT_SETTINGS)
        return Spent(time.perf_counter() - began, time.process_time() - before)


def _served(messages: list[Any]) -> Spent:
    with (
        tempfile.TemporaryDirectory() as folder,
        started(f"chdb://{folder}/store") as service,
    ):
        before = cpu_s(service.process.pid)
        wall = _send(service.port, messages)
        return Spent(wall, cpu_s(service.process.pid) - before)


@contextlib.contextmanager
def started(dsn: str) -> Iterator[Service]:
    """`specscope serve` on a store, until the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "specscope", "serve", "--json", "--store", dsn,
         "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        yield Service(process, json.loads(process.stdout.readline())["grpc"])
    finally:
        process.terminate()
        process.wait()


def cpu_s(process: int) -> float:
    """Processor time that a process has taken, in seconds."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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


def wire_batch(number: int, tables: dict[str, Any], replica: str, rounds: int) -> Any:
    """A wire batch, compressed as sidecars do; the first is number 1."""
    source = wire.Source(replica=replica, boot="b")
    batch = wire.Batch(
        source=source, number=number, first_seq=(number - 1) * rounds, next_seq=number * rounds
    )
    for name, rows in tables.items():
        batch.tables.add(name=name, arrow=encode({name: rows})[0].arrow)
    return batch


def tables(number: int, rounds: int, began: int | None = None) -> dict[str, Any]:
    """Rounds, and a part for each four of them, that follow on those of the number before.

    began: when the first of all rounds ran, ns since 1970; an hour ago by default. A round takes
    5 ms.
    """
    random = np.random.default_rng(number)
    seq = np.arange((number - 1) * rounds, number * rounds, dtype=np.uint64)
    began = time.time_ns() - 3600 * 10**9 if began is None else began
    started = began + seq.astype(np.int64) * 5_000_000
    return {
        "round": _fill("round", rounds, random, seq=seq, started_at=started, **_experiment(seq)),
        "request_part": _fill(
            "request_part",
            rounds // 4,
            random,
            first_seq=seq[::4],
            started_at=started[::4],
            request=random.integers(0, 2**63, rounds // 4).astype(np.uint64),
            k=[[DRAFT] * PART_ROUNDS] * (rounds // 4),
            accepted=random.integers(0, DRAFT + 1, (rounds // 4, PART_ROUNDS)).tolist(),
            # As sidecars write them: empty if all was verified and nothing was cut short.
            verified=[[]] * (rounds // 4),
            emitted=[[]] * (rounds // 4),
            **_experiment(seq[::4]),
        ),
    }


def _experiment(seq: Any) -> dict[str, Any]:
    """Two arms that take turns, a minute each."""
    block = seq.astype(np.int64) // 12_000
    arms = np.where(block % 2, "k0", f"k{DRAFT}")
    return {"policy": np.full(len(seq), 3), "pair": block // 2, "arm": arms.tolist()}


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
            width = 1 if pa.types.is_string(kind.value_type) or name == "round" else PART_ROUNDS
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
