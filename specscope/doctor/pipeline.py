"""Checks of the pipeline from hook to service, as far as the environment names its parts.

Standard library only. Each check reads; none changes anything.
"""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from specscope.doctor import embedded
from specscope.doctor.check import Check

if TYPE_CHECKING:
    from specscope_hook.peek import RingPeek

PATIENCE_S = 3.0
LOOKED_AT = 1 << 20  # bytes of a ring's newest records
SPOOL_ROOM = 1 << 30  # the sidecar's default; below it an outage loses rows sooner


def hooks(environment: Mapping[str, str]) -> Iterator[Check]:
    """Whether the hooks of the rings in the folder are attached, and their writers alive."""
    from specscope_hook.errors import HookError
    from specscope_hook.peek import RingPeek

    folder = Path(environment.get("SPECSCOPE_RINGS", "off"))
    for path in sorted(folder.glob("*.ring")) if folder.is_dir() else ():
        try:
            ring = RingPeek.open(path)
        except HookError as error:
            yield Check(f"hook {path.stem}", "refused", str(error), "remove the file, or update")
            continue
        try:
            if fault := ring.fault_text:
                remedy = "restart the engine; the reason says what to change first"
                yield Check(f"hook {path.stem}", "failed", f"detached: {fault}", remedy)
            elif ring.writer_alive:
                yield Check(f"hook {path.stem}", "ok", f"attached, {ring.dropped} records dropped")
                yield from _classes(path.stem, ring)
            else:
                yield Check(f"hook {path.stem}", "ok", "its engine has ended")
        finally:
            ring.close()


def _classes(name: str, ring: RingPeek) -> Iterator[Check]:
    """Whether the newest requests on a ring have a class."""
    from specscope_hook.layout import NAME_CLASS
    from specscope_hook.payload import decode
    from specscope_hook.ring_records import RingRequest

    records, _ = ring.look(ring.newest(LOOKED_AT))
    requests = [each for each in map(decode, records) if isinstance(each, RingRequest)]
    names = ring.names(NAME_CLASS)
    without = sum(names.get(request.class_) == "unlabelled" for request in requests)
    if without:
        remedy = "name their classes with SPECSCOPE_CLASSES, or in the request"
        detail = f"{without} of the newest {len(requests)} request records have none"
        yield Check(f"classes of {name}", "warning", detail, remedy)
    elif requests:
        yield Check(f"classes of {name}", "ok", f"the newest {len(requests)} request records")


def followed(environment: Mapping[str, str]) -> Iterator[Check]:
    """Whether the sidecar can read the output of the servers that it follows, and the missing parts
    of it."""
    from specscope_agent.settings import source_settings
    from specscope_agent.sources.kinds import KINDS
    from specscope_hook.errors import SettingsError
    from specscope_hook.ring import Cursor

    try:
        settings = source_settings(environment)
    except SettingsError as error:
        yield Check("setting SPECSCOPE_SOURCES", "refused", str(error), "correct it")
        return
    for setting in settings:
        kind = KINDS[setting.kind]
        what = f"{setting.kind} {'log' if kind.file else 'page'} {setting.where}"
        if kind.file and not Path(setting.where).exists():
            remedy = "start the server with its output in this file, or correct SPECSCOPE_SOURCES"
            yield Check(what, "missing", "no such file", remedy)
            continue
        source = kind.follow(setting.where, setting.replica)
        try:
            harvest = source.poll(lambda _: Cursor())
            patience = time.monotonic() + (0 if kind.file else PATIENCE_S)
            while source.missing and time.monotonic() < patience:
                time.sleep(0.05)
                harvest = source.poll(lambda _: Cursor())
        except OSError as error:
            remedy = "let the sidecar read it, or correct SPECSCOPE_SOURCES"
            yield Check(what, "failed", error.strerror or str(error), remedy)
            continue
        finally:
            source.close()
        if source.missing:
            remedy = f"restart the server as docs/engines/{kind.page} says"
            yield Check(what, "failed", source.missing, remedy)
        else:
            ready = harvest or not kind.file
            detail = f"{kind.stores} are stored" if ready else "no request has ended yet"
            yield Check(what, "ok", detail)


def spool(environment: Mapping[str, str]) -> Iterator[Check]:
    """Whether the sidecar's spool exists, is writable and private, and has room."""
    if where := environment.get("SPECSCOPE_SPOOL"):
        yield _folder("spool", Path(where), SPOOL_ROOM)


def store(environment: Mapping[str, str]) -> Iterator[Check]:
    """The store that the environment names: room, definitions and parts of an embedded one, or
    the port of another."""
    where = environment.get("SPECSCOPE_STORE", "")
    parts = urlsplit(where)
    if where.startswith("chdb:"):
        yield from (Check(*state) for state in embedded.states(environment))
    elif parts.hostname:
        ports = {"http": 8123, "https": 8443, "clickhouse": 8123, "clickhouses": 8443}
        try:
            port = parts.port or ports.get(parts.scheme, 8123)
        except ValueError:
            yield Check("store", "refused", "its port is no number", "correct SPECSCOPE_STORE")
            return
        yield _port("store", parts.hostname, port)


def service(environment: Mapping[str, str]) -> Iterator[Check]:
    """The ingest service that the sidecar ships to."""
    if address := environment.get("SPECSCOPE_SERVICE"):
        host, _, port = address.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
            yield Check("service", "refused", f"{address!r} is not host:port", "correct it")
        else:
            yield _port("service", host.strip("[]"), int(port))


def _folder(what: str, path: Path, room: int) -> Check:
    what = f"{what} {path}"
    if not path.is_dir():
        return Check(what, "missing", "no such folder", "it is made at the first start")
    if not os.access(path, os.W_OK | os.X_OK):
        return Check(what, "failed", "this user cannot write to it", "change its owner or mode")
    if path.stat().st_mode & 0o007:
        return Check(what, "warning", "other users can enter it", f"chmod o-rwx {path}")
    free = shutil.disk_usage(path).free
    if free < room:
        detail = f"{free >> 20} MiB free, {room >> 20} wanted"
        return Check(what, "warning", detail, "free some room on its disk")
    return Check(what, "ok", f"{free >> 20} MiB free")


def _port(what: str, host: str, port: int) -> Check:
    what = f"{what} {host}:{port}"
    try:
        socket.create_connection((host, port), PATIENCE_S).close()
    except OSError as error:
        remedy = "start it, or correct the address; a NetworkPolicy may stand between"
        return Check(what, "failed", error.strerror or str(error), remedy)
    return Check(what, "ok", "reachable")
