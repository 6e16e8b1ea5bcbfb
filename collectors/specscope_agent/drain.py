"""Drain a ring into the spool: batches while its writer runs, then an end record."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from specscope_agent.batchfile import Batch
from specscope_agent.cut import Cut, cut
from specscope_agent.guardrail import Held
from specscope_agent.loss import Losses, rows_table
from specscope_agent.metrics import Metrics
from specscope_agent.rings import OpenRing, Rings
from specscope_agent.sampler import Sampler
from specscope_agent.source import Source
from specscope_agent.spool import Spool
from specscope_agent.wire import encode

ORPHAN_S = 5.0  # a living writer makes a ring anew within a second after its file is removed
BOOT, FAULT, END = "boot", "fault", "end"  # said once a boot

Watcher = Callable[[OpenRing, Cut], None]


class Drain:
    """Empty rings into a spool; observers see each batch after it is on disk."""

    def __init__(
        self,
        rings: Rings,
        spool: Spool,
        metrics: Metrics,
        sampler: Sampler,
        watchers: Sequence[Watcher] = (),
        held: Callable[[], Held | None] = lambda: None,
    ) -> None:
        """held: the last action of the guardrail, which each boot reports once."""
        self._rings = rings
        self._spool = spool
        self._metrics = metrics
        self._sampler = sampler
        self._watchers = watchers
        self._held = held
        self._orphaned: dict[Source, float] = {}
        """Sources without a ring, and the steady time when that was seen first."""

    def empty(self, ring: OpenRing, device_rows: Sequence[Mapping[str, Any]] = ()) -> None:
        """Spool all records of the ring. Raises SpoolError; then the ring keeps them.

        device_rows: rows of `device` for the first batch
        """
        dead = not ring.reader.writer_alive  # before pulling, so that an empty pull means done
        rows = list(device_rows)
        while self._spool.has_room:
            windows = self._sampler.windows(ring.origin.boot.get("gpu_uuids", ()))
            made = cut(ring, self._spool.newest(ring.source).cursor, windows)
            brought = self._keep(ring, made, rows)
            rows = []
            ring.quiet = ring.quiet + 1 if dead and not brought else 0
            if not made.more:
                break
        # A record that does not match its check is given a second pull before it is lost.
        if ring.quiet > 1 and not self._goes_on(ring):
            self._finish(ring)

    def _goes_on(self, ring: OpenRing) -> bool:
        """Whether the writer of a drained ring goes on in another file, or may yet do so."""
        if ring.reader.replaced and self._rings.reopen(ring):
            return True
        if ring.reader.in_place or ring.reader.ended:
            return False
        # Removed, or made anew and damaged again: a living writer mends that within a second.
        if ring.adrift_since is None:
            ring.adrift_since = time.monotonic()
        return time.monotonic() - ring.adrift_since < ORPHAN_S

    def _keep(self, ring: OpenRing, made: Cut, device_rows: Sequence[Mapping[str, Any]]) -> bool:
        """Spool a cut batch, then release its space in the ring; False for an empty one."""
        newest = self._spool.newest(ring.source)
        encoded, said = list(made.encoded), set[str]()
        if BOOT not in newest.said:
            encoded += encode({"boot": rows_table("boot", [dict(ring.origin.boot)])})
            said.add(BOOT)
        if FAULT not in newest.said and (fault := ring.reader.fault_text):
            made.losses.add("ring", "fault", made.cursor.next_seq, None, fault)
            said.add(FAULT)
        if (held := self._held()) and held.name not in newest.said:
            made.losses.add("block", "guardrail", None, 1, held.detail, at=held.fired_at)
            said.add(held.name)
        if device_rows:
            encoded += encode({"device": rows_table("device", [dict(r) for r in device_rows])})
        if made.losses.rows:
            encoded += encode({"loss": made.losses.table()})
        if not encoded:
            return False
        self._spool.add(ring.source, made.cursor, encoded, said)
        ring.reader.release(made.cursor)
        self._count(made)
        for watch in self._watchers:
            watch(ring, made)
        return True

    def _finish(self, ring: OpenRing) -> None:
        """Finish a drained ring without a writer: record its end, then remove it."""
        newest = self._spool.newest(ring.source)
        if END not in newest.said:
            if (ring.reader.ended or ring.reader.fault_text) and ring.reader.tail_known:
                self._say_end(newest, ring.origin.boot)
            else:
                self._lose_tail(newest)
        elif self._spool.waiting(ring.source) == 0:
            self._rings.remove(ring)
            self._spool.forget(ring.source)

    def finish_orphans(self, followed: Set[Source] = frozenset()) -> None:
        """Finish sources in the spool whose ring has disappeared (after a reboot, for example) or
        is unreadable.

        followed: sources without a ring that are no orphans
        """
        for source in self._rings.give_up_damaged():
            if END not in self._spool.newest(source).said:
                self._lose_tail(self._spool.newest(source))
        rings = {ring.source for ring in self._rings.open}
        orphans = set(self._spool.sources) - rings - followed
        now = time.monotonic()
        self._orphaned = {source: self._orphaned.get(source, now) for source in orphans}
        for source, since in self._orphaned.items():
            newest = self._spool.newest(source)
            if END not in newest.said:
                if now - since >= ORPHAN_S:
                    self._lose_tail(newest)
            elif self._spool.waiting(source) == 0:
                self._spool.forget(source)

    def _say_end(self, newest: Batch, boot: Mapping[str, Any]) -> None:
        row = rows_table("boot", [{**boot, "ended_at": time.time_ns()}])
        self._spool.add(newest.source, newest.cursor, encode({"boot": row}), {END})

    def _lose_tail(self, newest: Batch) -> None:
        losses = Losses(newest.source, time.time_ns())
        losses.add("ring", "tail_unknown", newest.cursor.next_seq, None)
        self._spool.add(newest.source, newest.cursor, encode({"loss": losses.table()}), {END})
        self._metrics.losses.labels("tail_unknown").inc()

    def _count(self, made: Cut) -> None:
        self._metrics.batches.inc()
        self._metrics.records.inc(len(made.records))
        for name, rows in made.tables.items():
            self._metrics.rows.labels(name).inc(rows.num_rows)
        for row in made.losses.rows:
            self._metrics.losses.labels(row["reason"]).inc(row["count"] or 1)
