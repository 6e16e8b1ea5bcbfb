"""The read endpoint (the guard follows): health and metrics."""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from specscope.service.metrics import Metrics
from specscope.store import Store


class Reader:
    @classmethod
    def open(cls, store: Store) -> Reader:
        return cls()


def read_app(reader: Reader | None, metrics: Metrics) -> Starlette:
    """The HTTP application."""

    async def health(request: Any) -> Response:
        return PlainTextResponse("ok\n")

    async def numbers(request: Any) -> Response:
        return PlainTextResponse(metrics.text(), media_type="text/plain; version=0.0.4")

    return Starlette(routes=[Route("/health", health), Route("/metrics", numbers)])
