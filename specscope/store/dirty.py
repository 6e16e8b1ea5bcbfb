"""The dirty minutes, hours and blocks: those with rows that their rollups do not count yet."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from specscope.store.connection import Store
from specscope.store.ledger import Source, Stretch

MINUTE_NS = 60 * 10**9
HOUR_NS = 3600 * 10**9
SPAN_MOST = 30  # minutes or hours in one statement

# Of each table: the column of time, and the one that its record numbers are in.
NUMBERED = {
    "round": ("started_at", "seq"),
    "request_part": ("started_at", "first_seq"),
    "request": ("admitted_at", "seq"),
}

# {replicas}, {boots}, {seqs}: arrays, one entry a boot: its rows from a record number on.
FROM_SEQ = """INNER JOIN (
    SELECT row.1 AS replica, row.2 AS boot, row.3 AS from_seq FROM (
        SELECT arrayJoin(arrayZip({replicas:Array(String)}, {boots:Array(String)},
            {seqs:Array(UInt64)})) AS row)
) AS s USING (replica, boot)"""

# {replicas}, {boots}: arrays, one entry a boot.
OF_BOOTS = """(replica, boot) IN (
    SELECT arrayJoin(arrayZip({replicas:Array(String)}, {boots:Array(String)})))"""
OF_KNOWN_BOOTS = "(replica, boot) IN (SELECT replica, boot FROM boot WHERE epoch != '')"
KNOWN = f"SELECT DISTINCT replica, boot FROM boot WHERE epoch != '' AND {OF_BOOTS}"
NAMELESS_BLOCKS = """
SELECT policy, replica, boot, pair, arm, toUnixTimestamp64Nano(first_at) AS first,
    toUnixTimestamp64Nano(last_at) AS last
FROM block_time FINAL WHERE epoch = '' AND rounds > 0 AND {of_boots}"""
# An hour does not tell whose its rounds are. Of hours before the first row nothing can be computed.
NAMELESS_HOURS = """
SELECT DISTINCT toUnixTimestamp64Nano(hour) AS began FROM hour FINAL
WHERE hour >= (SELECT min(toDate(started_at)) FROM request_part)
    AND epoch = '' AND request_rounds > 0"""
HOURS_OF_BOOTS = """
SELECT DISTINCT toUnixTimestamp64Nano(toDateTime64(toStartOfHour(started_at), 9, 'UTC')) AS began
FROM request_part
WHERE started_at >= fromUnixTimestamp64Nano({first:Int64}, 'UTC')
    AND started_at < fromUnixTimestamp64Nano({last:Int64}, 'UTC') AND {of_boots}"""


class Block(NamedTuple):
    """One block of one replica."""

    policy: int
    replica: str
    boot: str
    pair: int
    arm: str


class Wait(NamedTuple):
    """The first tick that noted rows of a minute or an hour, and the monotonic time of the last."""

    noted: int
    touched_at: int

    def joined(self, other: Wait) -> Wait:
        return Wait(min(self.noted, other.noted), max(self.touched_at, other.touched_at))


class Span(NamedTuple):
    """Times of a block's rows, ns since 1970, and the fields of Wait."""

    first: int
    last: int
    noted: int
    touched_at: int

    def joined(self, other: Span) -> Span:
        return Span(
            min(self.first, other.first),
            max(self.last, other.last),
            min(self.noted, other.noted),
            max(self.touched_at, other.touched_at),
        )


@dataclass(slots=True)
class Dirty:
    """Dirty minutes and hours by start, and dirty blocks, each with its wait."""

    minutes: dict[int, Wait] = field(default_factory=dict)
    hours: dict[int, Wait] = field(default_factory=dict)
    blocks: dict[Block, Span] = field(default_factory=dict)
    newest: dict[tuple[str, str], tuple[int, Block]] = field(default_factory=dict)
    """The block that each boot ran last, and when."""
    epochs_known: set[Source] = field(default_factory=set)
    """Boots of which no rollup without their epoch stands, unless it waits to be computed again."""

    def note(self, store: Store, stretches: Sequence[Stretch], wait: Wait) -> None:
        """Mark the rows of batches in the ledger as dirty.

        Raises StoreError if the blocks of their rows cannot be read.
        """
        undated = [stretch for stretch in stretches if stretch.undated]
        if undated:
            self.note_rows(store, wait, undated)
        by_hour: dict[str, dict[int, list[tuple[Stretch, int, int]]]] = {}
        for stretch in stretches:
            if stretch.first_at is not None and stretch.last_at is not None:
                first = stretch.first_at - stretch.first_at % MINUTE_NS
                self.add_minutes(range(first, stretch.last_at + 1, MINUTE_NS), wait)
                hour = stretch.first_at // HOUR_NS
                of_hour = by_hour.setdefault("round", {}).setdefault(hour, [])
                of_hour.append((stretch, stretch.first_at, stretch.last_at))
            if stretch.admitted_at is not None:
                hour = stretch.admitted_at // HOUR_NS
                of_hour = by_hour.setdefault("request", {}).setdefault(hour, [])
                of_hour.append((stretch, stretch.admitted_at, sys.maxsize))
        for table, hours in by_hour.items():
            for found in hours.values():
                between = (min(first for _, first, _ in found), max(last for *_, last in found))
                self._note_blocks(store, table, wait, [stretch for stretch, *_ in found], between)

    def note_rows(self, store: Store, wait: Wait, stretches: Sequence[Stretch] | None) -> None:
        """Mark raw rows as dirty, from each stretch's first record; None marks all rows."""
        for table, (time, number) in NUMBERED.items():
            since = "" if stretches is None else f"{FROM_SEQ} WHERE {number} >= from_seq"
            if table != "request":
                start = f"toDateTime64(toStartOfMinute({time}), 9, 'UTC')"
                minutes = f"""
                    SELECT DISTINCT toUnixTimestamp64Nano({start}) AS minute FROM {table} {since}"""
                rows = store.rows(minutes, _boots(stretches or ()))
                self.add_minutes((row["minute"] for row in rows), wait)
            if table != "request_part":  # its rounds say the same
                self._note_blocks(store, table, wait, stretches, None)

    def note_epochs(self, store: Store, sources: Iterable[Source] | None, wait: Wait) -> None:
        """What was rolled of boots before their epoch was known; None for all boots.

        Boots that were looked at are remembered.
        """
        boots: dict[str, Any] = {}
        known: list[Source] = []
        if sources is not None:
            new = [source for source in sources if source not in self.epochs_known]
            known = [Source(**row) for row in store.rows(KNOWN, _named(new))] if new else []
            if not known:
                return
            boots = _named(known)
        of_boots = OF_BOOTS if boots else OF_KNOWN_BOOTS
        for row in store.rows(NAMELESS_BLOCKS.replace("{of_boots}", of_boots), boots):
            block = Block(*(row[key] for key in Block._fields))
            self.add_block(block, Span(row["first"], row["last"], *wait), ran=False)
        if hours := {row["began"] for row in store.rows(NAMELESS_HOURS)}:
            between = {"first": min(hours), "last": max(hours) + HOUR_NS}
            ran = store.rows(HOURS_OF_BOOTS.replace("{of_boots}", of_boots), boots | between)
            for hour in hours & {row["began"] for row in ran}:
                self.hours[hour] = wait.joined(self.hours.get(hour, wait))
        self.epochs_known.update(known)

    def _note_blocks(
        self,
        store: Store,
        table: str,
        wait: Wait,
        stretches: Sequence[Stretch] | None,
        between: tuple[int, int] | None,
    ) -> None:
        time, number = NUMBERED[table]
        params = _boots(stretches or ())
        known = ["isNotNull(policy)", "isNotNull(pair)", "isNotNull(arm)"]
        if stretches is not None:
            known.append(f"{number} >= from_seq")
        if between:
            known += [
                f"{time} >= fromUnixTimestamp64Nano({{first:Int64}}, 'UTC')",
                f"{time} <= fromUnixTimestamp64Nano({{last:Int64}}, 'UTC')",
            ]
            params |= {"first": between[0], "last": between[1]}
        blocks = f"""
            SELECT policy, replica, boot, pair, arm, toUnixTimestamp64Nano(min({time})) AS first,
                toUnixTimestamp64Nano(max({time})) AS last
            FROM {table} {"" if stretches is None else FROM_SEQ} WHERE {" AND ".join(known)}
            GROUP BY policy, replica, boot, pair, arm"""
        for row in store.rows(blocks, params):
            block = Block(*(row[key] for key in Block._fields))
            span = Span(row["first"], row["last"], *wait)
            self.add_block(block, span, ran=table == "round")

    def add_minutes(self, starts: Iterable[int], wait: Wait) -> None:
        for start in starts:
            for waiting, begin in ((self.minutes, start), (self.hours, start - start % HOUR_NS)):
                known = waiting.get(begin)
                waiting[begin] = wait.joined(known) if known else wait

    def add_block(self, block: Block, span: Span, *, ran: bool) -> None:
        known = self.blocks.get(block)
        self.blocks[block] = span.joined(known) if known else span
        boot = (block.replica, block.boot)
        if ran and self.newest.get(boot, (0, None))[0] <= span.last:
            self.newest[boot] = (span.last, block)

    def take(self, now: int, steady: int, *, grace: int, quiet: int) -> Dirty:
        """Remove and return closed periods. now: wall clock; steady: monotonic clock; both in ns.

        A minute or hour closes `grace` after its end by the wall clock. A block closes if a later
        one of its boot has rows. Each also closes after `quiet` without new rows. A negative value
        closes all.
        """
        due = Dirty()
        for mine, taken, length in (
            (self.minutes, due.minutes, MINUTE_NS),
            (self.hours, due.hours, HOUR_NS),
        ):
            for start, wait in list(mine.items()):
                closed = grace < 0 or now >= start + length + grace
                if closed or steady - wait.touched_at >= quiet:
                    taken[start] = mine.pop(start)
        for block, span in list(self.blocks.items()):
            followed = self.newest.get((block.replica, block.boot), (0, block))[1] != block
            if followed or quiet < 0 or steady - span.touched_at >= quiet:
                due.blocks[block] = self.blocks.pop(block)
        return due

    def merge(self, due: Dirty) -> None:
        """Add back periods that could not be rolled."""
        for mine, taken in ((self.minutes, due.minutes), (self.hours, due.hours)):
            for start, wait in taken.items():
                mine[start] = wait.joined(mine.get(start, wait))
        for block, span in due.blocks.items():
            self.add_block(block, span, ran=False)

    def oldest(self) -> int:
        """The first tick with waiting rows; far in the future without any."""
        waits = (self.minutes.values(), self.hours.values(), self.blocks.values())
        return min((wait.noted for some in waits for wait in some), default=sys.maxsize)


def _named(sources: Sequence[Source]) -> dict[str, Any]:
    """Parameters of OF_BOOTS."""
    return {"replicas": [s.replica for s in sources], "boots": [s.boot for s in sources]}


def _boots(stretches: Sequence[Stretch]) -> dict[str, Any]:
    """Parameters of FROM_SEQ, one per boot."""
    first: dict[tuple[str, str], int] = {}
    for stretch in stretches:
        known = first.get(stretch.source, stretch.from_seq)
        first[stretch.source] = min(known, stretch.from_seq)
    return {
        "replicas": [replica for replica, _ in first],
        "boots": [boot for _, boot in first],
        "seqs": list(first.values()),
    }


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
