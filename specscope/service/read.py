"""The read endpoint: ClickHouse's HTTP interface, read-only, with report, health and metrics.

GET or POST `/?query=…` takes the text from the address, the body, or both concatenated.
`param_NAME` binds {NAME:Type}; `default_format` or FORMAT chooses the format. Of other settings in
the address, harmless ones apply, limits may be lowered, and the rest is ignored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from specscope.errors import StoreError
from specscope.service.access import METRICS, READ, Access, Denied, Grant
from specscope.service.guard import allowed
from specscope.service.limits import BODY_S
from specscope.service.metrics import Metrics
from specscope.service.reader import ACCESS_DENIED, MAX_BODY, Question, Reader, Unanswered
from specscope_agent.channel import is_loopback

PAGE_HEADERS = {
    # The page carries everything inside itself; whatever a name in it may be, nothing is fetched.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}
UNKNOWN_DATABASE, BAD_ARGUMENTS, UNAUTHENTICATED = 81, 36, 516


def read_app(
    reader: Reader | None,
    metrics: Metrics,
    database: str,
    alive: Callable[[], bool],
    access: Access | None = None,
    page: Callable[[], Awaitable[str]] | None = None,
) -> Starlette:
    """The HTTP application; without a reader it answers no SQL (a ClickHouse server has its own
    endpoint).

    alive: whether the service stores its batches. access: rights to read; None allows everybody.
    page: the latest report; None for no report
    """
    asked = access or Access()

    async def numbers(request: Request) -> Response:
        # On this machine to anybody, since they are counts; beyond it to who may have them.
        if not request.client or not is_loopback(f"{request.client.host}:0"):
            try:
                _granted(asked, METRICS, request)
            except Unanswered as error:
                return _failed(error)
        return PlainTextResponse(metrics.text(), media_type="text/plain; version=0.0.4")

    async def ping(_: Request) -> Response:
        return PlainTextResponse("Ok.\n")

    async def sql(request: Request) -> Response:
        try:
            grant = _granted(asked, READ, request)
            if reader is None:
                raise Unanswered(404, BAD_ARGUMENTS, "the store is a server: read it there")
            question = await _question(request, database, grant)
            if not question.sql:
                return PlainTextResponse("Ok.\n")
            answer = await reader.answer(question, _gone(request))
        except Unanswered as error:
            outcome = "refused" if error.code in (ACCESS_DENIED, UNAUTHENTICATED) else "failed"
            metrics.queries.labels(outcome=outcome).inc()
            return _failed(error)
        metrics.queries.labels(outcome="answered").inc()
        headers = {"X-ClickHouse-Format": answer.format, "X-ClickHouse-Timezone": "UTC"}
        return Response(answer.body, headers=headers, media_type="application/octet-stream")

    async def report(request: Request) -> Response:
        try:
            if _granted(asked, READ, request).restricted:
                raise Unanswered(403, ACCESS_DENIED, "the report pools replicas of all tenants")
            if page is None:
                raise Unanswered(404, BAD_ARGUMENTS, "this service has no report")
            return HTMLResponse(await page(), headers=PAGE_HEADERS)
        except Unanswered as error:
            return _failed(error)
        except ImportError as error:
            text = f"the report needs {error.name}: pip install 'specscope[report]'"
            return _failed(Unanswered(501, BAD_ARGUMENTS, text))
        except StoreError as error:
            return _failed(Unanswered(503, BAD_ARGUMENTS, str(error)))

    return Starlette(
        routes=[
            _health(alive),
            Route("/report", report),
            Route("/ping", ping),
            Route("/metrics", numbers),
            Route("/", sql, methods=["GET", "POST"]),
        ]
    )


def metrics_app(metrics: Metrics, alive: Callable[[], bool]) -> Starlette:
    """Health and metrics without authentication, for an address that only probes and Prometheus
    reach."""

    async def numbers(_: Request) -> Response:
        return PlainTextResponse(metrics.text(), media_type="text/plain; version=0.0.4")

    return Starlette(routes=[_health(alive), Route("/metrics", numbers)])


def _health(alive: Callable[[], bool]) -> Route:
    async def health(_: Request) -> Response:
        if alive():
            return PlainTextResponse("ok\n")
        return PlainTextResponse("the service must restart\n", status_code=503)

    return Route("/health", health)


def _granted(access: Access, right: str, request: Request) -> Grant:
    """The caller's grant, from any of the places in which ClickHouse clients send a password."""
    credentials = request.headers.getlist("authorization")
    if key := request.headers.get("x-clickhouse-key"):
        credentials = [f"Bearer {key}"]
    try:
        return access.grant(right, *credentials)
    except Denied as error:
        if error.known:
            raise Unanswered(403, ACCESS_DENIED, str(error)) from None
        raise Unanswered(401, UNAUTHENTICATED, str(error)) from None


async def _question(request: Request, database: str, grant: Grant) -> Question:
    asked = request.query_params
    if asked.get("database", database) != database:
        raise Unanswered(404, UNKNOWN_DATABASE, f"the only database is {database}")
    if request.headers.get("content-type", "").startswith("multipart/"):
        raise Unanswered(400, BAD_ARGUMENTS, "external data is not accepted")
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BODY:
                    text = f"a statement may have {MAX_BODY} bytes"
                    raise Unanswered(413, BAD_ARGUMENTS, text)
    except ClientDisconnect:  # nobody is there to be told
        raise Unanswered(400, BAD_ARGUMENTS, "the client has left") from None
    except TimeoutError:
        raise Unanswered(408, BAD_ARGUMENTS, f"no whole body in {BODY_S:.0f} s") from None
    try:
        parts = [asked.get("query", ""), bytes(body).decode()]
    except UnicodeDecodeError:
        raise Unanswered(400, BAD_ARGUMENTS, "the body is not UTF-8 text") from None
    format_ = asked.get("default_format", "TabSeparated")
    if format_ not in allowed("formats"):
        text = f"this endpoint does not write format {format_}"
        raise Unanswered(400, BAD_ARGUMENTS, text)
    known = allowed("settings") | allowed("limits")
    return Question(
        "\n".join(filter(None, parts)),
        {name[6:]: value for name, value in asked.items() if name.startswith("param_")},
        format_,
        {name: value for name, value in asked.items() if name in known},
        grant,
    )


async def _gone(request: Request) -> None:
    """Wait until the client disconnects."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _failed(error: Unanswered) -> Response:
    headers = {"X-ClickHouse-Exception-Code": str(error.code)}
    if error.status == 401:
        headers["WWW-Authenticate"] = 'Basic realm="specscope"'
    return PlainTextResponse(
        f"Code: {error.code}. DB::Exception: {error.text}\n",
        status_code=error.status,
        headers=headers,
    )
