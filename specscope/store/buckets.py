"""Buckets of quantities known before a request runs: prompt length, requested output, load.

Each has one list of edges. Both the Python function and the SQL expression use it, so a segment has
one meaning in the store and in the evaluator.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from specscope.evaluate.experiment.blocks import CONTEXT_BUCKETS


class Buckets(NamedTuple):
    """Inclusive upper edges, and one more name than edges; `unknown` without a value."""

    edges: tuple[int, ...]
    names: tuple[str, ...]

    def name(self, value: int | None) -> str:
        """The bucket of a value; "unknown" for None."""
        return "unknown" if value is None else self.names[bisect_left(self.edges, value)]

    def rank(self, name: str) -> int:
        """Rank of a bucket in the order of its values; any other name comes last."""
        return self.names.index(name) if name in self.names else len(self.names)

    def sql(self, value: str) -> str:
        """The SQL expression of the bucket of a nullable column."""
        cases = "".join(
            f" WHEN {value} <= {edge} THEN '{name}'"
            for edge, name in zip(self.edges, self.names, strict=False)
        )
        return f"CASE WHEN {value} IS NULL THEN 'unknown'{cases} ELSE '{self.names[-1]}' END"


CONTEXT = Buckets((1024, 4096, 16384, 65536), CONTEXT_BUCKETS)
"""By prompt tokens at admission."""

OUTPUT = Buckets((16, 64, 256, 1024), ("1-16", "17-64", "65-256", "257-1k", "1k+"))
"""By requested output tokens; "unknown" where the client did not say."""

LOAD = Buckets((1, 4, 16, 64, 256), ("1", "2-4", "5-16", "17-64", "65-256", "257+"))
"""By requests admitted in a block."""
