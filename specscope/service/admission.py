"""Check the batches of all streams, many at a time, in a separate thread.

A sidecar ships twice a second, so most batches are small, and the number of calls dominates the
cost of a check. Batches within LINGER_S are checked together: their rows form one table, with one
call per check. A batch that fails is checked alone by `intake.admit`, which counts its refused
rows.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from specscope.service.decode import UNREADABLE, Claim, decoded_together
from specscope.service.intake import ACCEPTED, FUTURE_NS, Admitted, admit, kept_from
from specscope.service.writer import FLUSH_S, Answer, Writer
from specscope.store.ledger import Source
from specscope.store.tables import LAYOUTS

log = logging.getLogger(__name__)

# As long as the writer leaves: it counts a batch's age from its arrival, so one turn is checked for
# each of its inserts, and no batch waits longer for that.
LINGER_S = 0.8 * FLUSH_S
TURN_BYTES = 8 << 20  # decoded, that are checked in one turn

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Incoming:
    """A batch from a stream, the claims of its tables, and the callback after it is stored."""

    batch: Any
    claimed: Sequence[Claim]
    answer: Answer
    since: float = field(default_factory=time.monotonic)

    @property
    def source(self) -> Source:
        """The source that the rows of its batch must have."""
        return Source(self.batch.source.replica, self.batch.source.boot)

    @property
    def size(self) -> int:
        """Bytes, decoded."""
        return sum(claim.size for claim in self.claimed)


class Admission:
    """Take batches of any stream and pass them to the writer in their order."""

    def __init__(self, writer: Writer, *, linger_s: float = LINGER_S) -> None:
        self._writer, self._linger_s = writer, linger_s
        self._waiting: deque[Incoming] = deque()
        self._bytes = 0
        self._ready = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="specscope-admission", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def offer(self, batch: Any, claimed: Sequence[Claim], answer: Answer) -> None:
        """Queue a wire Batch for the store; `answer` is called from the writer's thread."""
        offered = Incoming(batch, claimed, answer)
        with self._ready:
            self._waiting.append(offered)
            self._bytes += offered.size
            if len(self._waiting) == 1 or self._bytes >= TURN_BYTES:
                self._ready.notify()

    def close(self) -> None:
        """Pass on all waiting batches, then end."""
        with self._ready:
            self._closing = True
            self._ready.notify()
        self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether the thread runs; if not, the service must restart."""
        return self._thread.is_alive()

    def _run(self) -> None:
        while turn := self._take():
            for offered, admitted in zip(turn, admit_all(turn, time.time_ns()), strict=True):
                self._writer.offer(admitted, offered.answer, offered.since)

    def _take(self) -> list[Incoming]:
        """Batches of up to TURN_BYTES; none after closing when the queue is empty."""
        with self._ready:
            while not self._closing and self._bytes < TURN_BYTES:
                wait = (
                    self._waiting[0].since + self._linger_s - time.monotonic()
                    if self._waiting
                    else None
                )
                if wait is not None and wait <= 0:
                    break
                self._ready.wait(wait)
            turn: list[Incoming] = []
            size = 0
            while self._waiting and size < TURN_BYTES:
                turn.append(self._waiting.popleft())
                size += turn[-1].size
            self._bytes -= size
            return turn


def admit_all(turn: Sequence[Incoming], now: int) -> list[Admitted]:
    """Admit each batch, as `admit` does; `now` in ns since 1970. Never raises."""
    try:
        together = _together(turn, now)
    except Exception:
        log.exception("batches cannot be checked together, and are looked at one by one")
        together = {}
    return [together.get(at) or _alone(one, now) for at, one in enumerate(turn)]


def _alone(one: Incoming, now: int) -> Admitted:
    try:
        return admit(one.batch, now, one.claimed)
    except Exception as error:  # or this sidecar would send it for ever, and no other be served
        log.exception("a batch of %s cannot be read, and is refused", one.source.replica)
        admitted = _empty(one)
        admitted.refuse_all(type(error).__name__, now)
        return admitted


def _together(turn: Sequence[Incoming], now: int) -> dict[int, Admitted]:
    """The batches whose rows may all be stored, by their index."""
    admitted = {at: _empty(one) for at, one in enumerate(turn) if _is_plain(one)}
    alike: dict[tuple[str, bytes], list[tuple[int, Claim]]] = {}
    for at in admitted:
        for claim in turn[at].claimed:
            if claim.rows:
                alike.setdefault((claim.name, claim.head), []).append((at, claim))
    for (name, _), claimed in alike.items():
        tables = dict(zip((at for at, _ in claimed), _rows([c for _, c in claimed]), strict=True))
        _admit_checked(name, tables, turn, admitted, now)
    return admitted


def _empty(one: Incoming) -> Admitted:
    return Admitted(one.source, one.batch.number, one.batch.first_seq, one.batch.next_seq)


def _is_plain(one: Incoming) -> bool:
    """Whether the headers of a batch allow a common check."""
    names = {claim.name for claim in one.claimed}
    whole = all(claim.whole and claim.name in ACCEPTED for claim in one.claimed)
    return whole and len(names) == len(one.claimed)


def _rows(claims: Sequence[Claim]) -> list[pa.Table | None]:
    """The rows of claims with a common schema; None for each unreadable claim."""
    try:
        return [*decoded_together(claims)]
    except UNREADABLE:
        if len(claims) == 1:
            return [None]
        return [rows for claim in claims for rows in _rows([claim])]


def _admit_checked(
    name: str,
    tables: dict[int, pa.Table | None],
    turn: Sequence[Incoming],
    admitted: dict[int, Admitted],
    now: int,
) -> None:
    """Give each batch its rows; remove batches with any unfit row from `admitted`."""
    read = {at: rows for at, rows in tables.items() if rows is not None}
    passed: dict[int, tuple[int, int]] = {}
    if read:
        fit, ends = _checked(name, [*read.values()], [turn[at].source for at in read], now)
        passed = dict(compress(zip(read, ends, strict=True), fit))
    for at in tables:
        if at not in passed:
            admitted.pop(at, None)
        elif at in admitted:
            admitted[at].tables[name] = read[at]
            if LAYOUTS[name].time:
                admitted[at].ends[name] = passed[at]


def _checked(
    name: str, tables: Sequence[pa.Table], sources: Sequence[Source], now: int
) -> tuple[Flags, list[tuple[int, int]]]:
    """For each non-empty table: whether every row may be stored, and its earliest and latest time
    (zeros if its age does not count)."""
    rows = pa.concat_tables(tables)
    counts = np.array([table.num_rows for table in tables])
    begins = np.concatenate(([0], np.cumsum(counts)[:-1]))
    fit = np.ones(len(tables), dtype=np.bool_)
    owner = np.repeat(np.arange(len(tables)), counts)
    for place, column in enumerate(Source._fields):
        if column in rows.column_names:
            own = pa.array([source[place] for source in sources], pa.string()).take(owner)
            equal = pc.equal(rows.column(column), own)
            if not pc.all(equal).as_py():
                fit &= np.logical_and.reduceat(equal.to_numpy(), begins)
    if not LAYOUTS[name].time:
        return fit, [(0, 0)] * len(tables)
    times = rows.column(LAYOUTS[name].time).cast(pa.int64()).to_numpy()
    first, last = np.minimum.reduceat(times, begins), np.maximum.reduceat(times, begins)
    if (oldest := kept_from(name, now)) is not None:
        fit &= (first >= oldest) & (last <= now + FUTURE_NS)
    return fit, list(zip(first.tolist(), last.tolist(), strict=True))
