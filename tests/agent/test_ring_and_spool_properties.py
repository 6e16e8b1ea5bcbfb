"""Whatever order things happen in: each record is read once or in one gap, each batch kept or
acknowledged."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from agent_support import a_boot
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from specscope_agent.source import Source
from specscope_agent.spool import Spool
from specscope_agent.wire import Encoded
from specscope_hook.layout import FIRST_SEQ
from specscope_hook.ring import ROUND, Cursor, Ring, RingReader


class RingMachine(RuleBasedStateMachine):
    """A writer and a reader of one ring, either of whom may stop at any moment."""

    @initialize()
    def make(self):
        self.folder = Path(tempfile.mkdtemp())
        self.ring = Ring.create(self.folder / "a.ring", a_boot(), 4096)
        self.reader = RingReader.open(self.ring.path)
        self.pushed: list[bytes] = []
        self.kept = self.read = Cursor()
        self.seen: dict[int, bytes] = {}
        self.lost: set[int] = set()

    @rule(length=st.integers(0, 300), count=st.integers(1, 9))
    def push(self, length, count):
        for _ in range(count):
            payload = len(self.pushed).to_bytes(4, "little") + bytes(length)
            self.pushed.append(payload)
            self.ring.push(ROUND, payload, 1)

    @rule()
    def flush(self):
        self.ring.flush()

    @rule(limit=st.integers(1, 5000))
    def pull(self, limit):
        records, self.read, gaps = self.reader.pull(self.read, limit)
        for record in records:
            assert record.seq not in self.seen or self.seen[record.seq] == record.payload
            self.seen[record.seq] = record.payload
        self.lost |= {
            seq for gap in gaps for seq in range(gap.first_seq, gap.first_seq + gap.count)
        }

    @rule()
    def keep(self):
        self.kept = self.read

    @rule()
    def release(self):
        self.reader.release(self.kept)

    @rule()
    def die(self):
        """The reader; the next one goes on from what was kept."""
        self.reader.close()
        self.reader, self.read = RingReader.open(self.ring.path), self.kept

    @rule(size=st.sampled_from((0, 100, 150_000)))
    def cut(self, size):
        """The file, and its writer looks at it."""
        os.truncate(self.ring.path, size)
        self.ring._inspect_at = 0
        self.ring.push(ROUND, b"look", 1)
        self.pushed.append(b"look")
        self.ring.flush()

    @invariant()
    def every_record_is_one_of_those_pushed(self):
        for seq, payload in getattr(self, "seen", {}).items():
            assert payload == self.pushed[seq - FIRST_SEQ]

    def teardown(self):
        if not hasattr(self, "ring"):
            return
        self.ring.close()
        while True:
            before = self.read
            self.pull(1 << 20)
            if self.read == before:
                self.pull(1 << 20)  # what does not match is given a second look
                break
        assert self.seen.keys() | self.lost == set(range(FIRST_SEQ, len(self.pushed) + FIRST_SEQ))
        self.reader.close()
        shutil.rmtree(self.folder)


class SpoolMachine(RuleBasedStateMachine):
    """A spool whose agent dies at any moment, and a store that has what it acknowledged."""

    source = Source("r0", "b0")

    @initialize()
    def make(self):
        self.folder = Path(tempfile.mkdtemp())
        self.spool = Spool.open(self.folder, 1 << 20)
        self.next_seq, self.number = FIRST_SEQ, 0
        self.stored: dict[int, int] = {}

    @rule(records=st.integers(0, 50), size=st.integers(0, 20_000))
    def add(self, records, size):
        self.next_seq += records
        self.number += 1
        table = Encoded("boot", 1, os.urandom(size))
        batch = self.spool.add(self.source, Cursor(8 * self.next_seq, self.next_seq), [table])
        assert batch.number == self.number

    @rule(count=st.integers(1, 5))
    def send(self, count):
        """The next of those that wait; the store has them, the spool does not know yet."""
        after = 0
        for _ in range(count):
            if not (after := self.spool.next_waiting(self.source, after)):
                return
            batch = self.spool.take(self.source, after)
            self.stored.setdefault(after, batch.cursor.next_seq)
            assert self.stored[after] == batch.cursor.next_seq

    @rule()
    def acknowledge(self):
        first = self.spool.next_waiting(self.source, 0)
        if first in self.stored:
            self.spool.acknowledge(self.source, [first])

    @rule()
    def resume(self):
        number = 0
        while number + 1 in self.stored:
            number += 1
        self.spool.resume(self.source, number, self.stored.get(number, FIRST_SEQ))
        assert self.spool.next_waiting(self.source, 0) in (0, number + 1)

    @rule()
    def die(self):
        self.spool.close()
        self.spool = Spool.open(self.folder, 1 << 20)

    @invariant()
    def nothing_is_deleted_that_the_store_does_not_have(self):
        if not hasattr(self, "spool"):
            return
        for number in range(1, self.number + 1):
            if number not in self.stored:
                assert self.spool.next_waiting(self.source, number - 1) == number
        newest = self.spool.newest(self.source)
        assert (newest.number, newest.cursor.next_seq) == (self.number, self.next_seq)

    def teardown(self):
        if hasattr(self, "spool"):
            self.spool.close()
            shutil.rmtree(self.folder)


RingMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
SpoolMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestRing = RingMachine.TestCase
TestSpool = SpoolMachine.TestCase
