"""Which minutes, hours and blocks have rows that their rollups do not count yet."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from specscope.store.connection import Store

MINUTE_NS = 60 * 10**9
HOUR_NS = 3600 * 10**9
SPAN_MOST = 30  # minutes or hours in one statement

# Of each table: the column of time, and the one that its record numbers are in.
NUMBERED = {
    "round": ("started_at", "seq"),
    "request_part": ("started_at", "first_seq"),
    "request": ("admitted_at", "seq"),
}

# {mark}: ns; 0 is all that the store has.
SINCE = """
SELECT replica, boot, min(first_seq) AS from_seq FROM batch FINAL
WHERE stored_at >= fromUnixTimestamp64Nano({mark:Int64}, 'UTC') GROUP BY replica, boot"""


class Block(NamedTuple):
    """One block of one replica."""

    policy: int
    replica: str
    boot: str
    pair: int
    arm: str


class Span(NamedTuple):
    """Times of a block's rows, ns since 1970, and when the first and last were stored."""

    first: int
    last: int
    stored_at: int
    touched_at: int

    def joined(self, other: Span) -> Span:
        return Span(
            min(self.first, other.first),
            max(self.last, other.last),
            min(self.stored_at, other.stored_at),
            max(self.touched_at, other.touched_at),
        )


@dataclass(slots=True)
class Dirty:
    """Starts of minutes and hours, and blocks; with each, when its first row was stored."""

    minutes: dict[int, int] = field(default_factory=dict)
    hours: dict[int, int] = field(default_factory=dict)
    blocks: dict[Block, Span] = field(default_factory=dict)
    newest: dict[tuple[str, str], tuple[int, Block]] = field(default_factory=dict)
    """The block that each boot ran last, and when."""

    def note(self, tables: Mapping[str, pa.Table], stored_at: int) -> None:
        """Rows of the raw tables that are in the store now."""
        for name, (time, _) in NUMBERED.items():
            if name in tables and tables[name].num_rows:
                self._note(name, tables[name], time, stored_at)

    def _note(self, name: str, rows: pa.Table, time: str, stored_at: int) -> None:
        if name != "request":
            times = rows.column(time).cast(pa.int64())
            minutes = pc.unique(pc.divide(times, MINUTE_NS)).to_pylist()
            self.add_minutes((minute * MINUTE_NS for minute in minutes), stored_at)
        if name == "request_part":
            return  # its rounds say the same
        times = rows.column(time).cast(pa.int64())
        found = pa.table({key: rows.column(key) for key in Block._fields} | {"time": times})
        found = found.filter(pc.is_valid(found.column("pair")))
        spans = found.group_by(list(Block._fields)).aggregate([("time", "min"), ("time", "max")])
        for row in spans.to_pylist():
            if row["policy"] is not None and row["arm"] is not None:
                block = Block(*(row[key] for key in Block._fields))
                span = Span(row["time_min"], row["time_max"], stored_at, stored_at)
                self.add_block(block, span, ran=name == "round")

    def add_minutes(self, starts: Iterable[int], stored_at: int) -> None:
        for start in starts:
            self.minutes.setdefault(start, stored_at)
            self.hours.setdefault(start - start % HOUR_NS, stored_at)

    def add_block(self, block: Block, span: Span, *, ran: bool) -> None:
        known = self.blocks.get(block)
        self.blocks[block] = span.joined(known) if known else span
        boot = (block.replica, block.boot)
        if ran and self.newest.get(boot, (0, None))[0] <= span.last:
            self.newest[boot] = (span.last, block)

    def recover(self, store: Store, mark: int, now: int) -> None:
        """What came in since the mark, from the ledger; with mark -1 all raw rows."""
        for table, (time, number) in NUMBERED.items():
            if mark < 0:
                since = ""
            else:
                since = (
                    f"INNER JOIN ({SINCE}) AS s USING (replica, boot) WHERE {number} >= from_seq"
                )
            self._recover(store, table, time, since, {"mark": max(mark, 0)}, now)

    def _recover(
        self, store: Store, table: str, time: str, since: str, params: dict[str, Any], now: int
    ) -> None:
        if table != "request":
            start = f"toDateTime64(toStartOfMinute({time}), 9, 'UTC')"
            minutes = f"""
                SELECT DISTINCT toUnixTimestamp64Nano({start}) AS minute FROM {table} {since}"""
            self.add_minutes((row["minute"] for row in store.rows(minutes, params)), now)
        if table == "request_part":
            return
        blocks = f"""
            SELECT policy, replica, boot, pair, arm, toUnixTimestamp64Nano(min({time})) AS first,
                toUnixTimestamp64Nano(max({time})) AS last
            FROM {table} {since} {"AND" if since else "WHERE"}
                isNotNull(policy) AND isNotNull(pair) AND isNotNull(arm)
            GROUP BY policy, replica, boot, pair, arm"""
        for row in store.rows(blocks, params):
            block = Block(*(row[key] for key in Block._fields))
            span = Span(row["first"], row["last"], now, now)
            self.add_block(block, span, ran=table == "round")

    def take(self, now: int, minute_grace: int, block_quiet: int) -> Dirty:
        """Take out what is closed.

        A minute or hour closes `minute_grace` ns after its end; a block when a later one of
        its boot has rows, or when it was quiet for `block_quiet` ns. Negative: all close.
        """
        due = Dirty()
        for mine, taken, length in (
            (self.minutes, due.minutes, MINUTE_NS),
            (self.hours, due.hours, HOUR_NS),
        ):
            for start in list(mine):
                if minute_grace < 0 or now >= start + length + minute_grace:
                    taken[start] = mine.pop(start)
        for block, span in list(self.blocks.items()):
            followed = self.newest.get((block.replica, block.boot), (0, block))[1] != block
            if followed or block_quiet < 0 or now - span.touched_at >= block_quiet:
                due.blocks[block] = self.blocks.pop(block)
        return due

    def merge(self, due: Dirty) -> None:
        """Add what another knows, such as what was taken and could not be rolled."""
        for mine, taken in ((self.minutes, due.minutes), (self.hours, due.hours)):
            for start, stored_at in taken.items():
                mine[start] = min(stored_at, mine.get(start, stored_at))
        for block, span in due.blocks.items():
            self.add_block(block, span, ran=False)
        for boot, latest in due.newest.items():
            self.newest[boot] = max(latest, self.newest.get(boot, latest))

    def oldest(self) -> int:
        """When the first row was stored that is still waiting; far in the future for none."""
        stored = [
            *self.minutes.values(),
            *self.hours.values(),
            *(span.stored_at for span in self.blocks.values()),
        ]
        return min(stored, default=sys.maxsize)


def spans(starts: Iterable[int], length: int) -> Iterator[tuple[int, int]]:
    """Runs of adjacent starts as (first, end), at most SPAN_MOST long."""
    run: list[int] = []
    for start in sorted(starts):
        if run and (start != run[-1] + length or len(run) == SPAN_MOST):
            yield run[0], run[-1] + length
            run = []
        run.append(start)
    if run:
        yield run[0], run[-1] + length
