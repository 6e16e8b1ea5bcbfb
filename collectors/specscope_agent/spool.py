"""A bounded queue of batches on disk: from the ring until the store has them.

Each batch carries the ring's cursor after it, so nothing else has to be remembered: an
agent that was killed reads on where its last whole batch ends. When the limit is reached,
detail goes first: request parts and device samples, then rounds, then requests, each
oldest first and each counted as a loss within the batch that it belonged to. Boots and
losses stay, so numbers have no holes. A batch that has been sent keeps its rows, since the
service may have them. When nothing is left to drop there is no room, and the ring fills,
which the hook counts.
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
        """Take a folder, made where it is missing, with what an agent before us left there.

        limit_bytes: on disk, whole blocks counted

        Raises SpoolError if it cannot be made or read, or another agent holds it.
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
        """Let another agent have it; what it holds stays on disk."""
        if self._lock_file >= 0:
            os.close(self._lock_file)
            self._lock_file = -1

    def newest(self, source: Source) -> Batch:
        """The newest batch without its tables; number 0 and a fresh cursor where none was."""
        with self.changed:
            lane = self._lanes.get(source)
            return lane.newest if lane else Lane(self.folder, source).newest

    def add(
        self, source: Source, cursor: Cursor, tables: Sequence[Encoded], said: Iterable[str] = ()
    ) -> Batch:
        """Keep a batch from the last cursor to this one, under the next number.

        said: what is said once a boot and is in this batch

        Raises SpoolError if the disk does not take it; the cursor then stays.
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
        """Sources with a cursor, with or without batches that wait."""
        with self.changed:
            return tuple(self._lanes)

    def waiting(self, source: Source) -> int:
        """How many batches are not acknowledged."""
        with self.changed:
            lane = self._lanes.get(source)
            return len(lane.entries) if lane else 0

    def next_waiting(self, source: Source, after: int) -> int:
        """The lowest number above `after` that is not acknowledged; 0 if there is none."""
        with self.changed:
            lane = self._lanes.get(source)
            return lane.next_waiting(after) if lane else 0

    def take(self, source: Source, number: int) -> Batch | None:
        """A batch to be sent; from now on it keeps its rows. None if it is gone.

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

    def acknowledge(self, source: Source, number: int) -> None:
        """Delete a batch that the store has. Raises SpoolError."""
        with self.changed, self._named("written"):
            if lane := self._lanes.get(source):
                lane.acknowledge([number])

    def resume(self, source: Source, number: int, next_seq: int) -> None:
        """The store has everything of a source up to a number: delete that.

        Where it has more than we ever made, or another batch under that number, this spool
        was lost in between; what waits then goes on after what the store has.

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
        """Delete what is kept of a source whose ring is gone."""
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
        """Whether another batch may come: dropping detail has kept us under the limit."""
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
        """Put a loss in the place of a batch that the disk lost; what is said once is said again.

        A full disk does not keep it from being sent.
        """
        batch = in_place_of(lane, number, first_seq, next_seq)
        try:
            lane.put(batch)
        except OSError:
            lane.put_over(batch)
        lane.newest = replace(lane.newest, said=frozenset())
        return batch
