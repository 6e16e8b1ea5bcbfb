"""The gRPC servicer: one stream per sidecar (Hello, Resume, batches up, acknowledgements down).

Operators have one call for a new policy, which every stream receives at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any
from weakref import WeakValueDictionary

import grpc

from specscope.errors import StoreError
from specscope.service.access import PUBLISH, Access, Grant
from specscope.service.admission import Admission
from specscope.service.apply import applied, kept
from specscope.service.calls import Refused, granted, named, parsed, plausible
from specscope.service.decode import claims
from specscope.service.intake import Admitted
from specscope.service.limits import (
    HELLO_S,
    MAX_STREAMS,
    MAX_STREAMS_OF_TENANT,
    MAX_UNHEARD,
    MESSAGES_BURST,
    MESSAGES_S,
    UNHEARD_S,
    Pace,
    Sparing,
)
from specscope.service.metrics import Metrics
from specscope.service.writer import Writer
from specscope.store.connection import Store
from specscope.store.ledger import NOWHERE, Position, Source, positions
from specscope_agent import telemetry_pb2 as wire

complaints = Sparing(logging.getLogger(__name__))

ROOM_BYTES = 128 << 20  # in memory at once, decoded, of all sidecars; then they wait
SMALL_BYTES = 64 << 10  # an ordinary batch has some 20 KiB


class ByteRoom:
    """The limit of bytes that wait for the store, shared by all streams."""

    def __init__(self, size: int, metrics: Metrics) -> None:
        self._size, self._used, self._metrics = size, 0, metrics
        self._freed = asyncio.Event()

    async def take(self, count: int) -> None:
        """Wait for room; one batch always fits if no other waits."""
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
    """One sidecar's stream: its sources and its open acknowledgements."""

    def __init__(self, grant: Grant) -> None:
        self.grant = grant
        self.sources: frozenset[Source] = frozenset()
        """Those of its Hello; it ships for no other."""
        self.greeted = False
        self.takes_acks = False
        """Whether several acknowledgements may come in one message."""
        self.down: asyncio.Queue[Any] = asyncio.Queue()
        self.pace = Pace(MESSAGES_S, MESSAGES_BURST)
        self.open = 0
        self.reading = True

    def answer(self, acks: Sequence[Any]) -> None:
        """Acknowledge batches."""
        self.open -= len(acks)
        if self.takes_acks:
            self.down.put_nowait(wire.FromService(acks=wire.Acks(acks=acks)))
        else:
            for ack in acks:
                self.down.put_nowait(wire.FromService(ack=ack))
        self._end_if_done()

    async def heard(self) -> None:
        """Wait while the sidecar does not read its acknowledgements."""
        while self.down.qsize() > MAX_UNHEARD:
            await asyncio.sleep(UNHEARD_S)

    def end_reading(self) -> None:
        self.reading = False
        self._end_if_done()

    def _end_if_done(self) -> None:
        if not self.reading and not self.open:
            self.down.put_nowait(None)


class Ingest:
    """The servicer. It runs in one event loop; `ledger` is a separate store session."""

    def __init__(
        self,
        ledger: Store,
        writer: Writer,
        admission: Admission,
        metrics: Metrics,
        access: Access | None = None,
    ) -> None:
        """admission: receives the batches, for the writer. access: rights to publish and apply;
        None allows everybody to publish and nobody to apply"""
        self._ledger, self._metrics = ledger, metrics
        self._writer, self._admission = writer, admission
        self._access = access or Access()
        self._turn = asyncio.Lock()
        """To ask for positions, which one session does. Of each token one Hello waits for it, and
        the others wait for that: however many a tenant says, one of another's waits for one."""
        self._turn_of: WeakValueDictionary[Grant, asyncio.Lock] = WeakValueDictionary()
        self._room = ByteRoom(ROOM_BYTES, metrics)
        self._stored: dict[Source, Position] = {}
        self._streams: set[Stream] = set()
        self._shipping: dict[Source, Stream] = {}
        self._writing: Counter[Source] = Counter()
        self._drained = asyncio.Event()
        """Set, and replaced, when the writer holds nothing more of a source."""
        self._done: deque[tuple[Admitted, int, Stream]] = deque()
        """Batches that are stored, the room that they took, and who waits to hear of it."""
        self._waking = False
        """Whether the loop was told to look at them."""
        self._open = 0
        self._open_of: Counter[Grant] = Counter()
        self._policy: Any = None

    async def Publish(self, requests: AsyncIterator[bytes], context: Any) -> None:  # noqa: N802
        """See telemetry.proto."""
        self._open += 1
        self._metrics.streams.inc()
        stream = reader = None
        try:
            if self._open > MAX_STREAMS:
                raise Refused(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_STREAMS} streams are open")
            stream = Stream(granted(self._access, PUBLISH, context))
            self._count(stream)
            reader = asyncio.create_task(self._read(requests, stream))
            while (message := await stream.down.get()) is not None:
                if isinstance(message, Exception):
                    raise message
                await context.write(message)
            await reader
        except StoreError as error:  # the sidecar keeps its batches, backs off and comes back
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        except Refused as error:
            self._metrics.refused_calls.labels(code=error.code.name).inc()
            complaints.warn(error.code.name, f"{context.peer()} is refused: {error}")
            await context.abort(error.code, str(error))
        finally:
            self._open -= 1
            self._metrics.streams.dec()
            if stream:
                self._open_of[stream.grant] -= 1
            if stream and reader:
                reader.cancel()
                self._leave(stream)

    def _count(self, stream: Stream) -> None:
        """Raises Refused if a tenant's token has too many streams."""
        self._open_of[stream.grant] += 1
        if stream.grant.restricted and self._open_of[stream.grant] > MAX_STREAMS_OF_TENANT:
            text = f"{MAX_STREAMS_OF_TENANT} streams of the token {stream.grant.name!r} are open"
            raise Refused(grpc.StatusCode.RESOURCE_EXHAUSTED, text)

    async def Apply(self, request: bytes, context: Any) -> Any:  # noqa: N802
        """See telemetry.proto."""
        newest = await self._operated(wire.Policy, request, context, applied)
        self.push(newest.number, newest.json)
        return wire.Applied(number=newest.number)

    async def Keep(self, request: bytes, context: Any) -> Any:  # noqa: N802
        """See telemetry.proto."""
        return wire.Kept(verdicts=await self._operated(wire.Replay, request, context, kept))

    async def _operated(self, kind: Any, request: bytes, context: Any, do: Any) -> Any:
        """Run an operator's call, or refuse it in one line."""
        try:
            return await do(parsed(kind, request), context, self._writer, self._access)
        except Refused as error:
            self._metrics.refused_calls.labels(code=error.code.name).inc()
            complaints.warn(error.code.name, f"{context.peer()} is refused: {error}")
            await context.abort(error.code, str(error))

    def push(self, number: int, json: str) -> None:
        """Send a policy to every sidecar, now and on each connection; numbers only rise."""
        if self._policy is not None and number <= self._policy.number:
            return
        self._policy = wire.Policy(number=number, json=json)
        for stream in self._streams:
            holds = self._access.holds(stream.grant)
            stream.down.put_nowait(wire.FromService(policy=self._policy) if holds else _gone())

    async def _read(self, requests: AsyncIterator[bytes], stream: Stream) -> None:
        try:
            # Without a deadline a stream that says nothing would stay for good.
            async with asyncio.timeout(HELLO_S) as until_hello:
                async for request in requests:
                    message = parsed(wire.FromAgent, request)
                    if message.HasField("hello"):
                        until_hello.reschedule(None)
                    await self._message(message, stream)
        except TimeoutError:
            late = f"no Hello within {HELLO_S:.0f} s"
            stream.down.put_nowait(Refused(grpc.StatusCode.DEADLINE_EXCEEDED, late))
        except (Refused, StoreError) as error:
            stream.down.put_nowait(error)
        finally:
            stream.end_reading()

    async def _message(self, message: Any, stream: Stream) -> None:
        await stream.pace.turn()
        await stream.heard()
        if not self._access.holds(stream.grant):
            raise _gone()
        if message.HasField("batch"):
            await self._batch(message.batch, stream)
        elif message.HasField("hello"):
            await self._hello(message.hello, stream)

    def _leave(self, stream: Stream) -> None:
        """Remove a stream, and the positions that only it used."""
        self._streams.discard(stream)
        for source in stream.sources:
            if self._shipping.get(source) is stream:
                del self._shipping[source]
                self._stored.pop(source, None)

    def _bind(self, stream: Stream, sources: Iterable[Source]) -> None:
        """Bind a source to its newest stream, because an older one may be a dead connection."""
        stream.sources = frozenset(sources)
        for source in stream.sources:
            before = self._shipping.get(source)
            self._shipping[source] = stream
            if before and before is not stream:
                before.down.put_nowait(_taken(source))

    async def _hello(self, hello: Any, stream: Stream) -> None:
        if stream.greeted:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "a second Hello")
        stream.greeted, stream.takes_acks = True, hello.takes_acks
        sources = named(hello.sources, stream.grant)
        self._bind(stream, sources)  # from here on the stream before hands nothing to the writer
        await self._written(sources)
        of_token = self._turn_of.setdefault(stream.grant, asyncio.Lock())
        async with of_token, self._turn:
            found = await asyncio.to_thread(positions, self._ledger, sources)
        self._stored.update({s: at for s, at in found.items() if self._shipping.get(s) is stream})
        stream.down.put_nowait(
            wire.FromService(resume=wire.Resume(positions=_wired(found.items())))
        )
        if self._policy is not None and self._policy.number != hello.policy:
            stream.down.put_nowait(wire.FromService(policy=self._policy))
        self._streams.add(stream)  # not before: Resume comes first

    async def _written(self, sources: Iterable[Source]) -> None:
        """Wait until the store has all batches that an earlier stream passed to the writer.

        With an older position the sidecar would send those batches again. If its disk has lost them
        meanwhile, the same records would be stored and also counted as lost.
        """
        while any(source in self._writing for source in sources):
            await self._drained.wait()

    async def _batch(self, batch: Any, stream: Stream) -> None:
        source = Source(batch.source.replica, batch.source.boot)
        if source not in stream.sources:
            raise Refused(
                grpc.StatusCode.PERMISSION_DENIED, "a batch of a source that Hello did not name"
            )
        plausible(batch)
        stream.open += 1
        held = self._stored.get(source, NOWHERE)
        # One that goes further than what is held was never stored, whatever its number.
        if batch.number <= held.number and batch.next_seq <= held.next_seq:
            self._metrics.repeated_batches.inc()
            stream.answer([_ack(source, batch.number, 0)])
            return
        wired = batch.ByteSize()
        # A thread costs more than the headers of a small batch take.
        if wired <= SMALL_BYTES:
            claimed = claims(batch.tables)
        else:
            claimed = await asyncio.to_thread(claims, batch.tables)
        # Decoded: a message of a kilobyte may hold rows of many megabytes.
        size = max(wired, sum(claim.size for claim in claimed))
        await self._room.take(size)
        if self._shipping.get(source) is not stream:
            self._room.free(size)
            raise _taken(source)
        loop = asyncio.get_running_loop()
        self._writing[source] += 1
        self._admission.offer(
            batch, claimed, lambda admitted: self._note_done(loop, (admitted, size, stream))
        )

    def _note_done(
        self, loop: asyncio.AbstractEventLoop, done: tuple[Admitted, int, Stream]
    ) -> None:
        """Called from the writer's thread, which stores many batches at once: the loop is woken
        once for all that it has not looked at."""
        self._done.append(done)
        if not self._waking:
            self._waking = True
            loop.call_soon_threadsafe(self._answer_done)

    def _answer_done(self) -> None:
        self._waking = False  # first: what is added from now on wakes the loop again
        acks: dict[Stream, list[Any]] = {}
        while self._done:
            batch, size, stream = self._done.popleft()
            acks.setdefault(stream, []).append(self._account(batch, size))
        for stream, some in acks.items():
            stream.answer(some)

    def _account(self, batch: Admitted, size: int) -> Any:
        """Count a batch that is stored, and give its room back. Returns its acknowledgement."""
        self._room.free(size)
        self._writing[batch.source] -= 1
        if not self._writing[batch.source]:
            del self._writing[batch.source]
            self._drained.set()
            self._drained = asyncio.Event()
        self._metrics.batches.inc()
        self._metrics.unknown_columns.inc(batch.unknown_columns)
        for reason, rows in batch.refusals.items():
            self._metrics.refused_rows.labels(reason=reason).inc(rows)
        refused = sum(batch.refusals.values())
        held = self._stored.get(batch.source, NOWHERE)
        if batch.source in self._shipping and batch.number == held.number + 1:
            self._stored[batch.source] = Position(batch.number, batch.next_seq)
        return _ack(batch.source, batch.number, refused)


def _gone() -> Refused:
    return Refused(grpc.StatusCode.UNAUTHENTICATED, "the token was removed")


def _taken(source: Source) -> Refused:
    return Refused(grpc.StatusCode.ABORTED, f"a newer stream ships for {source.replica}")


def _ack(source: Source, number: int, refused: int) -> Any:
    at = wire.Source(replica=source.replica, boot=source.boot)
    return wire.Ack(source=at, number=number, refused_rows=refused)


def _wired(found: Iterable[tuple[Source, Position]]) -> list[Any]:
    return [
        wire.Position(
            source=wire.Source(replica=source.replica, boot=source.boot),
            number=position.number,
            next_seq=position.next_seq,
        )
        for source, position in found
    ]
