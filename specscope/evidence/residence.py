"""The measured residence of requests (arrival to end), and the block length that it requires."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from specscope import queries
from specscope.evaluate.statistics.planning import plan_blocks
from specscope.queries.period import since_condition
from specscope.store.connection import Store


@dataclass(frozen=True, slots=True)
class ProposedBlocks:
    """Length of a block and of its burn-in, from the residence of finished requests. [s]"""

    length_s: float
    burn_in_s: float
    requests: int
    mean_s: float
    p95_s: float

    def __str__(self) -> str:
        return (
            f"requests stay {self.mean_s:.1f} s, 95 % of them up to {self.p95_s:.1f} s "
            f"({self.requests} ended): blocks of {self.length_s:.0f} s, "
            f"{self.burn_in_s:.0f} s of it burn-in"
        )

    def as_json(self) -> dict[str, Any]:
        """The fields by name."""
        return asdict(self)


def proposed_blocks(store: Store, since: int = 0) -> ProposedBlocks | None:
    """Propose blocks from requests admitted since a time in ns since 1970; None without finished
    ones.

    The residence includes the time in the queue, so blocks are longer than necessary. Raises
    StoreError if the store cannot be read.
    """
    rows = store.rows(queries.residence(since_condition("admitted_at", since)))
    if not rows:
        return None
    (row,) = rows
    mean, p95 = float(row["mean_s"]), float(row["p95_s"])
    blocks = plan_blocks(mean, max(mean, p95))  # a few very long ones lift the mean over it
    length = float(math.ceil(blocks.length_s))
    return ProposedBlocks(length, length / 4.0, int(row["requests"]), mean, p95)
