"""Impossible values of a table."""

from __future__ import annotations

from collections.abc import Iterator

from specscope.readers.records import Finding


class Impossible:
    """Impossible values by column: dropped, with one finding per column."""

    def __init__(self) -> None:
        self._seen: dict[str, list[tuple[int, float]]] = {}

    def keeps(self, column: str, value: float, line: int, *, above_zero: bool) -> bool:
        """Whether the value is possible: a speed or a time above 0, a count or a rate of at least
        0."""
        if value > 0 or (value == 0 and not above_zero):
            return True
        self._seen.setdefault(column, []).append((line, value))
        return False

    def findings(self) -> Iterator[Finding]:
        """One for each column with such values: how many, and the first of them."""
        for column, seen in self._seen.items():
            line, value = seen[0]
            where = f"in row {line}" if len(seen) == 1 else f"in {len(seen)} rows, first in {line}"
            text = f"{column} is {value:g} {where}: not possible, stored as unknown"
            evidence = {"column": column, "rows": len(seen), "first_row": line, "value": value}
            yield Finding("IMPOSSIBLE_VALUE", text, evidence)
