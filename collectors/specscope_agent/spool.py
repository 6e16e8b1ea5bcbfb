"""A bounded queue of batches on disk: from the ring until the store has them.

Each batch contains the ring's cursor after it, so a killed agent resumes after its last complete
batch. At the size limit the spool drops detail first: request parts and device samples, then
rounds, then requests, each oldest first. Each drop counts as a loss within its batch. Boots and
losses stay, so numbers have no holes. A sent batch keeps its rows, because the service may have
them. When nothing remains to drop, the ring fills, and the hook counts its losses.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from specscope_agent.batchfile import Batch
from specscope_agent.errors import SpoolError
from specscope_agent.files import PRIVATE_FILE, make_folder
from specscope_agent.lane import Entry, Lane
from specscope_agent.shedding import DROP_ORDER, droppable, in_place_of, without
from specscope_agent.source import Source
from specscope_agent.wire import Encoded
from specscope_hook.ring import Cursor

LOW_WATER = 0.9  # of the limit; what is dropped at once, so that looking for it stays rare


class Spool:
    """Batches of every source; safe to use from several threads."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        """Use `open`."""
        self.folder = folder
        self.limit_bytes = limit_bytes
        self.dropped_rows: dict[str, int] = {}
        self.changed = threading.Condition(threading.RLock())
        """Notified when a batch is added or a source is forgotten."""
        self._lanes: dict[Source, Lane] = {}
        self._lock_file = -1

    @classmethod
    def open(cls, folder: Path, limit_bytes: int) -> Spool:
        """Open a folder, created if missing, with the batches of earlier agents.

        limit_bytes: limit on disk, in whole blocks

        Raises SpoolError if the folder cannot be created or read, or if another agent holds it.
        """
        spool = cls(folder, limit_bytes)
        try:
            make_folder(folder)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            spool._lock_file = os.open(folder / "lock", flags, PRIVATE_FILE)
            fcntl.flock(spool._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for path in sorted(folder.iterdir()):
                # A volume's own lost+found is not ours; lanes have a hyphen.
                if "-" in path.name and path.is_dir() and (lane := Lane.load(path)):
                    spool._lanes[lane.source] = lane
                    for hole in lane.holes():
                        spool._replace(lane, *hole)
            spool._make_room()
        except BlockingIOError as error:
            raise SpoolError(f"the spool {folder} belongs to another agent") from error
        except OSError as error:
            raise SpoolError(f"the spool {folder} cannot be used: {error}") from error
        return spool

    def close(self) -> None:
        """Release the folder; its batches stay on disk."""
        if self._lock_file >= 0:
            os.close(self._lock_file)
            self._lock_file = -1

    def newest(self, source: Source) -> Batch:
        """The newest batch without its tables; number 0 and a new cursor if there is none."""
        with self.changed:
            lane = self._lanes.get(source)
            return lane.newest if lane else Lane(self.folder, source).newest

    def add(
        self, source: Source, cursor: Cursor, tables: Sequence[Encoded], said: Iterable[str] = ()
    ) -> Batch:
        """Store a batch from the last cursor to this one, under the next number.

        said: notes in this batch that a boot sends once

        Raises SpoolError if the disk refuses it; then the cursor stays.
        """
        with self.changed:
            lane = self._lanes.get(source) or Lane(self.folder, source)
            last = lane.newest
            batch = Batch(
                source=source,
                number=last.number + 1,
                first_seq=last.cursor.next_seq,
                cursor=cursor,
                said=last.said | frozenset(said),
                tables=tuple(tables),
            )
            self._put(lane, batch)
            self._lanes[source] = lane
            self._make_room()
            self.changed.notify_all()
            return batch

    @property
    def sources(self) -> tuple[Source, ...]:
        """Sources with a cursor, with or without waiting batches."""
        with self.changed:
            return tuple(self._lanes)

    def waiting(self, source: Source) -> int:
        """Number of batches without acknowledgement."""
        with self.changed:
            lane = self._lanes.get(source)
            return len(lane.entries) if lane else 0

    def next_waiting(self, source: Source, after: int) -> int:
        """The lowest unacknowledged number above `after`; 0 if there is none."""
        with self.changed:
            lane = self._lanes.get(source)
            return lane.next_waiting(after) if lane else 0

    def take(self, source: Source, number: int) -> Batch | None:
        """Read a batch to send it; from now on it keeps its rows. None if it does not exist.

        Raises SpoolError if it cannot be read.
        """
        with self.changed:
            lane = self._lanes.get(source)
            if lane is None or number not in lane.entries:
                return None
            with self._named("read"):
                entry = lane.entries[number]
                batch = lane.read(number) or self._replace(
                    lane, number, entry.first_seq, entry.next_seq
                )
            lane.entries[number].sent = True
            return batch

    def acknowledge(self, source: Source, numbers: Sequence[int]) -> None:
        """Delete acknowledged batches. Raises SpoolError."""
        with self.changed, self._named("written"):
            if lane := self._lanes.get(source):
                lane.acknowledge(numbers)

    def resume(self, source: Source, number: int, next_seq: int) -> None:
        """Delete the batches of a source up to the store's last number.

        If the store has a higher number, or another batch under that number, this spool was lost.
        Then the waiting batches are numbered after the store's last one.

        Raises SpoolError.
        """
        with self.changed, self._named("written"):
            if lane := self._lanes.get(source):
                if lane.follows(number, next_seq):
                    lane.acknowledge([waits for waits in lane.entries if waits <= number])
                else:
                    for entry in list(lane.entries.values()):
                        if lane.read(entry.number) is None:
                            self._replace(lane, entry.number, entry.first_seq, entry.next_seq)
                    lane.renumber(number, next_seq)

    @contextmanager
    def _named(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SpoolError(f"the spool {self.folder} cannot be {what}: {error}") from error

    def forget(self, source: Source) -> None:
        """Delete the state of a source whose ring was removed."""
        with self.changed:
            if lane := self._lanes.pop(source, None):
                lane.forget()
            self.changed.notify_all()

    @property
    def disk_bytes(self) -> int:
        with self.changed:
            return sum(lane.disk_bytes for lane in self._lanes.values())

    @property
    def has_room(self) -> bool:
        """Whether there is room for another batch, after dropping detail if necessary."""
        return self.disk_bytes < self.limit_bytes

    def _put(self, lane: Lane, batch: Batch) -> Entry:
        with self._named("written"):
            return lane.put(batch)

    def _make_room(self) -> None:
        if self.has_room:
            return
        for names in DROP_ORDER:
            for lane, entry in droppable(self._lanes.values(), names):
                if self.disk_bytes < self.limit_bytes * LOW_WATER:
                    return
                self._drop(lane, entry, names)

    def _drop(self, lane: Lane, entry: Entry, names: Sequence[str]) -> None:
        batch = lane.read(entry.number)
        if batch is None:
            self._replace(lane, entry.number, entry.first_seq, entry.next_seq)
            return
        for name in names:
            self.dropped_rows[name] = self.dropped_rows.get(name, 0) + batch.rows(name)
        self._put(lane, without(batch, names))

    def _replace(self, lane: Lane, number: int, first_seq: int | None, next_seq: int) -> Batch:
        """Replace a batch that the disk lost by a loss, with the notes that a boot sends once.

        The loss is sent even if the disk is full.
        """
        batch = in_place_of(lane, number, first_seq, next_seq)
        try:
            lane.put(batch)
        except OSError:
            lane.put_over(batch)
        lane.newest = replace(lane.newest, said=frozenset())
        return batch
