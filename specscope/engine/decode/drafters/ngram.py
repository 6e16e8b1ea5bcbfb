"""N-gram lookup: proposes the tokens that followed the last earlier match of the text's end."""

from collections.abc import Sequence

from specscope.engine.decode.batch import Batch
from specscope.engine.decode.drafters.drafter import (
    Drafter,
    Proposal,
    host_proposal,
    move_items,
    pause,
)


class NgramDrafter(Drafter):
    """Looks the last `longest` .. `shortest` tokens up in the text itself, longest first.

    Proposes nothing if there is no earlier match, and fewer than k where the match is near the
    end. Every n-gram's last place is kept in a table, so a round costs the tokens it added.
    """

    reads_texts = True

    def __init__(self, longest: int = 4, shortest: int = 2, delay_us: float = 0.0) -> None:
        """`delay_us` is added to each round that drafts."""
        self.longest, self.shortest, self.delay_us = longest, shortest, delay_us

    def open(self, rows: int, capacity: int, k_max: int, device: str) -> None:  # noqa: ARG002
        """Make room."""
        self.device = device
        self.tables: list[dict[tuple[int, ...], int]] = [{} for _ in range(rows)]
        self.indexed = [0] * rows  # n-grams that end at or before this many tokens are in

    def admitted(self, row: int, prompt: Sequence[int]) -> None:  # noqa: ARG002
        """A new text: nothing is known of it."""
        self.tables[row], self.indexed[row] = {}, 0

    def propose(self, batch: Batch, ks: Sequence[int]) -> Proposal:
        """What followed the last match, up to k tokens per row."""
        found = [self.look_up(row, batch.texts[row], k) if k else [] for row, k in enumerate(ks)]
        pause(self.delay_us)
        return host_proposal(found, self.device)

    def look_up(self, row: int, text: Sequence[int], k: int) -> list[int]:
        """Up to k tokens for `text`, which continues what `row` held before."""
        table = self.tables[row]
        # The last token is left out: the suffix must not find itself.
        for end in range(self.indexed[row] + 1, len(text)):
            for n in range(self.shortest, min(self.longest, end) + 1):
                table[tuple(text[end - n : end])] = end
        self.indexed[row] = max(self.indexed[row], len(text) - 1)
        for n in range(min(self.longest, len(text)), self.shortest - 1, -1):
            place = table.get(tuple(text[len(text) - n :]))
            if place is not None:
                return list(text[place : place + k])
        return []

    def moved(self, sources: Sequence[int], targets: Sequence[int], positions: int) -> None:  # noqa: ARG002
        """Take the tables along."""
        move_items(self.tables, sources, targets)
        move_items(self.indexed, sources, targets)
