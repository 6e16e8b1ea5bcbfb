"""A whole service, in a thread of the test's own process or in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from typing import Any

from waiting import PATIENCE_S

from specscope.service.app import Running, running
from specscope.settings import ServiceSettings


@contextlib.contextmanager
def service(
    dsn: str, *, apply_token: str = "", told: Mapping[str, Any] | None = None, **options: Any
) -> Iterator[Running]:
    """A service with an event loop of its own, on ports that the system chooses.

    told: more of its settings
    """
    settings = ServiceSettings(
        store=dsn,
        apply_token=apply_token,
        **{"listen": "127.0.0.1:0", "http": "127.0.0.1:0", **(told or {})},
    )
    started: Future[Running] = Future()
    stop = threading.Event()

    async def serve() -> None:
        try:
            async with running(settings, **options) as service:
                started.set_result(service)
                await asyncio.to_thread(stop.wait)
        except BaseException as error:
            if not started.done():
                started.set_exception(error)
            raise

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        yield started.result(timeout=PATIENCE_S)
    finally:
        stop.set()
        thread.join()


@contextlib.contextmanager
def service_process(dsn: str, **environ: str) -> Iterator[dict[str, int]]:
    """`specscope serve`; its ports by "grpc" and "http". One process holds one embedded store."""
    kept = {name: value for name, value in os.environ.items() if "SPECSCOPE" not in name}
    process = subprocess.Popen(
        [sys.executable, "-m", "specscope", "serve", "--json", "--store", dsn,
         "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        text=True,
        env=kept | environ,
    )  # fmt: skip
    try:
        yield json.loads(process.stdout.readline())
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
