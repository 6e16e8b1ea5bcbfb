"""A look at a ring that takes nothing from it: for people, beside the one reader.

The file is mapped read-only, so a look cannot give space back or reach the writer. What the reader
has given back still lies there until the writer comes round, so a look may begin before it; a
record that is overwritten meanwhile does not match its check and is not shown.
"""

from __future__ import annotations

import mmap
import os

from specscope_hook import layout as at
from specscope_hook.layout import Cursor, RawRecord
from specscope_hook.reader import RingReader


class RingPeek(RingReader):
    """Looks at one ring file; any number of them may, and `release` is not theirs to call."""

    _OPENED, _MAPPED = os.O_RDONLY, mmap.ACCESS_READ

    def newest(self, span_bytes: int) -> Cursor:
        """Where a look at the newest records begins: at most so many bytes before the end.

        The older half of the ring is left out, since the writer may be about to reach it.
        """
        end = self._words[at.W_WRITE]
        start = max(0, end - min(span_bytes, self._capacity // 2)) & ~7
        for position in range(start, end, 8):
            record, _ = self._record_at(position, end, 0)
            if record is not None and record.kind in (at.ROUND, at.REQUEST):
                return Cursor(position, record.seq)
        return Cursor(end, self._words[at.W_SEQ])

    def look(self, cursor: Cursor) -> tuple[list[RawRecord], Cursor]:
        """Whole records from a cursor on, and the cursor after them.

        Where the writer has come round since, it goes on with what is newest: numbers are then
        missing between two records, as they are where the writer dropped some.
        """
        end = self._words[at.W_WRITE]
        position, next_seq = cursor
        if self._overtaken(position):
            position, next_seq = self.newest(self._capacity)
        records: list[RawRecord] = []
        while position < end:
            record, after = self._record_at(position, end, next_seq)
            if self._overtaken(position):
                return records, self.newest(self._capacity)
            if record is None and after == position:
                position = self._resume_after(position, end, next_seq)
                continue
            if record is not None:
                records.append(record)
                next_seq = record.seq + 1
            position = after
        return records, Cursor(position, next_seq)

    def _overtaken(self, position: int) -> bool:
        return bool(self._words[at.W_WRITE] - position > self._capacity)
