"""An OpenAI-compatible server over the engine; needs the extra `server`."""

import asyncio
import contextlib
import json
import signal
import socket
import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from specscope.engine.api import SamplingParams, fixed_gate
from specscope.engine.bundled import Pair
from specscope.engine.card import model_card
from specscope.engine.clients import failed, first_or_none, read_body, refused
from specscope.engine.draft import ModelDrafter
from specscope.engine.drafter import Drafter
from specscope.engine.engine import Engine
from specscope.engine.errors import BadRequest, BadSetting, EngineError
from specscope.engine.exposition import Exposition
from specscope.engine.ngram import NgramDrafter
from specscope.engine.openai_api import (
    Asked,
    last_piece,
    parse,
    piece,
    problem,
    response,
    understand,
)
from specscope.engine.plugins import EngineInfo, attach_plugins
from specscope.engine.text_stream import TextStream
from specscope.engine.worker import EngineStopped, Worker

DRAIN_SECONDS = 60
CLASS_LENGTH = 64


@dataclass(frozen=True, slots=True)
class Settings:
    """How to serve."""

    host: str = "127.0.0.1"
    port: int = 8000
    k: int = 4
    slots: int = 16
    capacity: int = 512
    prefill_tokens: int = 256
    cache_tokens: int | None = None
    drafter: str = "model"
    class_header: str = "x-specscope-class"
    graphs: bool | None = None
    """See Engine."""


class Service:
    """The routes over one worker."""

    def __init__(self, pair: Pair, settings: Settings, device: str) -> None:
        self.pair, self.settings, self.exposition = pair, settings, Exposition()
        info = EngineInfo(
            target=pair.name,
            draft=f"{pair.name}-draft" if settings.drafter == "model" else "ngram",
            method=settings.drafter,
            k=settings.k,
            k_max=max(settings.k, 1),
            dtype=str(pair.target.dtype).removeprefix("torch."),
            device=device,
            card=model_card(pair),
        )
        alone = fixed_gate(settings.k)
        observers, gate = attach_plugins(info, alone)
        self.lengths = {settings.k} if gate is alone else {settings.k, 0}
        engine = Engine(
            pair.target, _drafter(pair, settings), k_max=info.k_max, slots=settings.slots,
            capacity=settings.capacity, gate=gate, observers=[*observers, self.exposition],
            device=device, detokenize=lambda ids: pair.decode(list(ids)),
            prefill_tokens=settings.prefill_tokens, cache_tokens=settings.cache_tokens,
            graphs=settings.graphs,
        )  # fmt: skip
        self.worker = Worker(engine)

    def warm_up(self) -> int:
        """Capture the usual rounds' CUDA graphs, see Engine.warm_up: greedy ones and sampled ones.

        Of rounds at the draft length that was set and, where a plug-in brought a gate, at 0.
        """
        usual = [SamplingParams(), SamplingParams(temperature=1.0)]
        return self.worker.engine.warm_up(self.lengths, usual)

    def app(self) -> Starlette:
        """The ASGI application."""
        routes = [
            Route("/v1/completions", self.completions, methods=["POST"]),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/v1/models", self.models),
            Route("/health", self.health),
            Route("/metrics", self.metrics),
        ]
        handlers: Any = {HTTPException: refused, Exception: failed}
        return Starlette(routes=routes, lifespan=self.lifespan, exception_handlers=handlers)

    @contextlib.asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        """Run the worker while the server runs; at the end let it answer what it has."""
        self.worker.start()
        yield
        await asyncio.to_thread(self.worker.stop)

    async def completions(self, request: Request) -> Response:
        """POST /v1/completions."""
        return await self.answer(request, chat=False)

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        return await self.answer(request, chat=True)

    async def models(self, _: Request) -> Response:
        """GET /v1/models."""
        model = {"id": self.pair.name, "object": "model", "created": 0, "owned_by": "specscope"}
        return JSONResponse({"object": "list", "data": [model]})

    async def health(self, _: Request) -> Response:
        """GET /health: 503 once the engine has failed or drains."""
        well = self.worker.failure is None and not self.worker.stopping
        return PlainTextResponse("ok" if well else "not serving", 200 if well else 503)

    async def metrics(self, _: Request) -> Response:
        """GET /metrics."""
        text = self.exposition.render(self.worker.engine)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def answer(self, request: Request, chat: bool) -> Response:
        """Understand, generate, and answer at once or as a stream."""
        try:
            asked = understand(parse(await read_body(request)), self.pair, chat)
            pieces = self.generate(request, asked)
            first = await first_or_none(request, pieces)  # refusals come before the first token
        except BadRequest as error:
            return JSONResponse(problem(str(error)), 400)
        except EngineStopped as error:
            return JSONResponse(problem(str(error), "server_error"), 503)
        if first is None:
            return Response(status_code=499)
        if asked.stream:
            return StreamingResponse(
                self.events(asked, first, pieces), media_type="text/event-stream"
            )
        return await self.whole(request, asked, first, pieces)

    async def generate(self, request: Request, asked: Asked) -> AsyncIterator["Piece"]:
        """Pieces of text, the last with the reason."""
        label = request.headers.get(self.settings.class_header, "")[:CLASS_LENGTH]
        prefix = "chatcmpl" if asked.chat else "cmpl"
        id = f"{prefix}-{uuid.uuid4().hex}"
        stream = TextStream(self.worker.engine.detokenize or str, asked.params.stop)
        tokens = 0
        chunks = self.worker.generate(id, asked.prompt, asked.params, label, asked.user)
        async with contextlib.aclosing(chunks):  # type: ignore[type-var]
            async for chunk in chunks:
                tokens += len(chunk.ids)
                text = stream.feed(chunk.ids)
                if chunk.end is not None:
                    yield Piece(id, text + stream.finish(), tokens, chunk.end.reason)
                elif text or tokens == len(chunk.ids):
                    yield Piece(id, text, tokens, None)

    async def whole(
        self, request: Request, asked: Asked, first: "Piece", pieces: AsyncIterator["Piece"]
    ) -> Response:
        """Everything in one body; a client that goes away aborts its request."""
        text, last = first.text, first
        async with contextlib.aclosing(pieces):  # type: ignore[type-var]
            if first.reason is None:
                async for last in pieces:
                    text += last.text
                    if await request.is_disconnected():
                        return Response(status_code=499)
        reason = last.reason or "abort"
        return JSONResponse(response(last.id, self.pair.name, asked, text, reason, last.tokens))

    async def events(
        self, asked: Asked, first: "Piece", pieces: AsyncIterator["Piece"]
    ) -> AsyncIterator[str]:
        """Server-sent events; a client that goes away cancels this, which aborts the request."""
        name, last = self.pair.name, first
        async with contextlib.aclosing(pieces):  # type: ignore[type-var]
            yield _event(piece(first.id, name, asked, first.text, first.reason, True))
            if first.reason is None:
                async for last in pieces:
                    yield _event(piece(last.id, name, asked, last.text, last.reason, False))
        if asked.usage_in_stream:
            yield _event(last_piece(last.id, name, asked, last.tokens))
        yield "data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that became certain, tokens so far, and at the end the reason."""

    id: str
    text: str
    tokens: int
    reason: str | None


def serve(pair: Pair, settings: Settings, device: str, say: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM, then finish what is running.

    Raises EngineError where the port is taken, BadSetting where the engine cannot be built.
    """
    service = Service(pair, settings, device)
    began = time.monotonic()
    if count := service.warm_up():
        say(f"captured {count} shapes of rounds in {time.monotonic() - began:.1f} s")
    # uvicorn raises the signal again once it has shut down; by then it has done its work.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    with _bind(settings.host, settings.port) as listening:
        host, port = listening.getsockname()[:2]
        say(f"serving {pair.name} at http://{host}:{port}/v1")
        config = uvicorn.Config(
            service.app(), log_level="warning", timeout_graceful_shutdown=DRAIN_SECONDS
        )
        uvicorn.Server(config).run(sockets=[listening])


def _bind(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port))
    except OSError as error:
        raise EngineError(f"cannot listen on {host}:{port}: {error.strerror}") from error


def _drafter(pair: Pair, settings: Settings) -> Drafter:
    if settings.drafter == "ngram":
        return NgramDrafter()
    if pair.draft is None:
        raise BadSetting("there is no draft model; name one with --draft or use --drafter ngram")
    return ModelDrafter(pair.draft)


def _event(body: Any) -> str:
    return f"data: {json.dumps(body)}\n\n"
