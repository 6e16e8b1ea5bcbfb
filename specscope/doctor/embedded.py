"""Checks of the embedded store that the environment names: disk space, definitions, lost parts.

Needs the standard library only, and neither opens nor locks the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from specscope.store.metadata import broken_parts, damaged
from specscope.store.room import MIN_FREE_BYTES, Room


def states(environment: Mapping[str, str]) -> Iterator[tuple[str, str, str, str]]:
    """Name, state, detail and remedy of each check; nothing if no embedded store is named."""
    dsn = environment.get("SPECSCOPE_STORE", "")
    if not dsn.startswith("chdb:///"):
        return
    path = Path(unquote(urlsplit(dsn).path))
    least = environment.get("SPECSCOPE_STORE_MIN_FREE_BYTES", "")
    room = Room(path, int(least) if least.isascii() and least.isdigit() else MIN_FREE_BYTES)
    free = f"{room.free() >> 20} MiB free, the floor is {room.least >> 20} MiB"
    if room.enough:
        yield f"disk of {path}", "ok", free, ""
    else:
        yield f"disk of {path}", "refused", free, "free some room: the service writes nothing"
    torn = [file.stem for file in damaged(path)]
    if torn:
        detail = f"definitions of {', '.join(torn)} are damaged"
        yield f"store {path}", "refused", detail, "start the service: it repairs them"
    aside = broken_parts(path)
    if aside:
        detail = f"{len(aside)} broken parts, set aside by the engine"
        remedy = "look at losses with reason `store` in the report; then remove the folders"
        yield f"store {path}", "left over", detail, remedy
