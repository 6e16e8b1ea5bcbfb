"""One table before its shape is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from specscope.readers.tables.cells import bare
from specscope.readers.tables.csv_file import name_of
from specscope.readers.tables.merged_cells import spread


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


def made(header: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> Table:
    """The table of a header and rows as printed."""
    header, rows = spread(header, rows)
    printed: dict[str, str] = {}
    for place, cell in enumerate(header):
        name = name_of(cell) or ("row" if place == 0 else f"column_{place}")
        printed.setdefault(name, bare(cell))
    names = list(printed)
    if len(names) < len(header):  # two columns of one name cannot be told apart
        names = [name_of(cell) or f"column_{place}" for place, cell in enumerate(header)]
        names = [
            f"{name}_{place}" if names.index(name) != place else name
            for place, name in enumerate(names)
        ]
        printed = {name: bare(cell) for name, cell in zip(names, header, strict=True)}
    made = [dict(zip(names, map(bare, row), strict=True)) for row in rows]
    return Table(names, made, caption, printed)
