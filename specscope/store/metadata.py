"""Check, copy and repair the table definitions of the embedded engine on disk.

The engine stores one SQL text per table and reads all of them at its start; a damaged one blocks
the whole store. A copy in one file, replaced atomically, follows every change. A damaged definition
without a copy is built again from the records; the engine's link `data/DATABASE/TABLE` names the
folder of its rows.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
from pathlib import Path

from specscope.errors import StoreError
from specscope.store.room import Room
from specscope.store.tables import LAYOUTS, create_table

log = logging.getLogger(__name__)

COPY = "specscope-definitions.json"
FORMAT_VERSION = b"1"  # of every MergeTree table's folder
PART_FILES = ("checksums.txt", "columns.txt", "count.txt")  # no part has an empty one
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`", re.DOTALL)


def whole(text: bytes) -> bool:
    """Whether a definition is complete."""
    if not text.startswith(b"ATTACH ") or not text.endswith(b"\n"):
        return False
    bare = _QUOTED.sub("", text.decode(errors="replace"))
    return "'" not in bare and "`" not in bare and bare.count("(") == bare.count(")")


def damaged(path: Path) -> list[Path]:
    """Unreadable definitions in a store's folder."""
    return [file for file in _definitions(path) if not whole(file.read_bytes())]


def keep(path: Path) -> None:
    """Check every definition and replace the copy.

    Raises StoreError and keeps the copy if a definition is incomplete on disk; the next start
    repairs it.
    """
    broken = damaged(path)
    if broken:
        names = ", ".join(sorted(file.stem for file in broken))
        raise StoreError(
            f"the disk of {path} did not store the definition of {names}; free some room and start "
            "again"
        )
    texts = {str(file.relative_to(path)): file.read_text() for file in _definitions(path)}
    if texts != _kept(path):
        write_whole(path / COPY, json.dumps(texts, indent=0).encode())


def repair(path: Path, database: str, room: Room) -> list[str]:
    """Repair damaged definitions before the engine opens them. Returns a line for each.

    Raises StoreFull if the disk is full.
    """
    broken = damaged(path)
    versions = [file for file in path.glob("store/*/*/format_version.txt") if not _size(file)]
    if not broken and not versions:
        return []
    room.require("repair the store's definitions")
    for file in versions:
        write_whole(file, FORMAT_VERSION)
    kept = _kept(path)
    done = []
    for file in broken:
        text, source = kept.get(str(file.relative_to(path))), "its copy"
        if text is None:
            text, source = _made_anew(path, database, file), "the records"
        if text is None:
            file.unlink()
            done.append(f"removed the empty definition of {file.stem}, which had no rows")
        else:
            write_whole(file, text.encode())
            done.append(f"repaired the definition of {file.stem} from {source}")
    for line in done:
        log.warning("%s", line)
    return done


def damaged_parts(path: Path, database: str, table: str) -> list[Path]:
    """Parts of a table with empty files from a full disk; the engine still shows their rows.

    At its next start the engine would set these parts aside with their rows.
    """
    folder = path / "data" / database / table
    return [
        part
        for part in folder.glob("*_*_*_*")
        if not part.name.startswith("tmp")
        and any((file := part / name).exists() and not _size(file) for name in PART_FILES)
    ]


def broken_parts(path: Path) -> list[Path]:
    """Unreadable parts that the engine set aside at a start."""
    return sorted(path.glob("store/*/*/detached/broken*"))


def write_whole(file: Path, content: bytes) -> None:
    """Replace a file atomically: a crash or a full disk leaves the old or the new one."""
    fresh = file.with_name(file.name + ".new")
    try:
        with fresh.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        fresh.replace(file)
    except OSError as error:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise StoreError(f"{file}: {error.strerror}") from error
    sync_folder(file.parent)


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that its file names survive a power loss."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _definitions(path: Path) -> list[Path]:
    return sorted([*path.glob("metadata/*.sql"), *path.glob("store/*/*/*.sql")])


def _kept(path: Path) -> dict[str, str]:
    try:
        kept = json.loads((path / COPY).read_bytes())
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}


def _made_anew(path: Path, database: str, file: Path) -> str | None:
    """A definition built without its copy; None if no link points to its rows."""
    if file.parent.name == "metadata":
        link = file.with_suffix("")
        if not link.is_symlink():
            return None
        return f"ATTACH DATABASE _ UUID '{link.readlink().name}'\nENGINE = Atomic\n"
    link = path / "data" / database / file.stem
    if file.stem not in LAYOUTS or not link.is_symlink():
        return None
    body = create_table(file.stem, embedded=True).partition("\n")[2]
    return f"ATTACH TABLE _ UUID '{link.readlink().name}'\n{body}\n"


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:  # merged away meanwhile
        return 1
