"""A look at a ring that takes nothing from it: for people, beside the one reader.

The file is opened for reading only, so a look cannot give space back or reach the writer. What
the reader has given back still lies there until the writer comes round, so a look may begin
before it; a record that is overwritten meanwhile does not match its check and is not shown.
"""

from __future__ import annotations

import os

from specscope_hook import layout as at
from specscope_hook.layout import Cursor, RawRecord
from specscope_hook.reader import RingReader


class RingPeek(RingReader):
    """Looks at one ring file; any number of them may, and `release` is not theirs to call."""

    _FLAGS = os.O_RDONLY

    def newest(self, span_bytes: int) -> Cursor:
        """Where a look at the newest records begins: at most so many bytes before the end.

        The older half of the ring is left out, since the writer may be about to reach it.
        """
        self._window = (0, b"")
        words = self._words()
        if self._damage(words, 0):
            return Cursor()
        end, last_seq = words[at.W_WRITE], words[at.W_SEQ]
        position = max(0, end - min(span_bytes, self._capacity // 2)) & ~7
        whole = position >= end
        position -= 8
        while not whole:
            position, whole = self._resume_after(position, end, at.FIRST_SEQ, last_seq)
        if position >= end:
            return Cursor(end, last_seq)
        record, _ = self._record_at(position, end, at.FIRST_SEQ, last_seq)
        return Cursor(position, record.seq if record else last_seq)

    def look(self, cursor: Cursor) -> tuple[list[RawRecord], Cursor]:
        """Whole records from a cursor on, and the cursor after them.

        When the writer has come round since, it goes on with what is newest: numbers are then
        missing between two records, as they are when the writer dropped some.
        """
        self._window = (0, b"")
        words = self._words()
        end, last_seq = words[at.W_WRITE], words[at.W_SEQ]
        position, next_seq = cursor
        if self._damage(words, position):
            return [], cursor
        if self._overtaken(position):
            position, next_seq = self.newest(self._capacity)
        records: list[RawRecord] = []
        while position < end:
            record, after = self._record_at(position, end, next_seq, last_seq)
            if self._overtaken(position):
                return records, self.newest(self._capacity)
            if record is None and after == position:
                position, _ = self._resume_after(position, end, next_seq, last_seq)
                continue
            if record is not None:
                records.append(record)
                next_seq = record.seq + 1
            position = after
        return records, Cursor(position, next_seq)

    def _overtaken(self, position: int) -> bool:
        return self._word(at.W_WRITE) - position > self._capacity
