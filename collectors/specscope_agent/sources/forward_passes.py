"""An engine that publishes its forward passes over ZMQ (`ForwardPassMetrics`, version 1).

NVIDIA Dynamo's vLLM workers and SGLang (`--enable-forward-pass-metrics`) do. Each pass
gives one message: its duration, decoding sequences and their context tokens, computed prompt
tokens, and waiting requests. No message says what was drafted, kept or given
out, nor for whom. So the sidecar stores sums of an interval, one row of `device` each, and no
rounds. No verdict rests on them. They say what a pass costs at which batch and context.

Whoever subscribes late or reads too slowly misses messages. These are counted by the messages' own
numbers.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

from specscope_agent.source import Source
from specscope_agent.sources.interface import Harvest, Row
from specscope_agent.sources.sums import INTERVAL_NS, Sum, sum_rows
from specscope_hook.boot import new_boot
from specscope_hook.layout import FIRST_SEQ
from specscope_hook.ring import Cursor
from specscope_hook.settings import HookSettings

log = logging.getLogger("specscope.agent")

VERSION = 1
MOST_WAITING = 100_000  # messages that ZMQ keeps for us: minutes of a fast engine
MOST_BYTES = 1 << 20  # of one message; real ones have some 500
MOST_AT_ONCE = 20_000  # messages of one reading
UNSAID = {
    "engine_drafts": "request-rounds",
    "engine_proposed": "tokens",
    "engine_accepted": "tokens",
    "engine_generation_tokens": "tokens",
}
"""Values that no message holds, stored as unknown."""


class Unreadable(OSError):
    """Nothing can be received, or what was received is not a forward pass of a known version."""


class Pass(NamedTuple):
    """One forward pass; or, with a time of 0, word that the engine is idle."""

    worker: str
    number: int
    """Of the message, by its worker."""
    ms: float
    decoding: int
    contexts: int
    """Tokens, over all sequences that decode."""
    prefilling: int
    prefill_tokens: int
    waiting: int


class Sums:
    """What passes of one interval add up to."""

    def __init__(self, began: int) -> None:
        """began: ns since 1970."""
        self.began = began
        self.passes = self.missed = self.request_rounds = self.contexts = self.prefill_tokens = 0
        self.ms = 0.0
        self.running = self.waiting = 0

    def add(self, one: Pass, missed: int) -> None:
        """missed: messages between the one before and this one."""
        self.missed += missed
        self.running, self.waiting = one.decoding + one.prefilling, one.waiting
        if one.ms > 0:
            self.passes += 1
            self.ms += one.ms
            self.request_rounds += one.decoding
            self.contexts += one.contexts
            self.prefill_tokens += one.prefill_tokens

    def values(self) -> Iterator[Sum]:
        """All fields, those that nobody says included."""
        yield Sum("engine_passes", self.passes, "passes")
        yield Sum("engine_passes_missed", self.missed, "passes")
        yield Sum("engine_pass_ms", self.ms, "ms")
        yield Sum("engine_request_rounds", self.request_rounds, "request-rounds")
        yield Sum("engine_context_tokens", self.contexts, "tokens")
        yield Sum("engine_prefill_tokens", self.prefill_tokens, "tokens")
        yield Sum("engine_running", self.running, "requests")
        yield Sum("engine_waiting", self.waiting, "requests")
        for field, unit in UNSAID.items():
            yield Sum(field, None, unit, "forward-pass metrics do not say it")


class ForwardPasses:
    """One publisher, which is one data-parallel rank of a worker; see the module."""

    def __init__(
        self,
        where: str,
        replica: str,
        *,
        receive: Callable[[], list[bytes]] | None = None,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """where: ZMQ address, tcp:// or ipc://. receive: what has come since the last call."""
        self.name = f"forward-passes {where}"
        self.replica = replica
        self.current: Source | None = None
        self._where, self._now = where, now_ns
        self._subscription: Subscription | None = None
        self._receive = receive
        self._waiting: deque[Pass] = deque()
        self._last: Pass | None = None
        self._sums: Sums | None = None
        self._boot: Row | None = None
        self._harvest: Harvest | None = None
        self._unread = ""

    @property
    def missing(self) -> str:
        return "" if self.current else self._unread or "no message has come from it"

    def poll(self, cursor_of: Callable[[Source], Cursor]) -> Harvest | None:  # noqa: ARG002
        if self._harvest is not None:
            return self._harvest
        if self._receive is None:
            self._subscription = Subscription(self._where)
            self._receive = self._subscription.received
        now = self._now()
        self._waiting.extend(filter(None, map(self._read, self._receive())))
        anew = self._add(now)
        sums = self._sums
        if sums is None or self.current is None or not (anew or now - sums.began >= INTERVAL_NS):
            return None
        self._harvest = Harvest(
            source=self.current,
            boot=self._boot,
            # There are no records with numbers: an interval is known by its end.
            cursor=Cursor(now, FIRST_SEQ),
            rows={"device": sum_rows(self.replica, sums.began, now, sums.values())},
            losses=(),
        )
        return self._harvest

    def kept(self) -> None:
        if self._harvest is not None:
            self._sums, self._harvest = Sums(self._harvest.cursor.position), None

    def close(self) -> None:
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = self._receive = None

    def _add(self, now: int) -> bool:
        """Add up what has come; stop before another start of the engine, and say so."""
        while self._waiting:
            one, last = self._waiting[0], self._last
            if last is None or one.worker != last.worker or one.number <= last.number:
                if last is not None and self._sums is not None and self._sums.passes:
                    self._last = None
                    return True
                self._begin(one, now)
                last = None
            assert self._sums is not None
            self._sums.add(one, 0 if last is None else one.number - last.number - 1)
            self._last = self._waiting.popleft()
        return False

    def _begin(self, first: Pass, now: int) -> None:
        """Another start of the engine, or the first one known; its name is of this moment."""
        text = f"{self.replica} {self._where} {first.worker} {now}".encode()
        self.current = Source(self.replica, hashlib.blake2b(text, digest_size=8).hexdigest())
        self._sums = Sums(now)
        boot = new_boot(
            HookSettings(rings=None, replica=self.replica),
            boot=self.current.boot,
            started_at=now,
            engine="unknown",
            engine_version="unknown",
            target="unknown",
            method="unknown",
            configuration={"followed by": "forward passes"},
            layout_hash=None,
        )
        self._boot = asdict(boot)
        log.warning(
            "%s: sums over intervals are stored, and no rounds: no verdict rests on them", self.name
        )

    def _read(self, payload: bytes) -> Pass | None:
        """A message; None if it cannot be read, which leaves a gap in the numbers."""
        try:
            return read_pass(payload)
        except Unreadable as error:
            if not self._unread:
                log.warning("%s: %s", self.name, error)
                self._unread = str(error)
            return None


def read_pass(payload: bytes) -> Pass:
    """Read one message. Raises Unreadable if it is not of the version that is known."""
    import msgspec

    try:
        message = msgspec.msgpack.decode(payload)
        version = message.get("version")
        if version != VERSION:
            raise Unreadable(f"a message of version {version!r}; {VERSION} is known")
        scheduled: Mapping[str, Any] = message["scheduled_requests"]
        queued: Mapping[str, Any] = message["queued_requests"]
        return Pass(
            str(message["worker_id"]),
            int(message["counter_id"]),
            float(message["wall_time"]) * 1e3,
            int(scheduled["num_decode_requests"]),
            int(scheduled["sum_decode_kv_tokens"]),
            int(scheduled["num_prefill_requests"]),
            int(scheduled["sum_prefill_tokens"]),
            int(queued["num_prefill_requests"]) + int(queued["num_decode_requests"]),
        )
    except (msgspec.MsgspecError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise Unreadable(f"a message that is no forward pass: {error!r}") from error


class Subscription:
    """A publisher's messages, as they come."""

    def __init__(self, where: str) -> None:
        """Subscribe; a publisher that is not there yet is waited for.

        Raises Unreadable if the address is none, or the libraries are not installed.
        """
        if not where.startswith(("tcp://", "ipc://")):
            raise Unreadable(f"{where!r} is no ZMQ address: it begins with tcp:// or ipc://")
        try:
            import msgspec  # noqa: F401
            import zmq
        except ImportError as error:
            raise Unreadable(f"{error}; install specscope[forward-passes]") from error
        self._zmq = zmq
        self._context = zmq.Context(io_threads=1)
        self._socket = self._context.socket(zmq.SUB)
        self._socket.setsockopt(zmq.RCVHWM, MOST_WAITING)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MOST_BYTES)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.SUBSCRIBE, b"")
        try:
            self._socket.connect(where)
        except zmq.ZMQError as error:
            self.close()
            raise Unreadable(f"{where!r}: {error}") from error

    def received(self) -> list[bytes]:
        """Last parts of the messages that have come since the last call. Never waits."""
        payloads: list[bytes] = []
        try:
            while len(payloads) < MOST_AT_ONCE:
                payloads.append(self._socket.recv_multipart(self._zmq.NOBLOCK)[-1])
        except self._zmq.Again:
            pass
        return payloads

    def close(self) -> None:
        self._socket.close()
        self._context.term()
