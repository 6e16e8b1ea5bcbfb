"""The read endpoint: ClickHouse's HTTP interface, for SELECTs alone; health and metrics.

GET or POST `/?query=…` with the text in the address, the body, or begun in one and ended in the
other; `param_NAME` binds {NAME:Type}; `default_format` or FORMAT say how rows are written.
Other settings in the address are ignored: limits are the endpoint's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import chdb
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from specscope.errors import QueryRefused
from specscope.service.guard import allowed, guarded
from specscope.service.metrics import Metrics
from specscope.store.connection import SETTINGS, Store, drain

CONNECTIONS = 2  # queries at once; the rest waits, so that ingest keeps its share
WAIT_S = 10.0
MAX_BODY = 1 << 20

LIMITS = {
    "max_execution_time": "30",
    "max_memory_usage": str(1 << 30),
    "max_rows_to_read": "2000000000",
    "max_result_rows": "1000000",
    "max_result_bytes": str(256 << 20),
    "max_threads": "2",
    "max_query_size": str(MAX_BODY),
    "use_query_cache": "0",
    "readonly": "1",  # last, since nothing can be set after it
}

ACCESS_DENIED, TOO_MANY_QUERIES, UNKNOWN_DATABASE, BAD_ARGUMENTS = 497, 202, 81, 36
_CODE = re.compile(r"Code: (\d+)\.")


class Refused(Exception):
    """An answer with an error in it: HTTP status, ClickHouse's code, a sentence."""

    def __init__(self, status: int, code: int, text: str) -> None:
        super().__init__(text)
        self.status, self.code, self.text = status, code, text


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows in a format."""

    body: bytes
    format: str


class Reader:
    """A few read-only connections to the engine, never the writer's."""

    def __init__(self, database: str, databases: frozenset[str], connections: list[Any]) -> None:
        self._database, self._databases = database, databases
        self._connections = connections
        self._free: asyncio.Queue[Any] = asyncio.Queue()
        for connection in connections:
            self._free.put_nowait(connection)

    @classmethod
    def open(cls, store: Store) -> Self:
        """On the store's engine, which must be the embedded one."""
        names = frozenset(
            row["name"].lower() for row in store.rows("SELECT name FROM system.databases")
        )
        connections = []
        for _ in range(CONNECTIONS):
            connection = chdb.connect(str(store.path))  # type: ignore[no-untyped-call]
            connection.query(f"USE `{store.database}`")
            for name, value in {**SETTINGS, **LIMITS}.items():
                connection.query(f"SET {name} = '{value}'")
            connections.append(connection)
        return cls(store.database, names, connections)

    async def close(self) -> None:
        """Close what is free; a connection that still works ends with the process."""
        with contextlib.suppress(TimeoutError):
            for _ in self._connections:
                (await asyncio.wait_for(self._free.get(), WAIT_S)).close()

    async def answer(self, sql: str, params: Mapping[str, str], format_: str) -> Answer:
        """Run a SELECT. Raises Refused."""
        try:
            connection = await asyncio.wait_for(self._free.get(), WAIT_S)
        except TimeoutError:
            text = f"all {CONNECTIONS} connections were busy for {WAIT_S:.0f} s"
            raise Refused(503, TOO_MANY_QUERIES, text) from None
        # Shielded: a client that leaves must not give back a connection that still works.
        work = asyncio.ensure_future(
            asyncio.to_thread(self._run, connection, sql, dict(params), format_)
        )
        work.add_done_callback(lambda _: self._free.put_nowait(connection))
        return await asyncio.shield(work)

    def _run(self, connection: Any, sql: str, params: dict[str, str], format_: str) -> Answer:
        def explain(text: str) -> str:
            tree: bytes = connection.query(f"EXPLAIN AST {text}", "TSVRaw", params=params).bytes()
            return tree.decode()

        try:
            parsed = guarded(sql, explain, database=self._database, databases=self._databases)
            chosen = parsed.format or format_
            return Answer(connection.query(parsed.sql, chosen, params=params).bytes(), chosen)
        except QueryRefused as error:
            raise Refused(403, ACCESS_DENIED, str(error)) from error
        except RuntimeError as error:  # the engine's own
            drain(lambda: bytes(connection.query("SELECT 1", "TSV").bytes()))
            text = str(error).strip()
            found = _CODE.search(text)
            code = int(found[1]) if found else 0
            raise Refused(500 if code in (159, 241, 396) else 400, code, _bare(text)) from error


def read_app(
    reader: Reader | None, metrics: Metrics, database: str, alive: Callable[[], bool]
) -> Starlette:
    """The HTTP application; without a reader (a server has its own endpoint) no SQL.

    alive: whether the service still stores what it takes.
    """

    async def health(_: Request) -> Response:
        if alive():
            return PlainTextResponse("ok\n")
        return PlainTextResponse("the writer has ended\n", status_code=503)

    async def ping(_: Request) -> Response:
        return PlainTextResponse("Ok.\n")

    async def numbers(_: Request) -> Response:
        return PlainTextResponse(metrics.text(), media_type="text/plain; version=0.0.4")

    async def sql(request: Request) -> Response:
        try:
            if reader is None:
                raise Refused(404, BAD_ARGUMENTS, "the store is a server: read it there")
            text, params, format_ = await _asked(request, database)
            if not text:
                return PlainTextResponse("Ok.\n")
            answer = await reader.answer(text, params, format_)
        except Refused as error:
            outcome = "refused" if error.code == ACCESS_DENIED else "failed"
            metrics.queries.labels(outcome=outcome).inc()
            return _failed(error)
        metrics.queries.labels(outcome="answered").inc()
        headers = {"X-ClickHouse-Format": answer.format, "X-ClickHouse-Timezone": "UTC"}
        return Response(answer.body, headers=headers, media_type="application/octet-stream")

    return Starlette(
        routes=[
            Route("/health", health),
            Route("/ping", ping),
            Route("/metrics", numbers),
            Route("/", sql, methods=["GET", "POST"]),
        ]
    )


async def _asked(request: Request, database: str) -> tuple[str, dict[str, str], str]:
    asked = request.query_params
    if asked.get("database", database) != database:
        raise Refused(404, UNKNOWN_DATABASE, f"there is only the database {database} here")
    if request.headers.get("content-type", "").startswith("multipart/"):
        raise Refused(400, BAD_ARGUMENTS, "external data is not taken here")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            raise Refused(413, BAD_ARGUMENTS, f"a statement may have {MAX_BODY} bytes")
    try:
        parts = [asked.get("query", ""), bytes(body).decode()]
    except UnicodeDecodeError:
        raise Refused(400, BAD_ARGUMENTS, "the body is not UTF-8 text") from None
    params = {name[6:]: value for name, value in asked.items() if name.startswith("param_")}
    format_ = asked.get("default_format", "TabSeparated")
    if format_ not in allowed("formats"):
        raise Refused(400, BAD_ARGUMENTS, f"format {format_} is not one that this endpoint writes")
    return "\n".join(filter(None, parts)), params, format_


def _failed(error: Refused) -> Response:
    return PlainTextResponse(
        f"Code: {error.code}. DB::Exception: {error.text}\n",
        status_code=error.status,
        headers={"X-ClickHouse-Exception-Code": str(error.code)},
    )


def _bare(text: str) -> str:
    return re.sub(r"^Code: \d+\. DB::Exception: ", "", text)
