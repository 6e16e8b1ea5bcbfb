"""The gRPC side: one stream a sidecar. Hello, Resume; batches up, acknowledgements down.

And one call for operators: a new policy, which every stream gets at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc

from specscope.errors import ServiceError, StoreError
from specscope.service.apply import applied
from specscope.service.decode import claims
from specscope.service.intake import Admitted, admit
from specscope.service.metrics import Metrics
from specscope.service.writer import Writer
from specscope.store.connection import Store
from specscope.store.ledger import NOWHERE, Position, Source, positions
from specscope_agent import telemetry_pb2 as wire
from specscope_agent.telemetry_pb2_grpc import TelemetryServicer, add_TelemetryServicer_to_server

MESSAGE_BYTES = 4 << 20  # sidecars send at most 2 MiB; more is somebody's mistake
ROOM_BYTES = 128 << 20  # in memory at once, decoded, of all sidecars; then they wait
OPTIONS = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.so_reuseport", 0),  # else a second service on the port would go unnoticed
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
]


class Room:
    """Bytes that may wait for the store, shared by all streams."""

    def __init__(self, size: int, metrics: Metrics) -> None:
        self._size, self._used, self._metrics = size, 0, metrics
        self._freed = asyncio.Event()

    async def take(self, count: int) -> None:
        """Wait until there is room; one batch always fits when nothing else waits."""
        while self._used and self._used + count > self._size:
            self._freed.clear()
            await self._freed.wait()
        self._used += count
        self._metrics.waiting_bytes.set(self._used)

    def free(self, count: int) -> None:
        self._used -= count
        self._metrics.waiting_bytes.set(self._used)
        self._freed.set()


class Stream:
    """What goes down one stream, and how many of its batches are still to be answered."""

    def __init__(self) -> None:
        self.down: asyncio.Queue[Any] = asyncio.Queue()
        self.open = 0
        self.reading = True

    def answer(self, message: Any) -> None:
        self.open -= 1
        self.down.put_nowait(message)
        self._end_if_done()

    def end_reading(self) -> None:
        self.reading = False
        self._end_if_done()

    def _end_if_done(self) -> None:
        if not self.reading and not self.open:
            self.down.put_nowait(None)


class Ingest(TelemetryServicer):
    """The servicer. Lives in one event loop; `ledger` is a store session of its own."""

    def __init__(
        self, ledger: Store, writer: Writer, metrics: Metrics, *, apply_token: str = ""
    ) -> None:
        """apply_token: of those who may change policies; empty: nobody may"""
        self._ledger, self._writer, self._metrics = ledger, writer, metrics
        self._apply_token = apply_token
        self._one_at_a_time = asyncio.Lock()
        self._room = Room(ROOM_BYTES, metrics)
        self._stored: dict[Source, Position] = {}
        self._streams: set[Stream] = set()
        self._policy: Any = None

    async def Publish(self, requests: AsyncIterator[Any], context: Any) -> None:  # noqa: N802
        """See telemetry.proto."""
        stream = Stream()
        self._metrics.streams.inc()
        reader = asyncio.create_task(self._read(requests, stream))
        try:
            while (message := await stream.down.get()) is not None:
                await context.write(message)
            await reader
        except StoreError as error:  # the sidecar keeps its batches, backs off and comes back
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        finally:
            reader.cancel()
            self._streams.discard(stream)
            self._metrics.streams.dec()

    async def Apply(self, policy: Any, context: Any) -> Any:  # noqa: N802
        """See telemetry.proto."""
        newest = await applied(policy, context, self._writer, self._apply_token)
        self.push(newest.number, newest.json)
        return wire.Applied(number=newest.number)

    def push(self, number: int, json: str) -> None:
        """Send a policy to every sidecar, now and when one connects; numbers only rise."""
        if self._policy is not None and number <= self._policy.number:
            return
        self._policy = wire.Policy(number=number, json=json)
        for stream in self._streams:
            stream.down.put_nowait(wire.FromService(policy=self._policy))

    async def _read(self, requests: AsyncIterator[Any], stream: Stream) -> None:
        try:
            async for message in requests:
                if message.HasField("hello"):
                    await self._hello(message.hello, stream)
                elif message.HasField("batch"):
                    await self._batch(message.batch, stream)
        finally:
            stream.end_reading()

    async def _hello(self, hello: Any, stream: Stream) -> None:
        sources = [Source(source.replica, source.boot) for source in hello.sources]
        async with self._one_at_a_time:
            found = await asyncio.to_thread(positions, self._ledger, sources)
        self._stored.update(found)
        stream.down.put_nowait(
            wire.FromService(resume=wire.Resume(positions=_wired(found.items())))
        )
        if self._policy is not None and self._policy.number != hello.policy:
            stream.down.put_nowait(wire.FromService(policy=self._policy))
        self._streams.add(stream)  # not before: Resume comes first

    async def _batch(self, batch: Any, stream: Stream) -> None:
        source = Source(batch.source.replica, batch.source.boot)
        stream.open += 1
        held = self._stored.get(source, NOWHERE)
        # One that goes further than what is held was never stored, whatever its number.
        if batch.number <= held.number and batch.next_seq <= held.next_seq:
            self._metrics.repeated_batches.inc()
            stream.answer(_ack(source, batch.number, 0))
            return
        claimed = await asyncio.to_thread(claims, batch.tables)
        # Decoded: a message of a kilobyte may hold rows of many megabytes.
        size = max(batch.ByteSize(), sum(claim.size for claim in claimed))
        await self._room.take(size)
        try:
            admitted = await asyncio.to_thread(admit, batch, time.time_ns(), claimed)
        except BaseException:  # the stream ended meanwhile
            self._room.free(size)
            raise
        loop = asyncio.get_running_loop()
        self._writer.offer(
            admitted, lambda batch: loop.call_soon_threadsafe(self._answer, batch, size, stream)
        )

    def _answer(self, batch: Admitted, size: int, stream: Stream) -> None:
        self._room.free(size)
        self._metrics.batches.inc()
        self._metrics.unknown_columns.inc(batch.unknown_columns)
        for reason, rows in batch.refusals.items():
            self._metrics.refused_rows.labels(reason=reason).inc(rows)
        held = self._stored.get(batch.source, NOWHERE)
        if batch.number == held.number + 1:
            self._stored[batch.source] = Position(batch.number, batch.next_seq)
        stream.answer(_ack(batch.source, batch.number, batch.refused))


async def listen(ingest: Ingest, address: str) -> tuple[Any, int]:
    """Start to take streams. Returns the server and its port.

    Raises ServiceError where the address cannot be bound.
    """
    server = grpc.aio.server(options=OPTIONS)
    add_TelemetryServicer_to_server(ingest, server)  # type: ignore[no-untyped-call]
    try:
        port = server.add_insecure_port(address)
    except RuntimeError:
        port = 0
    if not port:
        raise ServiceError(f"cannot listen on {address}: in use, or not an address of this machine")
    await server.start()
    return server, port


def _ack(source: Source, number: int, refused: int) -> Any:
    at = wire.Source(replica=source.replica, boot=source.boot)
    return wire.FromService(ack=wire.Ack(source=at, number=number, refused_rows=refused))


def _wired(found: Iterable[tuple[Source, Position]]) -> list[Any]:
    return [
        wire.Position(
            source=wire.Source(replica=source.replica, boot=source.boot),
            number=position.number,
            next_seq=position.next_seq,
        )
        for source, position in found
    ]
