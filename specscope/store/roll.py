"""Rollups of closed minutes, hours and blocks, from raw rows with FINAL.

Rolling twice changes nothing: a row replaces the earlier one of its key. The service's
writer says what came in (`note`); late rows make their minute dirty again. After a restart
`recover` finds in the ledger what came in since the mark that every tick leaves behind.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from specscope.store import rollup_sql
from specscope.store.connection import Store
from specscope.store.dirty import HOUR_NS, MINUTE_NS, Block, Dirty, Span, spans
from specscope.store.tables import LAYOUTS

# A round reaches the store about 2 s after it ran; then its minute is complete.
MINUTE_GRACE_NS = 10 * 10**9
BLOCK_QUIET_NS = 60 * 10**9
# An insert in flight may be older than the tick that overtakes it.
MARK_MARGIN_NS = 60 * 10**9
AT_ONCE = 500  # blocks in one statement
DAY_NS = 86_400 * 10**9

MARK = "SELECT toUnixTimestamp64Nano(max(stored_before)) AS mark FROM rolled FINAL"


class Rolled(NamedTuple):
    """How many of each were computed."""

    minutes: int
    hours: int
    blocks: int


class Roller:
    """Knows what is dirty; computes what is dirty and closed. `store` is its own session."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._dirty = Dirty()
        self._lock = threading.Lock()

    def note(self, tables: Mapping[str, pa.Table], stored_at: int) -> None:
        """Rows that are in the store from now on; called by the writer's thread."""
        with self._lock:
            self._dirty.note(tables, stored_at)

    def recover(self) -> None:
        """Note what came in since the last mark, from the ledger."""
        self._recover(self._store.rows(MARK)[0]["mark"])

    def note_all(self) -> None:
        """Note every raw row, whether the ledger knows it or not."""
        self._recover(-1)

    def _recover(self, mark: int) -> None:
        found = Dirty()
        found.recover(self._store, mark, time.time_ns())
        with self._lock:
            self._dirty.merge(found)

    def tick(self, *, now: int | None = None, everything: bool = False) -> Rolled:
        """Roll what is dirty and closed, or with `everything` open or not; leave a mark.

        Raises StoreError; what was not rolled then stays dirty.
        """
        now = time.time_ns() if now is None else now
        with self._lock:
            due = self._dirty.take(
                now,
                minute_grace=-1 if everything else MINUTE_GRACE_NS,
                block_quiet=-1 if everything else BLOCK_QUIET_NS,
            )
        try:
            rolled = Rolled(
                self._spans(due.minutes, MINUTE_NS, now, rollup_sql.MINUTE, rollup_sql.MINUTE_TIME),
                self._spans(due.hours, HOUR_NS, now, rollup_sql.HOUR),
                self._blocks(due.blocks, now),
            )
        except Exception:
            with self._lock:
                self._dirty.merge(due)
            raise
        if any(rolled):
            self._mark(now)
        return rolled

    def _spans(self, starts: Mapping[int, int], length: int, now: int, *statements: str) -> int:
        kept_from = now - LAYOUTS["round"].days * DAY_NS
        # Where rows have begun to age out, what was computed from all of them stands.
        whole = [start for start in starts if start >= kept_from]
        for first, last in spans(whole, length):
            for statement in statements:
                self._run(statement, {"from": first, "to": last})
        return len(whole)

    def _blocks(self, blocks: Mapping[Block, Span], now: int) -> int:
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
                "kept_from": now - LAYOUTS["round"].days * DAY_NS,
            }
            self._run(rollup_sql.BLOCK_TIME, params)
            self._run(rollup_sql.BLOCK_PART, params)
            self._run(rollup_sql.BLOCK_CLASS, params)
        return len(keys)

    def _run(self, statement: str, params: dict[str, Any]) -> None:
        self._store.command(statement, {**params, "version": time.time_ns()})

    def _mark(self, now: int) -> None:
        with self._lock:
            before = min(now, self._dirty.oldest()) - MARK_MARGIN_NS
        self._store.command(
            "INSERT INTO rolled (grain, stored_before, version) VALUES "
            f"('all', fromUnixTimestamp64Nano({before:d}), {time.time_ns():d})"
        )


def roll(store: Store, *, everything: bool = False) -> Rolled:
    """Roll what came in since the last mark; with `everything` all raw rows, closed or not."""
    roller = Roller(store)
    if everything:
        roller.note_all()
    else:
        roller.recover()
    return roller.tick(everything=everything)
