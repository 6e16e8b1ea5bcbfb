"""Who holds which row: waiting requests are seated, read, and moved together when others leave.

Rows are dense, first come first served. All of them are in the rounds but perhaps the last, whose
text is still being read: some tokens between two rounds, so that the others need not wait for
the whole of it.
"""

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from specscope.engine.budget import CacheBudget
from specscope.engine.drafter import Drafter
from specscope.engine.round import Target
from specscope.engine.sequence import Running
from specscope.engine.state import BatchState

PREFILL_CHUNK = 256
"""Tokens of one text in one pass: what attention computes grows with its square."""


@dataclass(frozen=True, slots=True)
class Portion:
    """What is to be read of a row's text, and whether the row has only now been seated."""

    row: Running
    tokens: int
    new: bool


class Seats:
    """The rows, and the queue before them."""

    def __init__(
        self, slots: int, budget: CacheBudget, state: BatchState, target: Target, drafter: Drafter
    ) -> None:
        self.slots, self.budget = slots, budget
        self.state, self.target, self.drafter = state, target, drafter
        self.rows: list[Running] = []
        self.queue: deque[Running] = deque()
        self.seated = 0

    @property
    def running(self) -> list[Running]:
        """The rows that take part in rounds, in order."""
        return [row for row in self.rows if not row.unread]

    def portions(self, most: int, ahead: int) -> list[Portion]:
        """What to read next, at most `most` tokens; seats those who come in for it.

        ahead: tokens that rounds in flight may have added to each row.
        """
        place, chosen = len(self.running), list[Portion]()
        while True:
            new = place == len(self.rows)
            if new and not self._seat(most, ahead):
                return chosen
            row = self.rows[place]
            tokens = min(row.unread, most)
            chosen.append(Portion(row, tokens, new))
            if tokens < row.unread:
                return chosen
            place, most = place + 1, most - tokens

    def read(self, portions: Sequence[Portion]) -> None:
        """Read them; a row whose text is read is running from now on."""
        first = len(self.rows) - len(portions)
        new = [portion.row for portion in portions if portion.new]
        if new:
            requests = [(row.text, row.limit, row.info.params) for row in new]
            self.state.admit(len(self.rows) - len(new), requests)
        done = [len(portion.row.text) - 1 - portion.row.unread for portion in portions]
        counts = [portion.tokens for portion in portions]
        self.target.prefill(self.state, first, done, counts, PREFILL_CHUNK)
        for portion in portions:
            portion.row.unread -= portion.tokens

    def leave(self, leaving: Collection[int], ahead: int) -> list[Running]:
        """Free rows, given by place; running rows from the back fill the gaps."""
        running = len(self.running)
        staying = running - sum(place < running for place in leaving)
        gaps = [place for place in range(staying) if place in leaving]
        back = [place for place in range(staying, running) if place not in leaving]
        moves = list(zip(back, gaps, strict=True))
        if running < len(self.rows) and running not in leaving:
            # The one that is being read stays the last.
            moves += [(running, staying)] if running > staying else []
            staying += 1
        gone = [self.rows[place] for place in sorted(leaving)]
        if moves:
            self.state.move(*zip(*moves, strict=True))
        for source, place in moves:
            row = self.rows[source]
            positions = min(len(row.text) + ahead, row.limit)
            self.target.cache.move(source, place, positions)
            self.drafter.moved(source, place, positions)
            self.rows[place] = row
        del self.rows[staying:]
        return gone

    def put_back(self, rows: Sequence[Running]) -> None:
        """To the front of the queue with what they have emitted; the youngest is given first."""
        for row in rows:
            row.preemptions += 1
            self.queue.appendleft(row)

    def _seat(self, most: int, ahead: int) -> bool:
        """Give the first in the queue a row, if there is one, cache for it, and reading left."""
        if not self.queue or len(self.rows) == self.slots:
            return False
        row = self.queue[0]
        unread = len(row.text) - 1
        if (unread and not most) or not self.budget.admits(self.rows, row, ahead):
            return False
        self.queue.popleft()
        self.seated += 1
        row.be_seated(self.seated, unread)
        self.drafter.admitted(len(self.rows), row.text)
        self.rows.append(row)
        return True
