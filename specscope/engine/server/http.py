"""HTTP around a request: its body, whether the client is still there, and error answers."""

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from specscope.engine.errors import BadRequest
from specscope.engine.server.openai import error_body

BODY_BYTES = 16 << 20
Item = TypeVar("Item")


async def read_body(request: Request) -> bytes:
    """The body whole; raises BadRequest where it is larger than any prompt that fits."""
    raw = bytearray()
    async for part in request.stream():
        raw += part
        if len(raw) > BODY_BYTES:
            raise BadRequest(f"the body has more than {BODY_BYTES} bytes")
    return bytes(raw)


async def first_or_none(request: Request, items: AsyncIterator[Item]) -> Item | None:
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
    """A wrong path or method, told as all errors are."""
    return JSONResponse(error_body(error.detail), error.status_code)


async def failed(_: Request, __: Exception) -> Response:
    """What nobody foresaw; the traceback is in the log."""
    return JSONResponse(error_body("the server failed; its log says why", "server_error"), 500)
