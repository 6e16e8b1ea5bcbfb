"""The HTTP server of the read endpoint, with deadlines and limits for connections."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from specscope.service.limits import ANSWER_S, HEADER_S, MAX_HTTP, MAX_UNREAD

SHUTDOWN_S = 3  # for answers that are being written


class Protocol(H11Protocol):
    """HTTP/1.1, with a deadline for each request's headers and a limit on connections.

    uvicorn has neither, so half-sent requests would keep descriptors that ingest needs.
    """

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > MAX_HTTP:
            transport.abort()
            return
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._cancel()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # Idle connections are uvicorn's; this one is for what comes half.
        if not self.transport.is_closing() and (self.cycle is None or self.cycle.response_complete):
            self._expect_request()

    def _expect_request(self) -> None:
        self._cancel()
        self._shed()
        self._deadline = self.loop.call_later(HEADER_S, self._late, self.loop.time() + ANSWER_S)

    def _late(self, at_last: float) -> None:
        """Close a connection without a request in time, unless the client still reads an answer."""
        if self.transport.get_write_buffer_size() and self.loop.time() < at_last:
            self._deadline = self.loop.call_later(HEADER_S, self._late, at_last)
        else:
            self.transport.abort()

    def _shed(self) -> None:
        """Close the connections with the most unread bytes while unread bytes exceed the limit."""
        waiting = {each: each.transport.get_write_buffer_size() for each in self.connections}
        while sum(waiting.values()) > MAX_UNREAD:
            worst = max(waiting, key=lambda each: waiting[each])
            del waiting[worst]
            worst.transport.abort()

    def _cancel(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def web_server(app: Any, context: ssl.SSLContext | None = None) -> uvicorn.Server:
    """A server for bound sockets; with a context it uses TLS."""
    config = uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        lifespan="off",
        log_level="error",  # a request that is none is no news
        access_log=False,
        timeout_graceful_shutdown=SHUTDOWN_S,
        h11_max_incomplete_event_size=64 << 10,
        server_header=False,
    )
    config.load()
    config.ssl = context
    server = uvicorn.Server(config)
    # Ours handles them, for all ports.
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
    return server
