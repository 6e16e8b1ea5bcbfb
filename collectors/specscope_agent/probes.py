"""What others ask the sidecar over HTTP: /metrics, /health and /live."""

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
        """Nothing: probes come every few seconds."""


def application(registry: CollectorRegistry, health: Health) -> Callable[..., Iterable[bytes]]:
    """WSGI: /metrics for Prometheus; /health is 503 when anything is wrong, /live when only a
    restart helps, each with one line a problem."""
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
    """Answer on a thread of its own. Raises OSError when the port is taken."""
    app: Any = application(registry, health)
    server = make_server(host, port, app, _Server, _Handler)
    threading.Thread(target=server.serve_forever, name="probes", daemon=True).start()
    return server
