"""The sidecar's HTTP endpoints: /metrics, /health and /live."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from specscope_agent.health import Health

HEADER_TIMEOUT_S = 10.0  # a client that does not finish its request is let go


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Handler(WSGIRequestHandler):
    timeout = HEADER_TIMEOUT_S

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, because probes come every few seconds."""


def application(registry: CollectorRegistry, health: Health) -> Callable[..., Iterable[bytes]]:
    """WSGI application. /metrics is for Prometheus. /health returns 503 for any problem, /live only
    for problems that need a restart; both list one problem per line."""
    metrics: Any = make_wsgi_app(registry)
    questions = {"/health": health.problems, "/live": health.stuck}

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics":
            answered: Iterable[bytes] = metrics(environ, start)
            return answered
        plain = [("Content-Type", "text/plain; charset=utf-8")]
        if path not in questions:
            start("404 Not Found", plain)
            return [b"known are /metrics, /health and /live\n"]
        problems = questions[path]()
        start("503 Service Unavailable" if problems else "200 OK", plain)
        return ["".join(f"{problem}\n" for problem in problems or ["ok"]).encode()]

    return answer


def serve(host: str, port: int, registry: CollectorRegistry, health: Health) -> WSGIServer:
    """Serve in a separate thread. Raises OSError if the port is in use."""
    app: Any = application(registry, health)
    server = make_server(host, port, app, _Server, _Handler)
    threading.Thread(target=server.serve_forever, name="probes", daemon=True).start()
    return server
