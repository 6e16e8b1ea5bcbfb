"""The data dictionary: every stored table and column, rendered from the records.

`python -m specscope.store.dictionary > docs/data-dictionary.md` writes it; a test checks that the
page is current.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from specscope.store.rollups import ROLLUPS
from specscope.store.tables import LAYOUTS, RECORDS, column_type, sorting_key, summary
from specscope_hook.columns import ENDS, Column, columns, stored_name
from specscope_hook.records import EVENT_KINDS, LOSS_REASONS, TABLES

OPENING = """# Data dictionary

Every stored table and column. This page is rendered from the records in
`collectors/specscope_hook/records.py` and `specscope/store/rollups.py`, the only places that
declare a column. To change it, change them and run
`python -m specscope.store.dictionary > docs/data-dictionary.md`.

Unknown is NULL, never 0; an unknown array is empty. Times are UTC. A newer row replaces an older
one of the same key, so read tables with FINAL. Raw tables hold what arrived; rollups are computed
from them.
"""


def render() -> str:
    """The page, as Markdown."""
    sections = [OPENING, "## Raw tables\n", *(_table(name) for name in TABLES)]
    sections += ["## Rollups\n", *(_table(name) for name in ROLLUPS)]
    sections += ["## Reasons of a loss\n", _meanings("reason", LOSS_REASONS)]
    sections += ["## Kinds of events\n", _meanings("kind", EVENT_KINDS)]
    sections += ["## Ends of a request\n", _meanings("end", ENDS)]
    return "\n".join(sections)


def _table(name: str) -> str:
    record, layout = RECORDS[name], LAYOUTS[name]
    kept = f"kept {layout.days} days" if layout.days else "kept for good"
    lines = [
        f"### `{name}`\n",
        f"{summary(record)}. Key: `{sorting_key(name)}`; {kept}.\n",
        "| column | type | unit | meaning |",
        "|---|---|---|---|",
        *(_row(column) for column in columns(record)),
    ]
    return "\n".join(lines) + "\n"


def _row(column: Column) -> str:
    unit = "" if column.unit == "1" else column.unit
    cells: list[Any] = [f"`{stored_name(column.name)}`", f"`{column_type(column)}`", unit]
    return "| " + " | ".join([*cells, column.meaning.replace("|", "\\|")]) + " |"


def _meanings(of: str, meanings: Mapping[str, str]) -> str:
    lines = [f"| {of} | meaning |", "|---|---|"]
    lines += [f"| `{word}` | {meaning} |" for word, meaning in meanings.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(render())
