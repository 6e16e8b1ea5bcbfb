"""The server's routes, and how an answer is generated."""

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from specscope.engine.api import EngineInfo, SamplingParams, attach_plugins, fixed_gate
from specscope.engine.decode.engine import Engine
from specscope.engine.decode.scheduler import budget_of
from specscope.engine.errors import BadRequest, EngineError
from specscope.engine.pair import Pair, model_card
from specscope.engine.server.detokenizer import Detokenizer
from specscope.engine.server.metrics import EngineMetrics
from specscope.engine.server.openai import (
    DONE,
    GenerationRequest,
    Reply,
    error_body,
    event,
    parse,
    parse_request,
)
from specscope.engine.server.worker import EngineStopped, Worker

CLASS_LENGTH = 64
LONG_BODY = 8192
"""Bytes of a body from which on it is parsed and tokenised in a thread."""
BODY_BYTES = 16 << 20
CLIENT_GONE = 499  # nginx's number; nobody is there to read it


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
        self.pair, self.settings, self.exposition = pair, settings, EngineMetrics()
        k_max = max(settings.k, 1)
        drafts = {"model": f"{pair.name}-draft", "eagle": f"{pair.name}-head"}
        info = EngineInfo(
            target=pair.name,
            draft=drafts.get(settings.drafter, ""),
            method=settings.drafter,
            k=settings.k,
            k_max=k_max,
            dtype=str(pair.target.dtype).removeprefix("torch."),
            device=device,
            card=model_card(pair, settings.drafter),
            slots=settings.slots,
            cache_tokens=budget_of(settings.slots, settings.capacity, k_max, settings.cache_tokens),
        )
        alone = fixed_gate(settings.k)
        observers, gate = attach_plugins(info, alone)
        self.lengths = {settings.k} if gate is alone else {settings.k, 0}
        engine = Engine(
            pair.target, pair.drafter(settings.drafter), k_max=info.k_max, slots=settings.slots,
            capacity=settings.capacity, gate=gate, observers=[*observers, self.exposition],
            device=device, detokenize=lambda ids: pair.decode(list(ids)),
            prefill_tokens=settings.prefill_tokens, cache_tokens=settings.cache_tokens,
            graphs=settings.graphs,
        )  # fmt: skip
        self.worker = Worker(engine)
        self.most_bytes = settings.capacity * pair.longest_token()

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
            Route("/v1/models/{name:path}", self.model),
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
        return JSONResponse({"object": "list", "data": [self._card()]})

    async def model(self, request: Request) -> Response:
        """GET /v1/models/{name}."""
        name = request.path_params["name"]
        if name != self.pair.name:
            message = f"there is no model {name!r}, only {self.pair.name!r}"
            return JSONResponse(error_body(message, param="model"), 404)
        return JSONResponse(self._card())

    async def health(self, _: Request) -> Response:
        """GET /health: 503 once the engine has failed or drains."""
        if self.worker.failure is not None or self.worker.stopping:
            return PlainTextResponse("not serving", 503)
        if self.worker.draining:
            return PlainTextResponse("draining", 503)
        return PlainTextResponse("ok")

    async def metrics(self, _: Request) -> Response:
        """GET /metrics."""
        text = self.exposition.render(self.worker.engine)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def answer(self, request: Request, chat: bool) -> Response:
        """Parse, generate, and answer at once or as a stream."""
        try:
            raw = await read_body(request)
            # Parsing and tokenising a long text would stop all streams of the event loop.
            parsing = asyncio.to_thread if len(raw) > LONG_BODY else _directly
            generation = await parsing(self.parse, raw, chat)
            id = f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}"
            reply = Reply(id, self.pair.name, int(time.time()), generation)
            pieces = self.generate(request, reply)
            first = await first_or_none(request, pieces)  # refusals come before the first token
            if first is None:
                return Response(status_code=CLIENT_GONE)
            if not generation.stream:
                return await complete(request, reply, first, pieces)
        except BadRequest as error:
            field = "messages" if chat and error.field == "prompt" else error.field
            return JSONResponse(error_body(str(error), param=field), 400)
        except EngineStopped as error:
            return JSONResponse(error_body(str(error), "server_error"), 503)
        return StreamingResponse(
            events(reply, first, pieces), media_type="text/event-stream",
            headers={"cache-control": "no-cache"},
        )  # fmt: skip

    def parse(self, raw: bytes, chat: bool) -> GenerationRequest:
        """The request in a body; raises BadRequest, also for a prompt that cannot run."""
        generation = parse_request(parse(raw), self.pair, chat, self.most_bytes)
        for prompt in generation.prompts:
            self.worker.engine.check(prompt, generation.params)
        return generation

    async def generate(self, request: Request, reply: Reply) -> AsyncIterator["Piece"]:
        """Pieces of all choices as they come; the last piece of a choice has the reason."""
        label = request.headers.get(self.settings.class_header, "")[:CLASS_LENGTH]
        count = len(reply.generation.prompts)
        if count == 1:
            async with contextlib.aclosing(self.choice(reply, 0, reply.id, label)) as only:  # type: ignore[type-var]
                async for piece in only:
                    yield piece
            return
        queue = asyncio.Queue[Piece | Exception]()

        async def forward(index: int) -> None:
            try:
                async for piece in self.choice(reply, index, f"{reply.id}-{index}", label):
                    queue.put_nowait(piece)
            except EngineError as error:
                queue.put_nowait(error)

        tasks = [asyncio.create_task(forward(index)) for index in range(count)]
        try:
            while count:
                item = await queue.get()
                if isinstance(item, Exception):
                    raise item
                count -= item.reason is not None
                yield item
        finally:
            for task in tasks:
                task.cancel()

    async def choice(self, reply: Reply, index: int, id: str, label: str) -> AsyncIterator["Piece"]:
        """Pieces of one choice."""
        generation, engine = reply.generation, self.worker.engine
        stream = Detokenizer(engine.detokenize or str, generation.params.stop)
        tokens = 0
        chunks = self.worker.generate(
            id, generation.prompts[index], generation.params, label, generation.user
        )
        async with contextlib.aclosing(chunks):  # type: ignore[type-var]
            async for chunk in chunks:
                tokens += len(chunk.ids)
                text = stream.feed(chunk.ids)
                if chunk.end is not None:
                    yield Piece(text + stream.finish(), tokens, chunk.end.reason, index)
                elif text or tokens == len(chunk.ids):
                    yield Piece(text, tokens, None, index)

    def _card(self) -> dict[str, object]:
        return {"id": self.pair.name, "object": "model", "created": 0, "owned_by": "specscope"}


@dataclass(frozen=True, slots=True)
class Piece:
    """Text of a choice that became certain, its tokens so far, and at its end the reason."""

    text: str
    tokens: int
    reason: str | None
    index: int = 0


async def complete(
    request: Request, reply: Reply, first: Piece, pieces: AsyncIterator[Piece]
) -> Response:
    """Everything in one body; a client that goes away aborts its request."""
    answers = [("", "abort")] * len(reply.generation.prompts)
    tokens = [0] * len(answers)

    def add(piece: Piece) -> None:
        text, reason = answers[piece.index]
        answers[piece.index] = text + piece.text, piece.reason or reason
        tokens[piece.index] = piece.tokens

    add(first)
    async with contextlib.aclosing(pieces):  # type: ignore[type-var]
        async for piece in pieces:
            add(piece)
            if await request.is_disconnected():
                return Response(status_code=CLIENT_GONE)
    return JSONResponse(reply.complete(answers, sum(tokens)))


async def events(reply: Reply, first: Piece, pieces: AsyncIterator[Piece]) -> AsyncIterator[str]:
    """Server-sent events; a client that goes away cancels this, which aborts the request.

    If the engine ends meanwhile, an event says so, since the status has been sent.
    """
    tokens = {first.index: first.tokens}
    try:
        async with contextlib.aclosing(pieces):  # type: ignore[type-var]
            yield event(reply.piece(first.index, first.text, first.reason, True))
            async for piece in pieces:
                begins = piece.index not in tokens
                tokens[piece.index] = piece.tokens
                yield event(reply.piece(piece.index, piece.text, piece.reason, begins))
    except EngineStopped as error:
        yield event(error_body(str(error), "server_error"))
        return
    if reply.generation.usage_in_stream:
        yield event(reply.usage_alone(sum(tokens.values())))
    yield DONE


async def _directly(call: Callable[..., Any], *arguments: Any) -> Any:
    return call(*arguments)


async def read_body(request: Request) -> bytes:
    """The body whole; raises BadRequest where it is larger than any prompt that fits."""
    raw = bytearray()
    async for part in request.stream():
        raw += part
        if len(raw) > BODY_BYTES:
            raise BadRequest(f"the body has more than {BODY_BYTES} bytes")
    return bytes(raw)


async def first_or_none(request: Request, items: AsyncIterator["Piece"]) -> "Piece | None":
    """The first of `items`; None, with them closed, if the client goes away while it waits."""
    item = asyncio.ensure_future(anext(items))
    gone = asyncio.ensure_future(request.receive())  # the body is read: only the end can come
    try:
        await asyncio.wait({item, gone}, return_when=asyncio.FIRST_COMPLETED)
        return await item if item.done() else None
    finally:
        gone.cancel()
        item.cancel()


async def refused(_: Request, error: HTTPException) -> Response:
    """Handle a wrong path or method in the form of all errors."""
    return JSONResponse(error_body(error.detail), error.status_code)


async def failed(_: Request, __: Exception) -> Response:
    """Handle an unexpected error; the traceback is in the log."""
    return JSONResponse(error_body("the server failed; its log says why", "server_error"), 500)
