"""Buckets of what is known before a request runs: its prompt, its requested output, the load.

One list of edges each; the Python function and the SQL expression are both made from it, so
that a segment means the same in the store and in the evaluator.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple


class Buckets(NamedTuple):
    """Upper edges, inclusive, and one more name than edges; `unknown` where there is no value."""

    edges: tuple[int, ...]
    names: tuple[str, ...]

    def name(self, value: int | None) -> str:
        """The bucket of a value; "unknown" for None."""
        return "unknown" if value is None else self.names[bisect_left(self.edges, value)]

    def rank(self, name: str) -> int:
        """Place of a bucket in the order of its values; any other name comes last."""
        return self.names.index(name) if name in self.names else len(self.names)

    def sql(self, value: str) -> str:
        """The same as an expression over a column that may be NULL."""
        cases = "".join(
            f" WHEN {value} <= {edge} THEN '{name}'"
            for edge, name in zip(self.edges, self.names, strict=False)
        )
        return f"CASE WHEN {value} IS NULL THEN 'unknown'{cases} ELSE '{self.names[-1]}' END"


CONTEXT = Buckets((1024, 4096, 16384, 65536), ("0-1k", "1-4k", "4-16k", "16-64k", "64k+"))
"""By prompt tokens at admission; k is 1024."""

OUTPUT = Buckets((16, 64, 256, 1024), ("1-16", "17-64", "65-256", "257-1k", "1k+"))
"""By requested output tokens; "unknown" where the client did not say."""

LOAD = Buckets((1, 4, 16, 64, 256), ("1", "2-4", "5-16", "17-64", "65-256", "257+"))
"""By requests admitted in a block."""
