"""A small Grafana over HTTP: folders, dashboards by uid, tokens; what we need of the real one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOKEN = "a-service-account-token"


class Grafana(ThreadingHTTPServer):
    """Keeps what it is given. `url` is where it listens."""

    def __init__(self, prefix: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.prefix = prefix
        self.folders: dict[str, str] = {}
        self.dashboards: dict[str, dict] = {}
        self.versions: dict[str, int] = {}
        self.placed: dict[str, str] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}{self.prefix}"


class _Handler(BaseHTTPRequestHandler):
    server: Grafana

    def do_GET(self) -> None:
        match self._asked():
            case ["folders", uid] if uid in self.server.folders:
                self._answer(200, {"uid": uid, "title": self.server.folders[uid]})
            case ["folders", _]:
                self._answer(404, {"message": "folder not found"})
            case _:
                self._answer(404, {"message": "no such path"})

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        body = json.loads(self.rfile.read(size))
        match self._asked():
            case ["folders"]:
                self.server.folders[body["uid"]] = body["title"]
                self._answer(200, {"uid": body["uid"], "title": body["title"]})
            case ["dashboards", "db"]:
                self._keep(body)
            case _:
                self._answer(404, {"message": "no such path"})

    def _keep(self, body: dict) -> None:
        dashboard, server = body["dashboard"], self.server
        uid = dashboard.get("uid")
        if body["folderUid"] not in server.folders:
            self._answer(400, {"message": "folder not found"})
        elif not dashboard.get("title") or not uid:
            self._answer(400, {"message": "Dashboard title cannot be empty"})
        elif uid in server.dashboards and not body.get("overwrite"):
            self._answer(412, {"message": "The dashboard has been changed by someone else"})
        else:
            server.dashboards[uid] = dashboard
            server.placed[uid] = body["folderUid"]
            server.versions[uid] = server.versions.get(uid, 0) + 1
            answer = {"uid": uid, "url": f"/d/{uid}/x", "version": server.versions[uid]}
            self._answer(200, {**answer, "status": "success", "id": 1, "slug": "x"})

    def _asked(self) -> list[str]:
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return ["unauthorized"]
        path = self.path.removeprefix(self.server.prefix).split("?")[0]
        return path.removeprefix("/api/").split("/")

    def _answer(self, status: int, body: dict) -> None:
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            status, body = 401, {"message": "Invalid API key"}
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args: object) -> None:
        """Silent."""


@contextmanager
def running(prefix: str = "") -> Iterator[Grafana]:
    server = Grafana(prefix)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
