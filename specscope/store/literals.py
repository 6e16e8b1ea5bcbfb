"""Values as they are written in ClickHouse's SQL, where it takes no bound parameter."""

from __future__ import annotations


def quoted(text: str) -> str:
    """A text as a literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
