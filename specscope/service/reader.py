"""Run untrusted queries on the embedded engine: guarded, limited, cancellable and isolated.

Each query has its own read-only connection, which costs a millisecond and isolates it from other
queries. It runs in a daemon thread, so a query that does not end cannot block the end of the
service.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import secrets
import threading
from collections.abc import AsyncIterator, Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import chdb

from specscope.errors import QueryRefused
from specscope.service.access import ANYBODY, Grant
from specscope.service.guard import allowed, guarded
from specscope.store.connection import SETTINGS, Store
from specscope.store.literals import quoted

log = logging.getLogger(__name__)

CONNECTIONS = 3  # queries at once; the rest waits, so that ingest keeps its share
PER_READER = 2  # of one token, so that the others get an answer
WAIT_S = 10.0
QUERY_S = 30
KILL_S = 5.0  # more than the limit, and again after the query was killed
MAX_BODY = 256 << 10  # bytes of a statement, which is parsed without a limit of time

LIMITS = {
    "max_execution_time": str(QUERY_S),
    "max_memory_usage": str(1 << 30),
    "max_rows_to_read": "2000000000",
    "max_result_rows": "1000000",
    "max_result_bytes": str(128 << 20),
    "max_threads": "2",
    "max_query_size": str(MAX_BODY),
    "max_ast_elements": "20000",
    # A query is cancelled between two blocks, so a block must not take long.
    "max_block_size": "8192",
    "use_query_cache": "0",
}

ACCESS_DENIED, TOO_MANY_QUERIES, CANCELLED = 497, 202, 394
SHARED = frozenset({"policy"})
"""Tables without a replica that say nothing of anybody's traffic."""
TABLES = """
SELECT table, max(name = 'replica') AS of_replicas FROM system.columns
WHERE database = {database:String} GROUP BY table"""
OWN_ROWS = "additional_table_filters"
_CODE = re.compile(r"Code: (\d+)\.")


class Unanswered(Exception):
    """An error as the answer: HTTP status, ClickHouse's code, a sentence."""

    def __init__(self, status: int, code: int, text: str) -> None:
        super().__init__(text)
        self.status, self.code, self.text = status, code, text


@dataclass(frozen=True, slots=True)
class Question:
    """A statement with its bound parameters, default format and settings."""

    sql: str
    params: Mapping[str, str] = field(default_factory=dict)
    format: str = "TabSeparated"
    settings: Mapping[str, str] = field(default_factory=dict)
    grant: Grant = ANYBODY


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows in a format."""

    body: bytes
    format: str


@dataclass(slots=True)
class _Turn:
    """A slot of a reader. A query that does not stop when cancelled keeps its slot, so only its own
    reader waits."""

    kept_by: asyncio.Future[Answer] | None = None

    def give_back(self, own: asyncio.Semaphore) -> None:
        if self.kept_by is None:
            own.release()
        else:
            self.kept_by.add_done_callback(lambda _: own.release())


class Reader:
    """Read-only queries on the store's engine, a few at a time. It runs in one event loop."""

    def __init__(
        self, path: str, database: str, databases: frozenset[str], tables: Mapping[str, bool]
    ) -> None:
        """databases: names of all databases, in lower case. tables: whether the rows of each of our
        tables name a replica"""
        self._path, self._database, self._databases = path, database, databases
        self._tables = tables
        self._free = asyncio.Semaphore(CONNECTIONS)
        self._own: dict[str, asyncio.Semaphore] = {}
        self._running: dict[str, asyncio.Future[Answer]] = {}

    @classmethod
    def open(cls, store: Store) -> Self:
        """Open on the store's engine, which must be the embedded one."""
        rows = store.rows("SELECT name FROM system.databases")
        databases = frozenset(row["name"].lower() for row in rows)
        tables = {
            row["table"]: bool(row["of_replicas"])
            for row in store.rows(TABLES, {"database": store.database})
        }
        return cls(str(store.path), store.database, databases, tables)

    async def close(self) -> None:
        """Cancel running queries. A query that does not stop within KILL_S ends with the
        process."""
        running = dict(self._running)
        await asyncio.gather(*(asyncio.to_thread(self._kill, query) for query in running))
        if running:
            await asyncio.wait(running.values(), timeout=KILL_S)

    async def answer(self, question: Question, gone: Awaitable[object] | None = None) -> Answer:
        """Run a statement. Raises Unanswered.

        gone: an awaitable that ends after the client has disconnected; the reader then cancels the
        query
        """
        async with self._turn(question.grant.name) as turn:
            query = secrets.token_hex(8)
            work = self._start(query, question)
            leaving = asyncio.ensure_future(gone) if gone else None
            ends: set[asyncio.Future[Any]] = {work, leaving} if leaving else {work}
            try:
                await asyncio.wait(
                    ends, timeout=QUERY_S + KILL_S, return_when=asyncio.FIRST_COMPLETED
                )
                if not work.done():
                    await asyncio.to_thread(self._kill, query)
                    await asyncio.wait({work}, timeout=KILL_S)
            finally:
                if leaving:
                    leaving.cancel()
            if not work.done():
                turn.kept_by = work
                log.warning(
                    "a query of %s does not end after its cancellation", question.grant.name
                )
                raise Unanswered(500, CANCELLED, "the query could not be ended in time")
            return work.result()

    @contextlib.asynccontextmanager
    async def _turn(self, name: str) -> AsyncIterator[_Turn]:
        """Take one of all slots, and one of the reader's slots."""
        own = self._own.setdefault(name, asyncio.Semaphore(PER_READER))
        turn = _Turn()
        async with contextlib.AsyncExitStack() as held:
            try:
                async with asyncio.timeout(WAIT_S):
                    await own.acquire()
                    held.callback(turn.give_back, own)
                    await held.enter_async_context(self._free)
            except TimeoutError:
                text = f"all connections were busy for {WAIT_S:.0f} s"
                raise Unanswered(503, TOO_MANY_QUERIES, text) from None
            yield turn

    def _start(self, query: str, question: Question) -> asyncio.Future[Answer]:
        """Start the query in its own thread; its future ends with the query."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._running[query] = future

        def end(answer: Answer | None, error: BaseException | None) -> None:
            self._running.pop(query, None)
            if error is None and answer is not None:
                future.set_result(answer)
            elif error is not None:
                future.set_exception(error)
                future.exception()  # looked at, even if nobody waits any more

        def run() -> None:
            answer = error = None
            try:
                answer = self._run(query, question)
            except BaseException as raised:
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(end, answer, error)

        threading.Thread(target=run, name="specscope-reader", daemon=True).start()
        return future

    def _run(self, query: str, question: Question) -> Answer:
        params = dict(question.params)
        connection: Any = None

        def explain(text: str) -> str:
            tree: bytes = connection.query(f"EXPLAIN AST {text}", "TSVRaw", params=params).bytes()
            return tree.decode()

        try:
            connection = chdb.connect(self._path)  # type: ignore[no-untyped-call]
            connection.query(f"USE `{self._database}`")
            # EXPLAIN too is of a stranger's text.
            _set(connection, {**SETTINGS, **LIMITS, "log_comment": query})
            parsed = guarded(
                question.sql, explain, database=self._database, databases=self._databases
            )
            _set(connection, _lowered({**question.settings, **parsed.settings}))
            _set(connection, {**self._own_rows(question.grant), "readonly": "1"})
            chosen = parsed.format or question.format
            return Answer(connection.query(parsed.sql, chosen, params=params).bytes(), chosen)
        except QueryRefused as error:
            raise Unanswered(403, ACCESS_DENIED, str(error)) from error
        except RuntimeError as error:  # the engine's own
            text = str(error).strip()
            found = _CODE.search(text)
            code = int(found[1]) if found else 0
            raise Unanswered(500 if code in (159, 241, 394, 396) else 400, code, _bare(text)) from (
                error
            )
        finally:
            if connection is not None:
                connection.close()

    def _own_rows(self, grant: Grant) -> dict[str, str]:
        """Settings that limit a reader to the rows of its own replicas; none if it may see all.

        They cover every existing table, because tables of another version may hold rows of others
        too.
        """
        if not grant.restricted:
            return {}
        own = " OR ".join(f"startsWith(replica, '{prefix}')" for prefix in grant.prefixes)
        filters = {
            # A table without a replica pools those of all tenants.
            table: own if of_replicas else "0"
            for table, of_replicas in self._tables.items()
            if table not in SHARED
        }
        pairs = (f"'{self._database}.{table}': {quoted(text)}" for table, text in filters.items())
        # A condition that is moved to PREWHERE, or stands there, is evaluated before the filter:
        # what it raises would tell of the rows of others. The guard refuses the word.
        return {
            OWN_ROWS: "{" + ", ".join(pairs) + "}",
            "optimize_move_to_prewhere": "0",
            "query_plan_optimize_prewhere": "0",
        }

    def _kill(self, query: str) -> None:
        """Cancel a query; the engine stops between two blocks."""
        with contextlib.suppress(RuntimeError):
            connection = chdb.connect(self._path)  # type: ignore[no-untyped-call]
            try:
                connection.query(f"KILL QUERY WHERE Settings['log_comment'] = '{query}' ASYNC")
            finally:
                connection.close()


def _set(connection: Any, settings: Mapping[str, str]) -> None:
    for name, value in settings.items():
        # A map is ours alone; the value of a stranger is a text, whatever it looks like.
        literal = value if name == OWN_ROWS else quoted(value)
        connection.query(f"SET {name} = {literal}")


def _lowered(asked: Mapping[str, str]) -> dict[str, str]:
    """The settings of a question, with limits capped at ours."""
    settings = {}
    for name, value in asked.items():
        if name in allowed("limits"):
            if not value.isascii() or not value.isdigit():
                raise QueryRefused(f"{name} = {value[:40]!r} is not a whole number")
            settings[name] = str(min(int(value) or int(LIMITS[name]), int(LIMITS[name])))
        elif name in allowed("settings"):
            settings[name] = value
    return settings


def _bare(text: str) -> str:
    return re.sub(r"^Code: \d+\. DB::Exception: ", "", text)
