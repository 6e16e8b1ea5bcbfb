"""How many tokens the caches may hold, who may come in, and who must go when they are full."""

from collections.abc import Sequence
from dataclasses import dataclass

from specscope.engine.sequence import Running

ROOM_ROUNDS = 4
"""Full rounds that everybody must have room for before another sequence is let in. Reading a text
again costs many rounds, so one that would be put back at once had better wait."""


@dataclass(frozen=True, slots=True)
class CacheBudget:
    """An account, not an allocator: rows have cache of their own, the sum over them is bounded.

    tokens: that all rows together may hold
    slack: positions behind a text that one round may write: k_max + 1

    A sequence alone always fits: `tokens` is at least the engine's capacity and the slack.
    """

    tokens: int
    slack: int

    def held(self, row: Running, ahead: int = 0) -> int:
        """Positions that `row` takes up in its next round, once it has grown by `ahead` tokens."""
        return min(len(row.text) + ahead, row.limit) + self.slack

    def crowded(self, rows: Sequence[Running], ahead: int = 0) -> bool:
        """Whether the next round of `rows` might not fit."""
        return sum(self.held(row, ahead) for row in rows) > self.tokens

    def admits(self, rows: Sequence[Running], new: Running, ahead: int = 0) -> bool:
        """Whether `new` may join `rows`, with room left for everybody's next rounds."""
        return not self.crowded([*rows, new], ahead + ROOM_ROUNDS * self.slack)

    def victims(self, rows: Sequence[Running]) -> list[Running]:
        """Who must go for the rest's next round to fit: the youngest first, never the oldest.

        The oldest therefore always comes to its end, and so in turn does everybody.
        """
        youngest_first = sorted(rows, key=lambda row: row.seat, reverse=True)
        over = sum(self.held(row) for row in rows) - self.tokens
        gone: list[Running] = []
        while over > 0:
            gone.append(youngest_first[len(gone)])
            over -= self.held(gone[-1])
        return gone
