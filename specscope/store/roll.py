"""Rollups of closed minutes, hours and blocks, from raw rows with FINAL.

Rolling is idempotent: a row replaces the earlier one of its key. The ledger defines the dirty
periods: the service's writer notes each new batch (`note`), and `recover` finds batches that no
rollup counts, whoever stored them.

Versions, not clocks, decide between two computations. A row's version is the number of batches that
all services had noted before its rows were read. So a computation that
missed a batch always has a lower version than the one that follows the note of this batch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from specscope.errors import StoreError
from specscope.store import block_sql, ledger, rollup_sql
from specscope.store.connection import Store
from specscope.store.dirty import HOUR_NS, MINUTE_NS, Block, Dirty, Span, Wait, spans
from specscope.store.ledger import ROLLED, SEEN, STORED, Position, Source, Stretch
from specscope.store.rollups import VERSION_BASE
from specscope.store.tables import LAYOUTS

# A round reaches the store about 2 s after it ran; then its minute is complete.
MINUTE_GRACE_NS = 10 * 10**9
# A block, or a minute that the wall clock does not close, is over when nothing comes any more.
QUIET_NS = 60 * 10**9
AT_ONCE = 500  # blocks in one statement
DAY_NS = 86_400 * 10**9


class Rolled(NamedTuple):
    """Numbers of computed minutes, hours and blocks."""

    minutes: int
    hours: int
    blocks: int


class Roller:
    """Track dirty periods, and compute them after they close. `store` is a separate session."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._dirty = Dirty()
        self._came: list[Mapping[str, Any]] = []
        self._lock = threading.Lock()
        self._stored: dict[Source, Position] = {}
        self._unsaid: dict[Source, int] = {}
        self._ticks = 0
        self._clocks: tuple[int, int] | None = None
        """Wall clock and steady time of the tick before."""
        self._noted: dict[int, dict[Source, int]] = {}
        """By tick: the highest batch of each boot, until the rollups count it."""

    def note(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Note new rows of the ledger; called by the writer's thread."""
        with self._lock:
            self._came += rows

    def recover(self) -> None:
        """Note every batch of the ledger that the rollups do not count.

        Also note what they count under an unknown epoch, if the epoch has become known.

        Raises StoreError; a second call changes nothing.
        """
        sources, steady = ledger.behind(self._store), time.monotonic_ns()
        self._note(self._from_ledger(sources), steady)
        self._ticks += 1
        self._dirty.note_epochs(self._store, None, Wait(self._ticks, steady))

    def note_all(self) -> None:
        """Note every raw row, in the ledger or not."""
        self._ticks += 1
        self._dirty.note_rows(self._store, Wait(self._ticks, time.monotonic_ns()), None)

    def tick(
        self, *, now: int | None = None, steady: int | None = None, everything: bool = False
    ) -> Rolled:
        """Roll dirty periods that are closed; with `everything`, open ones too.

        now: wall clock, ns since 1970; steady: monotonic clock, ns. Raises StoreError; periods that
        were not rolled stay dirty.
        """
        now = time.time_ns() if now is None else now
        steady = time.monotonic_ns() if steady is None else steady
        kept_from = self._kept_from(now, steady)
        self._note_what_came(steady)
        due = self._dirty.take(
            now,
            steady,
            grace=-1 if everything else MINUTE_GRACE_NS,
            quiet=-1 if everything else QUIET_NS,
        )
        try:
            # In this order: see the head of the module.
            self._say()
            version = VERSION_BASE + ledger.seen(self._store)
            rolled = Rolled(
                self._spans(
                    due.minutes,
                    MINUTE_NS,
                    kept_from,
                    version,
                    rollup_sql.MINUTE,
                    rollup_sql.MINUTE_TIME,
                ),
                self._spans(
                    due.hours,
                    HOUR_NS,
                    kept_from,
                    version,
                    rollup_sql.HOUR,
                    rollup_sql.HOUR_LEFT,
                ),
                self._blocks(due.blocks, kept_from, version),
            )
        except Exception:
            self._dirty.merge(due)
            raise
        self._mark()
        return rolled

    def _note_what_came(self, steady: int) -> None:
        with self._lock:
            came, self._came = self._came, []
        try:
            apart = self._advance(came)
            stretches = _stretches(row for row in came if _source(row) not in apart)
            self._note([*stretches, *self._from_ledger(apart)], steady)
        except StoreError:
            with self._lock:
                self._came = [*came, *self._came]
            raise

    def _advance(self, came: Sequence[Mapping[str, Any]]) -> set[Source]:
        """Advance positions. Returns boots with a gap before their batches."""
        apart = set()
        for row in sorted(came, key=lambda row: int(row["number"])):
            source, number = _source(row), row["number"]
            position = self._stored.get(source, ledger.NOWHERE)
            if number == position.number + 1:
                self._stored[source] = Position(number, row["next_seq"])
            elif number > position.number:
                apart.add(source)
        return apart

    def _from_ledger(self, sources: Iterable[Source]) -> list[Stretch]:
        """Batches outside the rollups, of boots that other services stored before."""
        wanted = list(sources)
        self._stored |= ledger.positions(self._store, wanted)
        rolled = ledger.summed(self._store, wanted, ROLLED)
        return ledger.stretches(
            self._store, {source: rolled.get(source, ledger.NOWHERE).number for source in wanted}
        )

    def _note(self, stretches: Sequence[Stretch], steady: int) -> None:
        if not stretches:
            return
        self._ticks += 1
        wait = Wait(self._ticks, steady)
        self._dirty.note(self._store, stretches, wait)
        self._dirty.note_epochs(self._store, {stretch.source for stretch in stretches}, wait)
        highest: dict[Source, int] = {}
        for stretch in stretches:
            highest[stretch.source] = max(stretch.number, highest.get(stretch.source, 0))
        self._noted[self._ticks] = highest
        for source, number in highest.items():
            self._unsaid[source] = max(number, self._unsaid.get(source, 0))

    def _say(self) -> None:
        """Write the positions of all boots with new batches."""
        ledger.write(self._store, SEEN, {s: Position(n, 0) for s, n in self._unsaid.items()})
        ledger.write(
            self._store, STORED, {s: self._stored[s] for s in self._unsaid if s in self._stored}
        )
        self._unsaid.clear()

    def _kept_from(self, now: int, steady: int) -> int:
        """The oldest time whose rows are all still present.

        A clock that jumps forward must not age rows: waiting rows would count as rolled without
        ever being rolled.
        """
        if self._clocks:
            wall, before = self._clocks
            now = min(now, wall + steady - before)
        self._clocks = now, steady
        return now - LAYOUTS["round"].days * DAY_NS

    def _spans(
        self, starts: Iterable[int], length: int, kept_from: int, version: int, *statements: str
    ) -> int:
        # Where rows have begun to age out, what was computed from all of them stands.
        whole = [start for start in starts if start >= kept_from]
        for first, last in spans(whole, length):
            for statement in statements:
                params = {"from": first, "to": last, "version": version}
                self._store.command(statement, params)
        return len(whole)

    def _blocks(self, blocks: Mapping[Block, Span], kept_from: int, version: int) -> int:
        keys = list(blocks)
        for begin in range(0, len(keys), AT_ONCE):
            chosen = keys[begin : begin + AT_ONCE]
            params = {
                "policies": [block.policy for block in chosen],
                "replicas": [block.replica for block in chosen],
                "boots": [block.boot for block in chosen],
                "pairs": [block.pair for block in chosen],
                "arms": [block.arm for block in chosen],
                # Late rows name the block, not how far it reaches.
                "from": min(blocks[block].first for block in chosen) - DAY_NS,
                "to": max(blocks[block].last for block in chosen) + DAY_NS,
                "kept_from": kept_from,
                "version": version,
            }
            for statement in (
                block_sql.BLOCK_TIME,
                block_sql.BLOCK_PART,
                block_sql.BLOCK_CLASS,
                *block_sql.BLOCK_LEFT,
            ):
                self._store.command(statement, params)
        return len(keys)

    def _mark(self) -> None:
        """Write the rolled position of each boot, which stops before waiting rows."""
        oldest = self._dirty.oldest()
        counted: dict[Source, int] = {}
        for noted in [noted for noted in self._noted if noted < oldest]:
            for source, number in self._noted.pop(noted).items():
                counted[source] = max(number, counted.get(source, 0))
        ledger.write(self._store, ROLLED, {s: Position(n, 0) for s, n in counted.items()})


def _source(row: Mapping[str, Any]) -> Source:
    return Source(row["replica"], row["boot"])


def _stretches(rows: Iterable[Mapping[str, Any]]) -> list[Stretch]:
    """Merge rows of the ledger by boot and hour."""
    found: dict[tuple[Source, int | None], Stretch] = {}
    for row in rows:
        first = row["first_at"]
        key = (_source(row), None if first is None else first // HOUR_NS)
        one = Stretch(
            key[0], row["number"], row["first_seq"], first, row["last_at"], row["admitted_at"]
        )
        found[key] = one.joined(found[key]) if key in found else one
    return list(found.values())


def roll(store: Store, *, everything: bool = False) -> Rolled:
    """Roll all rows that no rollup counts yet; with `everything`, all raw rows, closed or not."""
    roller = Roller(store)
    roller.recover()
    if everything:
        roller.note_all()
    return roller.tick(everything=everything)
