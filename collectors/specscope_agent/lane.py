"""The batches of one source on disk, in the order of their numbers.

    <spool>/<replica>-<boot>/000000000042.batch    not yet acknowledged
                             acknowledged.state    cursor of the newest batch, if none waits

The cursor of the newest batch defines the position in the ring: earlier records are in a batch,
later ones are not.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from specscope_agent import batchfile
from specscope_agent.batchfile import Batch
from specscope_agent.files import make_folder
from specscope_agent.loss import rows_table
from specscope_agent.source import Source
from specscope_agent.wire import Encoded, decode, encode
from specscope_hook.layout import FIRST_SEQ
from specscope_hook.ring import Cursor

_STATE = "acknowledged.state"
MOST_UNACKNOWLEDGED = 16  # batches; 32 MiB at most in flight, and a round trip well covered
BLOCK_BYTES = 4096  # the least that a file takes on a disk
OF_RECORDS = ("round", "request_part", "request")  # tables whose rows are told by record numbers


@dataclass(slots=True)
class Entry:
    """Metadata of a batch on disk."""

    number: int
    first_seq: int
    next_seq: int
    disk_bytes: int
    rows: dict[str, int]
    sent: bool = False
    """Whether the service may already have it whole."""

    @classmethod
    def of(cls, batch: Batch, file_bytes: int) -> Entry:
        rows = {table.name: table.rows for table in batch.tables}
        blocks = -(-file_bytes // BLOCK_BYTES)
        return cls(batch.number, batch.first_seq, batch.cursor.next_seq, blocks * BLOCK_BYTES, rows)


class Lane:
    """Batches of one source that wait for acknowledgement."""

    def __init__(self, spool: Path, source: Source) -> None:
        self.source = source
        self.folder = spool / f"{quote(source.replica, safe='')}-{quote(source.boot, safe='')}"
        self.entries: dict[int, Entry] = {}
        self.disk_bytes = 0
        self._torn: list[int] = []
        self.newest = Batch(source, 0, Cursor().next_seq, Cursor(), frozenset(), ())

    @classmethod
    def load(cls, folder: Path) -> Lane | None:
        """Load the complete batches of a folder; None if there are none.

        A truncated file at the end was never counted. It is deleted, and its records are read from
        the ring again. One in the middle leaves a hole in the numbers; see `holes`.
        """
        whole: list[tuple[Batch, int]] = []
        torn = []
        for path in sorted(folder.iterdir()):
            if path.suffix == batchfile.SUFFIX and path.stem.isdigit():
                try:
                    summary = batchfile.summary(path)
                except OSError as error:
                    if error.errno:  # the disk, and not the file
                        raise
                    continue
                if summary:
                    whole.append(summary)
                else:
                    torn.append(path)
        state = folder / _STATE
        acknowledged = batchfile.read(state) if state.exists() else None
        known = [batch for batch, _ in whole] + ([acknowledged] if acknowledged else [])
        if not known:
            shutil.rmtree(folder)
            return None
        lane = cls(folder.parent, known[0].source)
        lane.newest = _bare(max(known, key=lambda batch: batch.number))
        lane.entries = {batch.number: Entry.of(batch, size) for batch, size in whole}
        # The agent before us may have sent so many that were not acknowledged.
        for entry in itertools.islice(lane.entries.values(), MOST_UNACKNOWLEDGED):
            entry.sent = True
        lane.disk_bytes = sum(entry.disk_bytes for entry in lane.entries.values())
        for path in torn:
            lane._torn.append(int(path.stem))
            path.unlink()
        return lane

    def holes(self) -> list[tuple[int, int | None, int]]:
        """Missing numbers among the waiting batches, each with its first and next record.

        The first number of a hole gets all missing records, the others none. The first record is
        None if it is unknown.
        """
        found: list[tuple[int, int | None, int]] = []
        entries = list(self.entries.values())
        head = [number for number in self._torn if entries and number < entries[0].number]
        for number in head:
            following = entries[0].first_seq
            begins = FIRST_SEQ if number == 1 else None
            found.append((number, begins if number == head[0] else following, following))
        for before, after in itertools.pairwise(entries):
            for number in range(before.number + 1, after.number):
                first = before.next_seq if number == before.number + 1 else after.first_seq
                found.append((number, first, after.first_seq))
        return found

    def put(self, batch: Batch) -> Entry:
        """Write the next batch, or replace an old number. Raises OSError."""
        make_folder(self.folder)
        return self._remember(batch, batchfile.write(self._path(batch.number), batch))

    def put_over(self, batch: Batch) -> Entry:
        """Overwrite the damaged file of a batch. If the disk has no room even for that, keep the
        batch only in memory; the next agent finds the same damaged file."""
        try:
            size = batchfile.write(self._path(batch.number), batch, over=True)
        except OSError:
            size = 0
        return self._remember(batch, size)

    def _remember(self, batch: Batch, file_bytes: int) -> Entry:
        entry = Entry.of(batch, file_bytes)
        before = self.entries.get(batch.number)
        self.entries[batch.number] = entry
        self.disk_bytes += entry.disk_bytes - (before.disk_bytes if before else 0)
        if batch.number >= self.newest.number:
            self.newest = _bare(batch)
        elif before is None:  # a hole has been filled
            self.entries = dict(sorted(self.entries.items()))
        return entry

    def read(self, number: int) -> Batch | None:
        """Read a waiting batch; None if its file is damaged now. Raises OSError."""
        return batchfile.read(self._path(number))

    def next_waiting(self, after: int) -> int:
        """The lowest waiting number above `after`; 0 if there is none."""
        number = max(after + 1, next(iter(self.entries), 0))
        while number <= self.newest.number:
            if number in self.entries:
                return number
            number += 1
        return 0

    def acknowledge(self, numbers: Sequence[int]) -> None:
        """Delete acknowledged batches. Raises OSError."""
        if self.newest.number in numbers:
            # A cursor that the machine took with it would point into a ring that it took too.
            state = self.folder / _STATE
            try:
                batchfile.write(state, self.newest, sync=False)
            except OSError:  # no space: the batch itself says the same
                self._path(self.newest.number).rename(state)
        for number in numbers:
            if entry := self.entries.pop(number, None):
                self.disk_bytes -= entry.disk_bytes
                self._path(number).unlink(missing_ok=True)

    def follows(self, number: int, next_seq: int) -> bool:
        """Whether the store's batch of this number can come from this spool."""
        entry = self.entries.get(number)
        return number <= self.newest.number and (entry is None or entry.next_seq == next_seq)

    def renumber(self, after: int, next_seq: int) -> None:
        """Renumber all waiting batches after the store's last number and record. Raises OSError.

        It is for a lost spool. The ring was then read from its released position, and earlier
        records counted as lost although the store has them.
        """
        shift = after + 1 - next(iter(self.entries), after + 1)
        for number in reversed(list(self.entries)):
            batch = self.read(number)
            if batch is not None:
                moved_to = number + shift
                moved = replace(batch, number=moved_to, tables=_since(batch, moved_to, next_seq))
                first_seq = max(batch.first_seq, next_seq)
                self.put(
                    replace(moved, first_seq=first_seq, cursor=_at_least(batch.cursor, next_seq))
                )
                self.disk_bytes -= self.entries.pop(number).disk_bytes
                self._path(number).unlink()
        self.entries = dict(sorted(self.entries.items()))
        # What the store has is not read again, nor counted as lost when the ring has it no more.
        number, cursor = max(self.newest.number, after), _at_least(self.newest.cursor, next_seq)
        self.newest = replace(self.newest, number=number, cursor=cursor)

    def forget(self) -> None:
        """Delete everything, cursor included."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:012d}{batchfile.SUFFIX}"


def _at_least(cursor: Cursor, next_seq: int) -> Cursor:
    return cursor._replace(next_seq=max(cursor.next_seq, next_seq))


def _bare(batch: Batch) -> Batch:
    return replace(batch, tables=())


def _since(batch: Batch, number: int, next_seq: int) -> tuple[Encoded, ...]:
    """A batch's tables under another number, with losses only from `next_seq` on.

    If the store has all of its records, the batch has no rows and no losses of rows, because the
    ledger would count them twice.
    """
    tables = []
    stored = batch.cursor.next_seq <= next_seq
    for table in batch.tables:
        if table.name in OF_RECORDS and stored:
            continue
        if table.name == "loss":
            rows = decode(table.arrow).to_pylist()
            for row in rows:
                row["number"] = number if row["number"] == batch.number else row["number"]
                before = next_seq - (row["first_seq"] or next_seq)
                if before > 0:
                    row["first_seq"] = next_seq
                # Of the ring, adjacent records are counted; of a table, rows of the whole batch.
                if before > 0 and row["table"] == "ring" and row["count"] is not None:
                    row["count"] -= before
            left = [
                row
                for row in rows
                if (row["count"] is None or row["count"] > 0)
                and not (stored and row["table"] in OF_RECORDS)
            ]
            tables += encode({"loss": rows_table("loss", left)})
        else:
            tables.append(table)
    return tuple(tables)
