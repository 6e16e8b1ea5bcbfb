"""The whole service in one process: ingest, read endpoint, roll loop, store."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import signal
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from specscope.errors import ServiceError, SpecscopeError, StoreError, StoreFull, UsageError
from specscope.service import memory
from specscope.service.access import Access
from specscope.service.admission import Admission
from specscope.service.assessor import Assessor
from specscope.service.ingest import Ingest
from specscope.service.limits import raise_descriptor_limit
from specscope.service.metrics import Metrics
from specscope.service.page import ReportPage
from specscope.service.policies import newest, proposed
from specscope.service.read import metrics_app, read_app
from specscope.service.reader import Reader
from specscope.service.server import Server, listen
from specscope.service.steward import Steward
from specscope.service.tls import Certificates
from specscope.service.web import web_server
from specscope.service.writer import LATER, Backoff, Writer
from specscope.settings import ServiceSettings, host_and_port
from specscope.store import recount
from specscope.store.connection import Store
from specscope.store.metadata import broken_parts
from specscope.store.migrate import migrate
from specscope.store.roll import Roller
from specscope.store.rollups import ROLLUPS
from specscope_hook.errors import PolicyError

log = logging.getLogger(__name__)

ROLL_S = 5.0  # a closed minute shows on a dashboard that soon
ASSESS_S = 300.0  # a judgement of a large fleet takes seconds of a core
RENEW_S = 10.0  # how often certificates are looked at
STEWARD_S = 15.0  # what an experiment that should end may cost longer
WRITE_S = 60.0  # that a policy may wait for inserts before it
POLICY_S = 2.0  # a gate change reaches sidecars that soon; blocks last longer
END_S = 20.0  # from the signal; Kubernetes kills after 30
GRACE_S = 5.0  # for streams to end; what is not acknowledged by then is sent again


@dataclass(frozen=True, slots=True)
class Running:
    """A running service, with its actual ports."""

    store: Store
    roller: Roller
    metrics: Metrics
    port: int
    http_port: int


def serve(settings: ServiceSettings, started: Callable[[Running], None]) -> None:
    """Run until a signal to end, then store all batches in memory.

    Raises ServiceError if a port is in use, StoreError if the store cannot be opened.
    """
    asyncio.run(_serve(settings, started))


async def _serve(settings: ServiceSettings, started: Callable[[Running], None]) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    async with running(settings) as service:
        memory.settle()
        started(service)
        await ended.wait()
        _end_soon()


def _end_soon() -> None:
    """End this process after END_S in any case, as a kill would, which loses nothing. A query or an
    insert that the engine cannot stop must not delay the end."""

    def end() -> None:
        log.warning("not ended within %.0f s; all acknowledged batches are stored", END_S)
        os._exit(0)

    timer = threading.Timer(END_S, end)
    timer.daemon = True
    timer.start()


@contextlib.asynccontextmanager
async def running(settings: ServiceSettings, *, later: Backoff = LATER) -> AsyncIterator[Running]:
    """Run a service inside a `with` block; `later`: time to wait for merges."""
    raise_descriptor_limit()
    pa.array([])  # it imports pandas at its first value, which must not be while a batch waits
    access = Access(settings.tokens, settings.apply_token)
    certificates = _certificates(settings)
    context = certificates.for_http() if certificates else None
    # gRPC says it in its own words, and not in one line.
    _bound(settings.listen).close()
    with contextlib.ExitStack() as held:
        http = held.enter_context(_bound(settings.http))
        shown = held.enter_context(_bound(settings.metrics)) if settings.metrics else None
        store = held.enter_context(_opened(settings))
        await asyncio.to_thread(migrate, store, synced=settings.synced)
        metrics = Metrics()
        roller = Roller(store.session())
        await asyncio.to_thread(_recover, store, roller)
        writer = Writer(store.session(), metrics, roller.note, later=later)
        admission = Admission(writer)
        ingest = Ingest(store.session(), writer, admission, metrics, access)
        server = await listen(ingest, settings.listen, certificates)
        writer.start()
        admission.start()
        reader = Reader.open(store) if store.embedded else None

        def alive() -> bool:
            return writer.alive and admission.alive

        page = ReportPage(store.session())
        app = read_app(reader, metrics, store.database, alive, access, page.html)
        webs = [(web_server(app, context), http)]
        if shown:
            webs.append((web_server(metrics_app(metrics, alive)), shown))
        http_port = http.getsockname()[1]
        if store.owner:
            scheme = "https" if certificates else "http"
            store.owner.publish(f"{scheme}://{host_and_port(settings.http)[0]}:{http_port}")
        serving = [asyncio.create_task(web.serve(sockets=[socket])) for web, socket in webs]
        assessor = Assessor(store.session())
        steward = Steward(store.session(), partial(_propose, writer))
        turning = [
            asyncio.create_task(_roll(roller, metrics)),
            asyncio.create_task(_assess(assessor)),
            asyncio.create_task(_see_through(steward, assessor)),
            asyncio.create_task(_push(ingest, store.session())),
            asyncio.create_task(_show_health(server, alive)),
            asyncio.create_task(_give_back(store.session())),
        ]
        if certificates and context:
            turning.append(asyncio.create_task(_renew(certificates, context)))
        try:
            yield Running(store, roller, metrics, server.port, http_port)
        finally:
            if reader:
                await reader.close()
            await server.stop(GRACE_S)
            await asyncio.to_thread(admission.close)
            await asyncio.to_thread(writer.close)
            for web, _ in webs:
                web.should_exit = True
            for task in turning:
                task.cancel()
            await asyncio.gather(*serving, *turning, return_exceptions=True)


def _certificates(settings: ServiceSettings) -> Certificates | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return Certificates(settings.tls_cert, settings.tls_key, settings.tls_client_ca)


async def _renew(certificates: Certificates, context: ssl.SSLContext) -> None:
    """Reload renewed certificates for HTTP; gRPC reloads its own."""
    stamp = certificates.stamp()
    while True:
        await asyncio.sleep(RENEW_S)
        try:
            if certificates.stamp() != stamp:
                stamp = certificates.stamp()
                certificates.load_into(context)
        except (OSError, UsageError) as error:  # half renewed: those that are in use stay
            log.warning("%s; the previous certificate stays in use", error)


async def _show_health(server: Server, alive: Callable[[], bool]) -> None:
    while True:
        await server.show(serving=alive())
        await asyncio.sleep(POLICY_S)


def _opened(settings: ServiceSettings) -> Store:
    return Store.open(settings.store, min_free=settings.min_free)


def _recover(store: Store, roller: Roller) -> None:
    """Log the losses since the last start, and note the rows that no rollup counts."""
    rollups_broken = (
        any(recount.table_of(store, part) in ROLLUPS for part in broken_parts(store.path))
        if store.embedded
        else False
    )
    try:
        recount.account(store)
    except StoreFull as error:
        log.warning("%s; lost rows are counted at the next start", error)
    roller.recover()
    if rollups_broken:
        roller.note_all()


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


async def _assess(assessor: Assessor) -> None:
    while True:
        try:
            await asyncio.to_thread(assessor.tick)
        except (StoreError, ImportError) as error:
            log.warning("%s; verdicts on dashboards are behind", error)
        await asyncio.sleep(ASSESS_S)


async def _see_through(steward: Steward, assessor: Assessor) -> None:
    while True:
        await asyncio.sleep(STEWARD_S)
        try:
            await asyncio.to_thread(steward.tick, assessor.judged)
        except (SpecscopeError, PolicyError, ImportError, TimeoutError) as error:
            log.warning("%s; experiments are not supervised", error)


def _propose(writer: Writer, body: Mapping[str, Any], note: str) -> None:
    """Put the service's own policy in force. Raises NumberTaken, PolicyError or StoreError."""
    add = proposed(int(body["policy"]), json.dumps(body), note, time.time_ns())
    writer.ask(add).result(timeout=WRITE_S)


async def _give_back(store: Store) -> None:
    while True:
        await asyncio.sleep(memory.EVERY_S)
        await asyncio.to_thread(memory.give_back, store)


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


def _bound(address: str) -> socket.socket:
    """A listening socket, so that a used port fails before anything starts."""
    host, port = host_and_port(address)
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
    except OSError as error:
        in_use = error.errno == errno.EADDRINUSE
        why = "in use" if in_use else error.strerror or str(error)
        raise ServiceError(f"cannot listen on {address}: {why}") from error
