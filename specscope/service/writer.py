"""Write batches of many sidecars with one insert per table, in a separate thread.

A store fails from many small inserts, not from volume. So rows wait until there are FLUSH_ROWS of
them or the oldest has waited FLUSH_S. The writer inserts rows first, then the ledger, then answers.
It repeats a failed insert with the same rows and token until the store has them; meanwhile new
batches and their sidecars wait.
"""

from __future__ import annotations

import hashlib
import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from specscope.errors import StoreError, StoreFull
from specscope.service.intake import Admitted, merged
from specscope.service.metrics import Metrics
from specscope.service.overlap import Overlap
from specscope.store.connection import Store, error_code
from specscope_agent.schemas import schema

log = logging.getLogger(__name__)

FLUSH_ROWS = 50_000  # where an insert's fixed cost falls well below its rows'
FLUSH_S = 1.0  # at most 7 small inserts a second, from however many sidecars
TAKE_ROWS = 250_000  # so that a queue that piled up does not become one huge insert
TOO_MANY_PARTS = 252  # retrying it soon makes it worse: merges must catch up first
# The rows themselves are wrong (cannot parse, convert, read whole, against a constraint, NULL
# in a column that has none, and so on): to try again changes nothing.
DATA_ERRORS = frozenset({6, 26, 27, 33, 38, 41, 53, 69, 70, 72, 117, 131, 321, 349, 469, 691})

T = TypeVar("T")
Answer = Callable[[Admitted], object]
Noted = Callable[[Sequence[Mapping[str, Any]]], None]


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds before a failed insert is repeated: from `first`, doubled up to `most`."""

    first: float
    most: float

    def delay(self, attempt: int) -> float:
        return min(self.most, self.first * 2.0 ** min(attempt, 32)) * random.uniform(0.5, 1.0)


SOON = Backoff(0.5, 30.0)
LATER = Backoff(15.0, 300.0)


class Writer:
    """Take admitted batches from any thread, and answer each after the store has it."""

    def __init__(
        self,
        store: Store,
        metrics: Metrics,
        noted: Noted,
        *,
        flush_s: float = FLUSH_S,
        soon: Backoff = SOON,
        later: Backoff = LATER,
    ) -> None:
        """noted: called with the ledger's rows after they are stored."""
        self._store, self._metrics, self._noted = store, metrics, noted
        self._overlap = Overlap(store)
        self._flush_s, self._soon, self._later = flush_s, soon, later
        self._waiting: deque[tuple[Admitted, Answer, float]] = deque()
        self._asked: deque[Callable[[], None]] = deque()
        self._rows = 0
        self._ready = threading.Condition()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="specscope-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def offer(self, batch: Admitted, answer: Answer, since: float | None = None) -> None:
        """Queue a batch; `answer` is called from the writer's thread after it is stored.

        since: when it came, by the monotonic clock; now if None
        """
        with self._ready:
            self._waiting.append((batch, answer, time.monotonic() if since is None else since))
            self._rows += _rows(batch)
            # The writer knows of the others, and when the oldest of them is due.
            if len(self._waiting) == 1 or self._rows >= FLUSH_ROWS:
                self._ready.notify()

    def ask(self, work: Callable[[Store], T]) -> Future[T]:
        """Queue another job for the writer's store, between two inserts.

        If its Future is cancelled before its turn, the job does not run.
        """
        future: Future[T] = Future()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work(self._store))
                except Exception as error:
                    future.set_exception(error)

        with self._ready:
            self._asked.append(run)
            self._ready.notify()
        return future

    def close(self) -> None:
        """Store all waiting batches if the store accepts them now, then end."""
        self._closing.set()
        with self._ready:
            self._ready.notify()
        self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether the thread runs; if not, the service must restart."""
        return self._thread.is_alive()

    def _run(self) -> None:
        while any(turn := self._take()):
            asked, group = turn
            for run in asked:
                run()
            if group and not self._keep([batch for batch, _ in group]):
                return  # what follows must not leave a gap in the ledger
            for batch, answer in group:
                answer(batch)

    def _take(self) -> tuple[list[Callable[[], None]], list[tuple[Admitted, Answer]]]:
        """Wait for a job, enough rows or enough age; returns none after closing when all is
        stored."""
        with self._ready:
            while not self._closing.is_set() and self._rows < FLUSH_ROWS and not self._asked:
                wait = (
                    self._waiting[0][2] + self._flush_s - time.monotonic()
                    if self._waiting
                    else None
                )
                if wait is not None and wait <= 0:
                    break
                self._ready.wait(wait)
            asked, group, rows = list(self._asked), [], 0
            self._asked.clear()
            while self._waiting and rows < TAKE_ROWS:
                batch, answer, _ = self._waiting.popleft()
                group.append((batch, answer))
                rows += _rows(batch)
            self._rows -= rows
            return asked, group

    def _keep(self, batches: list[Admitted]) -> bool:
        """Insert until the store has all rows. False if the service ends before that."""
        attempt, repair = 0, 0
        while True:
            try:
                self._insert(batches, repair)
                self._metrics.store_full.set(0)
                return True
            except StoreFull as error:
                # What the disk took in part must be sent again under another token.
                code, repair = None, attempt + 1
                self._metrics.store_full.set(1)
                log.warning("%s; sidecars keep their batches until then", error)
            except StoreError as error:
                code = error_code(error)
                self._metrics.insert_errors.labels(code=str(code)).inc()
                log.warning("%s; kept and repeated", error)
            if code in DATA_ERRORS and len(batches) > 1:
                # One of them is at fault, and the others need not wait for it.
                return all(self._keep([batch]) for batch in batches)
            backoff = self._later if code == TOO_MANY_PARTS else self._soon
            if self._closing.wait(backoff.delay(attempt)):
                return False  # not answered, so the sidecars keep it and send it again
            attempt += 1

    def _insert(self, batches: Sequence[Admitted], repair: int) -> None:
        token = f"{_token(batches)}-{repair}" if repair else _token(batches)
        for name, rows in merged(batches).items():
            if name == "loss":
                continue
            try:
                self._insert_one(name, rows, f"{token}-{name}")
            except StoreError as error:
                if error_code(error) not in DATA_ERRORS or len(batches) > 1:
                    raise
                log.warning("%s; refused, and counted", error)
                batches[0].refuse_table(name, str(error)[:200], time.time_ns())
        # Losses last: refusals are added to them on the way, and no loss is of what is stored.
        self._overlap.settle(batches)
        losses = [rows for batch in batches if (rows := batch.losses()) is not None]
        if losses:
            self._insert_one("loss", pa.concat_tables(losses), f"{token}-loss")
        rows = [batch.ledger(time.time_ns()) for batch in batches]
        self._insert_one("batch", pa.Table.from_pylist(rows, schema("batch")), f"{token}-batch")
        self._noted(rows)

    def _insert_one(self, name: str, rows: pa.Table, token: str) -> None:
        with self._metrics.insert_seconds.labels(table=name).time():
            self._store.insert(name, rows, token)
        self._metrics.stored_rows.labels(table=name).inc(rows.num_rows)


def _rows(batch: Admitted) -> int:
    return sum(rows.num_rows for rows in batch.tables.values())


def _token(batches: Sequence[Admitted]) -> str:
    """A token that depends only on the batches, so a repeat has the same one."""
    names: list[Any] = [(*batch.source, batch.number, batch.refused) for batch in batches]
    return hashlib.blake2b(repr(names).encode(), digest_size=16).hexdigest()
