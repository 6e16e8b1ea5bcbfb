"""Read a ring without removing records, for people, in addition to its reader.

The file is opened read-only, so a peek cannot release space or affect the writer. Released records
stay until the writer overwrites them, so a peek may include them. A record that is overwritten
meanwhile fails its CRC and is skipped.
"""

from __future__ import annotations

import os

from specscope_hook import layout as at
from specscope_hook.layout import Cursor, RawRecord
from specscope_hook.reader import RingReader


class RingPeek(RingReader):
    """A peek at one ring file; there may be any number of them. They never release space."""

    _FLAGS = os.O_RDONLY

    def newest(self, span_bytes: int) -> Cursor:
        """The cursor for the newest records, at most this many bytes before the end.

        The older half of the ring is left out, because the writer may overwrite it soon.
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
        """Complete records from a cursor, and the cursor after them.

        If the writer has overwritten the cursor's position, the peek continues with the newest
        records. Then numbers are missing, as after dropped records.
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
