"""Send batches to the service, and receive acknowledgements and policies.

There is one stream at a time. It opens with Hello, and the service answers with the positions that
it already has. Then batches follow, with at most a few unacknowledged ones; an acknowledgement
deletes its batch from the spool. After the end of a stream, a new one opens after a pause that
doubles, with jitter, so that many sidecars do not return at once.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from specscope_agent import telemetry_pb2 as wire
from specscope_agent.channel import Security, refusal
from specscope_agent.errors import AgentError, ProtocolError
from specscope_agent.lane import MOST_UNACKNOWLEDGED
from specscope_agent.sealed import intact, sealed
from specscope_agent.source import Source
from specscope_agent.spool import Spool
from specscope_hook.columns import SCHEMA_VERSION

log = logging.getLogger("specscope.agent")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 30.0
LONGEST_SETTLING_S = 5.0
COMPLAINT_INTERVAL_S = 60.0
_PUBLISH = "/specscope.v1.Telemetry/Publish"
_CHANNEL_OPTIONS = (
    # A peer that is gone without a word is noticed within half a minute.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.max_receive_message_length", 4 << 20),
    # Pauses are ours; the channel's own would add to them.
    ("grpc.max_reconnect_backoff_ms", 1_000),
)


@dataclass(slots=True)
class Counts:
    """Counts of messages on the stream."""

    connected: bool = False
    streams: int = 0
    sent: int = 0
    acknowledged: int = 0
    refused_rows: int = 0


@dataclass(slots=True)
class _Session:
    """One stream: its sent batches, and whether to end it."""

    sources: tuple[Source, ...]
    resumed: bool = False
    sent: dict[Source, int] = field(default_factory=dict)
    unacknowledged: set[tuple[Source, int]] = field(default_factory=set)
    over: bool = False
    answers: Any = None


class Uplink:
    """Ship a spool's batches to one service, in a separate thread."""

    def __init__(
        self,
        address: str,
        spool: Spool,
        on_policy: Callable[[int, str], None],
        *,
        version: str = "",
        policy: Callable[[], int] = int,
        security: Security | None = None,
    ) -> None:
        """on_policy: called with number and JSON. policy: the number in force here.

        Policies are followed only if TLS verifies the service, or if it is on this machine.
        """
        self.counts = Counts()
        self._address = address
        self._spool = spool
        self._on_policy = on_policy
        self._version = version
        self._policy = policy
        self._security = security or Security()
        self._refused_policy = 0
        self._stop = threading.Event()
        self.thread = threading.Thread(target=self._run, name="uplink", daemon=True)

    def start(self) -> None:
        self.thread.start()

    def close(self, timeout_s: float = 5.0) -> None:
        """End the stream; unacknowledged batches stay in the spool."""
        self._stop.set()
        with self._spool.changed:
            self._spool.changed.notify_all()
        if self.thread.ident is not None:  # never started where a port was in use
            self.thread.join(timeout_s)

    def _run(self) -> None:
        failures, complained_at = 0, -COMPLAINT_INTERVAL_S
        while not self._stop.is_set():
            acknowledged = self.counts.acknowledged
            try:
                self._stream()
                failures = 0
            except Exception as error:  # whatever it is, what waits may not wait for a restart
                failures = 1 if self.counts.acknowledged > acknowledged else failures + 1
                if time.monotonic() - complained_at >= COMPLAINT_INTERVAL_S:
                    complained_at = time.monotonic()
                    log.warning("%s; batches stay in the spool", _why(error, self._address))
            self.counts.connected = False
            if failures:
                self._stop.wait(pause_s(failures, random.random()))

    def _stream(self) -> None:
        """Run one stream until it ends. Raises RpcError, SpoolError or ProtocolError."""
        session = _Session(self._spool.sources)
        with self._security.channel(self._address, _CHANNEL_OPTIONS) as channel:
            publish = channel.stream_stream(_PUBLISH, request_serializer=sealed)
            session.answers = publish(self._messages(session), metadata=self._security.metadata())
            try:
                for raw in session.answers:
                    self._take(session, _answer(raw))
            except grpc.RpcError:
                if not session.over:
                    raise
            finally:
                with self._spool.changed:
                    session.over = True
                    self._spool.changed.notify_all()
                session.answers.cancel()

    def _take(self, session: _Session, answer: wire.FromService) -> None:
        kind = answer.WhichOneof("message")
        if kind == "resume":
            for position in answer.resume.positions:
                source = Source(position.source.replica, position.source.boot)
                self._spool.resume(source, position.number, position.next_seq)
            self.counts.streams += 1
            self.counts.connected = True
        elif kind == "ack":
            self._acknowledged(session, [answer.ack])
        elif kind == "acks":
            self._acknowledged(session, answer.acks.acks)
        elif kind == "policy":
            self._take_policy(answer.policy)
        with self._spool.changed:
            session.resumed |= kind == "resume"
            self._spool.changed.notify_all()

    def _acknowledged(self, session: _Session, acks: Iterable[wire.Ack]) -> None:
        """Delete batches that the store has; nothing for what was not sent, or came twice."""
        numbers: dict[Source, list[int]] = {}
        for ack in acks:
            source = Source(ack.source.replica, ack.source.boot)
            with self._spool.changed:
                if (source, ack.number) not in session.unacknowledged:
                    continue
                session.unacknowledged.remove((source, ack.number))
            numbers.setdefault(source, []).append(ack.number)
            self.counts.refused_rows += ack.refused_rows
        for source, some in numbers.items():
            self._spool.acknowledge(source, some)
            self.counts.acknowledged += len(some)

    def _take_policy(self, policy: wire.Policy) -> None:
        if self._security.trusts(self._address):
            self._on_policy(policy.number, policy.json)
        elif policy.number != self._refused_policy:
            self._refused_policy = policy.number
            log.warning(
                "policy %d is not followed: %s is not verified; set SPECSCOPE_TLS_CA",
                policy.number,
                self._address,
            )

    def _messages(self, session: _Session) -> Iterator[wire.FromAgent]:
        """Yield Hello, then batches; ends if the sources change."""
        yield wire.FromAgent(
            hello=wire.Hello(
                agent_version=self._version,
                schema_version=SCHEMA_VERSION,
                sources=[wire.Source(**source._asdict()) for source in session.sources],
                policy=self._policy(),
                takes_acks=True,
            )
        )
        while chosen := self._next(session):
            source, number = chosen
            batch = self._spool.take(source, number)
            if batch is None:
                continue
            self.counts.sent += 1
            yield wire.FromAgent(
                batch=wire.Batch(
                    source=wire.Source(**source._asdict()),
                    number=number,
                    first_seq=batch.first_seq,
                    next_seq=batch.cursor.next_seq,
                    tables=[wire.Table(name=t.name, arrow=t.arrow) for t in batch.tables],
                )
            )

        self._settle(session)

    def _next(self, session: _Session) -> tuple[Source, int] | None:
        """Wait for the next batch to send; None to end the stream."""
        spool = self._spool
        with spool.changed:
            while not (session.over or self._stop.is_set() or spool.sources != session.sources):
                if session.resumed and len(session.unacknowledged) < MOST_UNACKNOWLEDGED:
                    for source in session.sources:
                        number = spool.next_waiting(source, session.sent.get(source, 0))
                        if number:
                            session.sent[source] = number
                            session.unacknowledged.add((source, number))
                            return source, number
                spool.changed.wait(1.0)
        return None

    def _settle(self, session: _Session) -> None:
        """Wait briefly for open acknowledgements, then end the stream."""
        with self._spool.changed:
            self._spool.changed.wait_for(
                lambda: session.over or not session.unacknowledged, LONGEST_SETTLING_S
            )
            session.over = True
        session.answers.cancel()


def pause_s(failures: int, draw: float) -> float:
    """Pause after a number of failures in a row: it doubles from 0.2 s to 30 s, half of it random.

    draw: uniform in 0..1
    """
    whole = min(FIRST_PAUSE_S * 2 ** min(failures - 1, 16), LONGEST_PAUSE_S)
    return float(whole * (0.5 + draw / 2))


def _answer(raw: bytes) -> wire.FromService:
    """Parse a message of the service. Raises ProtocolError for invalid or damaged bytes."""
    try:
        answer: wire.FromService = wire.FromService.FromString(raw)
    except DecodeError as error:
        raise ProtocolError("an answer that is no message") from error
    if not intact(answer, raw):
        raise ProtocolError("an answer that was damaged on its way")
    return answer


def _why(error: Exception, address: str) -> str:
    if isinstance(error, grpc.RpcError) and isinstance(error, grpc.Call):
        return refusal(address, error.code().name, error.details() or "")
    said = str(error) if isinstance(error, AgentError) else repr(error)
    return f"service {address}: {said}"
