"""The engine in a thread of its own; requests as asynchronous streams."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from specscope.engine.api import RequestEnd, RequestInfo, RoundReport, SamplingParams
from specscope.engine.decode.engine import Engine
from specscope.engine.errors import BadRequest, EngineError


class EngineStopped(EngineError):
    """The engine's thread has ended, so no request can be answered."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens of one round, and at the very end how the request ended."""

    ids: Sequence[int]
    end: RequestEnd | None = None


class Worker:
    """Step an engine while there is work, and sleep otherwise.

    If the thread ends, by a stop or an error in the engine, all open streams end too, so no request
    hangs.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.engine.observers.append(self)
        self.streams: dict[str, tuple[asyncio.AbstractEventLoop, asyncio.Queue[Chunk | Exception]]]
        self.streams = {}
        self.wake, self.stopping = threading.Event(), False
        self.draining = False
        self.failure: Exception | None = None
        self.thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        """Begin."""
        self.thread.start()

    def drain(self) -> None:
        """Refuse requests from now on; those that were accepted are answered."""
        self.draining = True

    @property
    def idle(self) -> bool:
        """Whether every accepted request has been answered."""
        return not self.streams

    def stop(self) -> None:
        """End once everything submitted has been answered; returns when it has."""
        self.stopping = True
        self.wake.set()
        self.thread.join()

    async def generate(
        self, id: str, prompt: Sequence[int], params: SamplingParams, label: str, session: str
    ) -> AsyncIterator[Chunk]:
        """Submit and give chunks as they come; leaving the iterator early aborts the request.

        Raises BadRequest as Engine.submit does, EngineStopped if the engine has failed or ended.
        """
        loop, queue = asyncio.get_running_loop(), asyncio.Queue[Chunk | Exception]()

        def listen(ids: Sequence[int]) -> None:
            loop.call_soon_threadsafe(queue.put_nowait, Chunk(list(ids)))

        if id in self.streams:
            raise BadRequest(f"request {id!r} is running already")
        self.streams[id] = loop, queue
        running = False
        try:
            # GenerationRequest after the stream is known: an engine that ends from now on tells it.
            if self.failure is not None or self.stopping:
                raise EngineStopped("the engine is not running")
            if self.draining:
                raise EngineStopped("the server is draining")
            self.engine.submit(id, prompt, params, label, session, listen)
            running = True
            self.wake.set()
            while running:
                chunk = await queue.get()
                if isinstance(chunk, Exception):
                    raise EngineStopped(f"the engine has ended: {chunk}") from chunk
                running = chunk.end is None
                yield chunk
        finally:
            self.streams.pop(id, None)
            if running:
                self.engine.abort(id)
                self.wake.set()

    def round_begins(self) -> None:
        """Nothing to do."""

    def round_ended(self, report: RoundReport) -> None:
        """Nothing to do: listeners have the tokens."""

    def admitted(self, request: RequestInfo) -> None:
        """Nothing to do."""

    def ended(self, end: RequestEnd) -> None:
        """Send the end to the request's stream, if a client still listens."""
        self._put(end.request.id, Chunk((), end))

    def _put(self, id: str, item: Chunk | Exception) -> None:
        stream = self.streams.get(id)
        if stream is not None:
            loop, queue = stream
            loop.call_soon_threadsafe(queue.put_nowait, item)

    def _run(self) -> None:
        try:
            while True:
                self.wake.clear()
                while self.engine.step() or self._capture():
                    pass
                if self.stopping and self.engine.idle:
                    break
                self.wake.wait()
        except Exception as error:
            self._leave(error)
            raise
        # Whoever came in between that look and now is in no round any more.
        self._leave(EngineStopped("it was told to stop"))

    def _capture(self) -> bool:
        """Capture a missing CUDA graph while no request is there; whether there was one."""
        return not self.stopping and self.engine.capture(1) > 0

    def _leave(self, why: Exception) -> None:
        """End every open stream."""
        self.failure = why
        for id in list(self.streams):
            self._put(id, why)
