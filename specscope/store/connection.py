"""A store on one of two engines: a ClickHouse server, or the embedded engine in this process.

`Store.open` takes a destination, one string:

    chdb:///path                        embedded; one process owns it, others read through
                                        the service that does
    clickhouse://user:password@host/db  a server, by its HTTP port (8123; `clickhouses` 8443)
    http://host:8123                    the service's read endpoint, or a server, to read
    https://any:TOKEN@host:8123?ca=FILE the same behind TLS, with the token as the password

The embedded engine allows one path per process at a time. A `Store` is one connection and
serves one thread at a time; `session` gives another on the same engine.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import clickhouse_connect
import pyarrow as pa
from clickhouse_connect.driver.exceptions import ClickHouseError
from clickhouse_connect.driver.httputil import get_pool_manager

from specscope.errors import StoreError, StoreFull, UsageError
from specscope.store.metadata import damaged_parts, repair
from specscope.store.ownership import Owner
from specscope.store.room import MIN_FREE_BYTES, Room
from specscope_agent.schemas import schema

DATABASE = "specscope"
ADDRESSES = "a store is chdb:///path, clickhouse://user@host/db or http://host:8123"
PORTS = {"clickhouse": 8123, "clickhouses": 8443, "http": 8123, "https": 8443}

# Strings as strings in Arrow, and every time in UTC whatever the machine's own zone is.
SETTINGS = {"output_format_arrow_string_as_string": "1", "session_timezone": "UTC"}

# Rows of one key within an insert are told apart by FINAL, as those of two inserts are. To merge
# them on the way takes longer than all the rest of the insert. A server keeps its own way.
INSERT_SETTINGS = {"optimize_on_insert": "0"}


@dataclass(slots=True)
class Store:
    """An open store. Every method raises StoreError if the engine refuses."""

    dsn: str
    database: str
    client: Any
    owner: Owner | None = None
    room: Room | None = None
    """Of the embedded engine's disk; a server watches its own."""
    sessions: list[Store] = field(default_factory=list)

    @classmethod
    def open(
        cls,
        dsn: str,
        *,
        create: bool = True,
        database: str | None = None,
        min_free: int = MIN_FREE_BYTES,
    ) -> Self:
        """Connect; with `create`, make a missing path and database.

        min_free: bytes that must be free on an embedded store's disk before a write. Raises
        StoreBusy if another process owns the embedded store, StoreFull if its disk is full,
        StoreError if the store is missing or unreachable, UsageError for an invalid dsn.
        """
        name = database or _database(dsn)
        if not dsn.startswith("chdb:"):
            store = cls(dsn, name, _server(dsn))
            missing = create and not dsn.startswith("http")
        else:
            path = _path(dsn)
            missing = create and not (path / "metadata" / f"{name}.sql").exists()
            if not create and not path.is_dir():
                raise StoreError(f"there is no store at {path}")
            room = Room(path, min_free)
            if missing:
                room.require(f"make a store at {path}")
            owner = Owner.take(path)
            try:
                repair(path, name, room)
                store = cls(dsn, name, _embedded(path), owner, room)
            except StoreError:
                owner.release()
                raise
        try:
            if missing:
                store.command(f"CREATE DATABASE IF NOT EXISTS `{name}`")
            store.client.database = name
        except StoreError:
            store.close()
            raise
        return store

    @property
    def embedded(self) -> bool:
        return self.dsn.startswith("chdb:")

    @property
    def path(self) -> Path:
        """Folder of the embedded engine's files."""
        return _path(self.dsn)

    def session(self, settings: Mapping[str, str] | None = None) -> Store:
        """Another connection to the same engine, for another thread; it closes with this one."""
        client = _embedded(self.path, settings) if self.embedded else _server(self.dsn, settings)
        client.database = self.database
        session = Store(self.dsn, self.database, client, room=self.room)
        self.sessions.append(session)
        return session

    def insert(self, table: str, rows: pa.Table, token: str = "") -> None:
        """Append rows; an early retry with the same token is stored once.

        Raises StoreFull if the disk is full or has taken only some rows; then a retry needs another
        token.
        """
        if self.room:
            self.room.require(f"insert into {table}")
        settings = {"insert_deduplication_token": token} if token else {}
        if self.embedded:
            settings |= INSERT_SETTINGS
        try:
            # In one piece: the engine pays for each, and many small batches are many pieces.
            self.client.insert_arrow(f"`{table}`", rows.combine_chunks(), settings=settings)
        except (ClickHouseError, OSError) as error:
            raise self._failed(error, f"insert into {table}") from error
        # The engine calls an insert done whose files the disk did not take.
        if (
            self.room
            and not self.room.enough
            and damaged_parts(self.room.path, self.database, table)
        ):
            raise StoreFull(
                f"insert into {table}: the disk filled up and stored only some of the rows"
            )

    def query(self, sql: str, params: Mapping[str, Any] | None = None) -> pa.Table:
        """Rows of a SELECT; parameters are bound as {name:Type}."""
        try:
            body = self.client.raw_query(sql, parameters=dict(params or {}), fmt="Arrow")
            return pa.ipc.open_file(body).read_all()
        except (ClickHouseError, OSError, pa.ArrowInvalid) as error:
            raise self._failed(error, "query") from error

    def add(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append plain values, a dictionary a row; a column that is left out is NULL."""
        self.insert(table, pa.Table.from_pylist(list(rows), schema(table)))

    def rows(self, sql: str, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Rows of a SELECT as dictionaries of plain values."""
        rows: list[dict[str, Any]] = self.query(sql, params).to_pylist()
        return rows

    def command(self, sql: str, params: Mapping[str, Any] | None = None) -> None:
        """Run a statement without a result; it may write."""
        if self.room:
            self.room.require(sql.split("(")[0].split("\n")[0].strip()[:60])
        try:
            self.client.command(sql, parameters=dict(params or {}))
        except (ClickHouseError, OSError) as error:
            raise self._failed(error, "command") from error

    def _failed(self, error: Exception, what: str) -> StoreError:
        if self.embedded:
            with contextlib.suppress(ClickHouseError):
                drain(lambda: self.client.raw_query("SELECT 1", fmt="TSV"))
        return _named(error, what)

    def close(self) -> None:
        """Close every session, then release the ownership."""
        for session in self.sessions:
            session.close()
        self.sessions.clear()
        self.client.close()
        if self.owner:
            self.owner.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def drain(select_one: Callable[[], bytes]) -> None:
    """Make a connection to the embedded engine usable after a failed statement.

    In chDB 26.9 the partial output of the failed statement would precede the next result.
    `select_one` runs SELECT 1 with tab-separated output. Raises StoreError if the connection stays
    unusable.
    """
    for _ in range(3):
        if select_one() == b"1\n":
            return
    raise StoreError("the embedded engine's connection no longer gives correct answers")


def error_code(error: StoreError) -> int | None:
    """ClickHouse's error number; None if the engine was not reached."""
    return getattr(error.__cause__, "code", None)


def _embedded(path: Path, settings: Mapping[str, str] | None = None) -> Any:
    return _connect(f"chdb://{path}", settings, interface="chdb", path=str(path))


def _server(dsn: str, settings: Mapping[str, str] | None = None) -> Any:
    scheme, host, port, user, password, query = _address(dsn)
    return _connect(
        f"{scheme}://{host}:{port}",  # without the password
        settings,
        interface="https" if scheme.endswith("s") else "http",
        host=host,
        port=port,
        username=user,
        password=password,
        # Sessions would forbid two queries at once.
        autogenerate_session_id=False,
        **_certificates(dsn, query),
    )


def _address(dsn: str) -> tuple[str, str, int, str, str, str]:
    """Split an address into scheme, host, port, user, password and query."""
    parts = _split(dsn)
    if parts.scheme not in PORTS or not parts.hostname:
        # Without what it holds: a mistyped scheme may come with a password.
        raise UsageError(f"{parts.scheme or 'no scheme'}: {ADDRESSES}")
    user, password = unquote(parts.username or "default"), unquote(parts.password or "")
    port = parts.port or PORTS[parts.scheme]
    return parts.scheme, parts.hostname, port, user, password, parts.query


def _split(dsn: str) -> SplitResult:
    try:
        parts = urlsplit(dsn)
        _ = parts.hostname, parts.port  # which are read here
    except ValueError:
        # Not in the words of the library: a port that is none may be part of a password.
        raise UsageError(
            f"an invalid address: {ADDRESSES}; a user or password with / # ? @ or : "
            "in it is written with %"
        ) from None
    return parts


def _certificates(dsn: str, query: str) -> dict[str, Any]:
    """A connection pool with the server's certificate authority and an optional client certificate:
    `?ca=FILE&cert=FILE&key=FILE`."""
    names = {"ca": "ca_cert", "cert": "client_cert", "key": "client_cert_key"}
    asked = dict(parse_qsl(query))
    if wrong := sorted(set(asked) - set(names)):
        raise StoreError(
            f"{urlsplit(dsn).scheme}://…?{wrong[0]}=: only ca, cert and key are allowed"
        )
    for path in asked.values():
        if not Path(path).is_file():
            raise StoreError(f"there is no file {path}")
    if not asked:
        return {}
    files: dict[str, Any] = {names[name]: value for name, value in asked.items()}
    # Of our own, which the client does not try to close: that fails with some builds of urllib3.
    return {"pool_mgr": get_pool_manager(**files)}


def _connect(name: str, settings: Mapping[str, str] | None, **arguments: Any) -> Any:
    for library in ("clickhouse_connect", "urllib3"):
        # What they warn of is in what they raise, and that is said in one line.
        logging.getLogger(library).setLevel(logging.ERROR)
    try:
        # In this order, since one that makes the connection read-only comes last.
        return clickhouse_connect.get_client(settings={**SETTINGS, **(settings or {})}, **arguments)
    except (ClickHouseError, OSError) as error:
        raise _unreachable(error, name) or _named(error, f"open {name}") from error


def _path(dsn: str) -> Path:
    path = unquote(urlsplit(dsn).path)
    if not path.startswith("/") or urlsplit(dsn).netloc:
        raise UsageError(f"{dsn}: an embedded store is chdb:/// and an absolute path")
    return Path(path).resolve()


def _database(dsn: str) -> str:
    if dsn.startswith("chdb:"):
        return DATABASE
    return unquote(_split(dsn).path.strip("/")) or DATABASE


def _unreachable(error: Exception, name: str) -> StoreError | None:
    """The reason for an unreachable store; None if it answered."""
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in causes:
        causes.append(cause)
        reason = getattr(cause, "reason", None)  # urllib3 hides the cause there
        cause = reason if isinstance(reason, Exception) else cause.__cause__ or cause.__context__
    for cause in causes:
        if isinstance(cause, ssl.SSLError):
            why = cause.reason.replace("_", " ").lower() if cause.reason else "no TLS there"
            return StoreError(f"{name}: TLS failed ({why}); check the scheme, ca, cert and key")
        if isinstance(cause, socket.gaierror):
            return StoreError(f"{name}: no such host; check its name")
        if isinstance(cause, ConnectionRefusedError):
            return StoreError(f"{name}: no server listens there; check host and port, or start it")
        if isinstance(cause, TimeoutError):
            return StoreError(f"{name}: no answer in time; check host, port and firewall")
    answered = "HTTP status" in str(error)
    if answered and getattr(error, "code", None) is None and "Code: " not in str(error):
        return StoreError(f"{name}: no ClickHouse server answers there; check host and port")
    return None


def _named(error: Exception, what: str) -> StoreError:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    for noise in (" In scope ", " (Caused by ", " with url: "):  # the statement, the way there
        text = text.partition(noise)[0]
    return StoreError(f"{what}: {text}")
