"""The real engine behind ClickHouse's HTTP interface, for services that store on a server.

A ClickHouse server cannot be installed from a package registry. Its engine can: this process owns
one, and answers what clients post as a server would, writes included. What it leaves out is what
our client never asks: sessions, streams, users.

Run as a script with a folder and a port.
"""

from __future__ import annotations

import gzip
import os
import re
import sys
import tempfile
from typing import Any

import chdb
import lz4.frame
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

# Of the transport, and no settings of a query.
TRANSPORT = {
    "query", "database", "session_id", "query_id", "buffer_size", "wait_end_of_query", "compress",
    "send_progress_in_http_headers", "http_headers_progress_interval_ms", "enable_http_compression",
    "client_protocol_version", "role",
}  # fmt: skip
DECODERS = {"": bytes, "lz4": lz4.frame.decompress, "gzip": gzip.decompress}


def app(path: str) -> Starlette:
    """A server on one folder."""
    engine: Any = chdb.connect(path)  # for as long as the process lives

    async def answer(request: Request) -> Response:
        body = DECODERS[request.headers.get("content-encoding", "")](await request.body())
        return await run_in_threadpool(run, dict(request.query_params), body)

    def run(asked: dict[str, str], body: bytes) -> Response:
        connection: Any = chdb.connect(path)
        try:
            if asked.get("database"):
                connection.query(f"USE `{asked['database']}`")
            for name, value in asked.items():
                if name not in TRANSPORT and not name.startswith("param_"):
                    quoted = value.replace("\\", "\\\\").replace("'", "\\'")
                    connection.query(f"SET {name} = '{quoted}'")
            params = {name[6:]: value for name, value in asked.items() if "param_" in name[:6]}
            sql = asked.get("query", "")
            if re.match(r"\s*INSERT\b.*\bFORMAT\s+\w+\s*$", sql, re.DOTALL) and body:
                return insert(connection, sql, body)
            rows = connection.query(sql + body.decode(), "TabSeparated", params=params).bytes()
            named = re.search(r"\bFORMAT\s+(\w+)\s*;?\s*$", sql + body.decode())
            headers = {"X-ClickHouse-Format": named[1] if named else "TabSeparated"}
            return Response(rows, headers=headers | {"X-ClickHouse-Timezone": "UTC"})
        except RuntimeError as error:
            found = re.search(r"Code: (\d+)\.", str(error))
            headers = {"X-ClickHouse-Exception-Code": found[1] if found else "0"}
            return PlainTextResponse(str(error), 500, headers)
        finally:
            connection.close()

    def insert(connection: Any, sql: str, body: bytes) -> Response:
        into, _, format_ = sql.rpartition("FORMAT")
        with tempfile.NamedTemporaryFile() as file:
            file.write(body)
            file.flush()
            connection.query(f"{into} FROM INFILE '{file.name}' FORMAT {format_}")
        return Response(b"")

    assert engine
    return Starlette(routes=[Route("/", answer, methods=["GET", "POST"])])


if __name__ == "__main__":
    os.umask(0o077)
    uvicorn.run(app(sys.argv[1]), host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
