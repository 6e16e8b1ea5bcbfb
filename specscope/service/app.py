"""The whole service in one process: ingest, read endpoint, roll loop, store."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import uvicorn

from specscope.errors import ServiceError, StoreError
from specscope.service.ingest import Ingest, listen
from specscope.service.metrics import Metrics
from specscope.service.policies import newest
from specscope.service.read import Reader, read_app
from specscope.service.writer import LATER, Backoff, Writer
from specscope.settings import ServiceSettings, host_and_port
from specscope.store.connection import Store
from specscope.store.migrate import migrate
from specscope.store.roll import Roller

log = logging.getLogger(__name__)

ROLL_S = 5.0  # a closed minute shows on a dashboard that soon
POLICY_S = 2.0  # a gate change reaches sidecars that soon; blocks last longer
GRACE_S = 5.0  # for streams to end; what is not acknowledged by then is sent again


@dataclass(frozen=True, slots=True)
class Running:
    """A service that takes batches; the ports that it really got."""

    store: Store
    roller: Roller
    metrics: Metrics
    port: int
    http_port: int


def serve(settings: ServiceSettings, started: Callable[[Running], None]) -> None:
    """Run until a signal to end; then store what is in memory, and end.

    Raises ServiceError where a port is in use, StoreError where the store cannot be opened.
    """
    asyncio.run(_serve(settings, started))


async def _serve(settings: ServiceSettings, started: Callable[[Running], None]) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    async with running(settings) as service:
        started(service)
        await ended.wait()


@contextlib.asynccontextmanager
async def running(settings: ServiceSettings, *, later: Backoff = LATER) -> AsyncIterator[Running]:
    """A service for the length of a block; `later` is how long it waits for merges."""
    # gRPC says it in its own words, and not in one line.
    _bound(settings.listen).close()
    with _bound(settings.http) as http, _opened(settings) as store:
        await asyncio.to_thread(migrate, store)
        metrics = Metrics()
        roller = Roller(store.session())
        await asyncio.to_thread(roller.recover)
        writer = Writer(store.session(), metrics, roller.note, later=later)
        ingest = Ingest(store.session(), writer, metrics, apply_token=settings.apply_token)
        server, port = await listen(ingest, settings.listen)
        writer.start()
        reader = Reader.open(store) if store.embedded else None
        web = _web(read_app(reader, metrics, store.database, lambda: writer.alive))
        http_port = http.getsockname()[1]
        if store.owner:
            store.owner.publish(f"http://{host_and_port(settings.http)[0]}:{http_port}")
        tasks = [
            asyncio.create_task(web.serve(sockets=[http])),
            asyncio.create_task(_roll(roller, metrics)),
            asyncio.create_task(_push(ingest, store.session())),
        ]
        try:
            yield Running(store, roller, metrics, port, http_port)
        finally:
            await server.stop(GRACE_S)
            await asyncio.to_thread(writer.close)
            web.should_exit = True
            for task in tasks[1:]:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if reader:
                await reader.close()


def _opened(settings: ServiceSettings) -> Store:
    return Store.open(settings.store, min_free=settings.min_free)


async def _roll(roller: Roller, metrics: Metrics) -> None:
    while True:
        await asyncio.sleep(ROLL_S)
        try:
            rolled = await asyncio.to_thread(roller.tick)
        except StoreError as error:
            log.warning("%s; the rollups are behind", error)
            continue
        for grain, count in rolled._asdict().items():
            metrics.rolled.labels(grain=grain).inc(count)


async def _push(ingest: Ingest, store: Store) -> None:
    known = 0
    while True:
        try:
            policy = await asyncio.to_thread(newest, store)
        except StoreError as error:
            log.warning("%s; policies are not sent", error)
            policy = None
        if policy and policy.number != known:
            known = policy.number
            ingest.push(policy.number, policy.json)
        await asyncio.sleep(POLICY_S)


def _web(app: Any) -> Any:
    config = uvicorn.Config(app, lifespan="off", log_level="warning", access_log=False)
    server = uvicorn.Server(config)
    # Ours handles them, for both ports.
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
    return server


def _bound(address: str) -> socket.socket:
    """A listening socket, so that a port in use is known before anything starts."""
    host, port = host_and_port(address)
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
    except OSError as error:
        in_use = error.errno == errno.EADDRINUSE
        why = "in use" if in_use else error.strerror or str(error)
        raise ServiceError(f"cannot listen on {address}: {why}") from error
