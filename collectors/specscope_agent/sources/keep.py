"""Spool the harvests of live sources as batches."""

from __future__ import annotations

import time
from collections.abc import Sequence

from specscope_agent.drain import BOOT, END
from specscope_agent.loss import Losses, rows_table
from specscope_agent.metrics import Metrics
from specscope_agent.source import Source
from specscope_agent.sources.interface import Harvest, LiveSource
from specscope_agent.spool import Spool
from specscope_agent.wire import encode
from specscope_hook.ring import Cursor


class Keeper:
    """Follows live sources; each harvest is one batch."""

    def __init__(self, sources: Sequence[LiveSource], spool: Spool, metrics: Metrics) -> None:
        self.sources = sources
        self._spool = spool
        self._metrics = metrics

    def followed(self) -> frozenset[Source]:
        """Sources in the spool that may continue.

        Until a log identifies the start of its server, these are all sources of its replica.
        """
        followed = set()
        for each in self.sources:
            if each.current:
                followed.add(each.current)
            else:
                followed |= {one for one in self._spool.sources if one.replica == each.replica}
        return frozenset(followed)

    def follow(self, source: LiveSource) -> None:
        """Spool all new output. Raises SpoolError or OSError; neither loses output."""
        while self._spool.has_room:
            harvest = source.poll(lambda of: self._spool.newest(of).cursor)
            if harvest is None:
                return
            self._keep(harvest)
            source.kept()

    def _keep(self, harvest: Harvest) -> None:
        newest = self._spool.newest(harvest.source)
        tables = {name: rows_table(name, [dict(r) for r in rows])
                  for name, rows in harvest.rows.items() if rows}  # fmt: skip
        said = set[str]()
        boot = harvest.boot
        if boot is not None and BOOT not in newest.said:
            tables["boot"] = rows_table("boot", [dict(boot)])
            said.add(BOOT)
        losses = Losses(harvest.source, time.time_ns())
        for lost in harvest.losses:
            losses.add(lost.table, "unread", lost.first_seq, lost.count, lost.detail)
            self._metrics.losses.labels("unread").inc(lost.count)
        encoded = encode(tables)
        if boot is not None and harvest.ended and END not in newest.said:
            over = rows_table("boot", [{**boot, "ended_at": time.time_ns()}])
            encoded += encode({"boot": over})
            said.add(END)
        if losses.rows:
            encoded += encode({"loss": losses.table()})
        if not encoded:
            return
        cursor = Cursor(
            max(harvest.cursor.position, newest.cursor.position),
            max(harvest.cursor.next_seq, newest.cursor.next_seq),
        )
        self._spool.add(harvest.source, cursor, encoded, said)
        self._metrics.batches.inc()
        self._metrics.records.inc(cursor.next_seq - newest.cursor.next_seq)
        for name, table in tables.items():
            self._metrics.rows.labels(name).inc(table.num_rows)

    def close(self) -> None:
        for source in self.sources:
            source.close()
