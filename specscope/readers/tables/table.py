"""One table as it was drawn, before its shape is understood."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Table:
    """Normalised names, rows of bare cells, and the lines above the table, nearest first."""

    names: Sequence[str]
    rows: Sequence[Mapping[str, str]]
    caption: str = ""
    printed: Mapping[str, str] = field(default_factory=dict)
    """Normalised name to the header as printed."""
    context: Sequence[str] = ()
    """Lines and headings above, from the caption outwards."""

    def said(self, name: str) -> str:
        """A header as printed."""
        return self.printed.get(name, name)
