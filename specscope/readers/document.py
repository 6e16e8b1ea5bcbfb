"""A pasted issue or note: prose with fenced logs, tables and JSON, each with its own reader.

Each part of a document is a source, named after the line above it, because an issue often compares
two parts: one block with speculation and one without.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from specscope.readers.logs.unwrap import is_wrapped, unwrapped
from specscope.readers.records import Record
from specscope.readers.registry import reader_for
from specscope.readers.results.json_file import looks_like_json
from specscope.readers.source import SEPARATOR, Source
from specscope.readers.tables.above import context_above
from specscope.readers.tables.bench_table import is_known, records
from specscope.readers.tables.command_lines import commanded, is_command
from specscope.readers.tables.drawn import is_spaced, of_sentences, tables
from specscope.readers.tables.impossible import Impossible
from specscope.readers.tables.lists import has_list
from specscope.readers.tables.names import OFF, ON, WORD, k_of, named
from specscope.readers.tables.table import Table

LARGEST = 1 << 22
"""4 MiB: a larger file is a log, and is read line by line."""

MOST_PARTS = 256
LISTED_IN = 1 << 13
"""A list of speeds stands in a note of a few lines, and what breaks lines breaks the first ones."""

_FENCE = re.compile(r"^[ \t>]{0,40}(`{3,}|~{3,})[ \t]{0,8}([\w+-]*)")
_FENCED = re.compile(rb"^[ \t>]{0,40}(?:```|~~~)", re.MULTILINE)
_RULED = re.compile(
    rb"^[ \t>]{0,40}(?:\|[ \t]{0,40})?:?-{2,200}:?[ \t]{0,40}\|[-: |\t]{0,4000}\r?$"  # Markdown
    rb"|^[ \t]{0,40}-{2,200}(?:[ \t]{1,40}-{1,200}){1,64}[ \t]{0,40}\r?$"  # aligned columns
    rb"|^[ \t]{0,40}\+[-=]{3}"  # a grid
    rb"|^[^\t\n]*\t[^\t\n]+\t[^\t\n]+",  # tabs
    re.MULTILINE,
)
_JSON_START = re.compile(r"^[ \t]{0,40}[{\[]", re.MULTILINE)
_ABRIDGED = re.compile(r"([\[{])\s*(?:\.\.\.|…)\s*([\]}])")
_NAME = re.compile(r"[^\w .=+:,()%-]+")


_RESULT = re.compile(r"^\s{0,8}={3,40} Serving Benchmark Result ={3,40}\s*$")
_RESULT_ENDS = "="
"""A client's print ends with a line of such signs."""

_NOTHING = Source("", b"", io.BytesIO())


@dataclass(slots=True)
class Part:
    """One block of a document: a text or a table."""

    label: str
    source: Source = _NOTHING
    table: Table | None = None
    lines: list[str] = field(default_factory=list)


def is_document(head: bytes) -> bool:
    """Whether the text has fences or tables; UTF-8 only, and not JSON or binary as a whole."""
    if b"\0" in head[:4096] or (looks_like_json(head) and head.lstrip()[:2] != b"[!"):
        return False
    if _FENCED.search(head) or _RULED.search(head) or "┃".encode() in head:
        return True
    if head.count(b"= Serving Benchmark Result =") > 1:
        return True
    start = head[:LISTED_IN].decode("utf-8", "replace")
    prose = of_sentences(start.splitlines())
    return has_list(start) or is_wrapped(start) or is_spaced(start) or any(prose)


def parts(source: Source) -> list[Part] | None:
    """The blocks of a document in order; None for a file that is too large.

    All text outside fences forms one part, without its tables.
    """
    data = source.stream.read(LARGEST + 1)
    source.stream.seek(0)
    if len(data) > LARGEST:
        return None
    lines = data.decode("utf-8-sig", "replace").splitlines()
    found: list[Part] = []
    prose: list[str] = []
    for context, block, fenced in _blocks(lines):
        whole = list(unwrapped(block))
        label = label_of(context)
        kept = list(_tables_out(whole, context, found))
        if fenced:
            text = "\n".join(kept)
            found += [Part(label, lines=piece.splitlines()) for piece in _json_apart(text)]
        else:
            prose += [*kept, ""]
    # A heading, a block of code, a heading: the speeds in headings are one list.
    prose = list(_tables_out(prose, [], found))
    if not any(part.table for part in found):  # a sentence beside a table repeats its figures
        found += [Part(table.caption, table=table) for table in of_sentences(prose)]
    found.append(Part("", lines=prose))
    return _named(source.name, found[:MOST_PARTS])


def part_records(part: Part) -> tuple[str, list[Record]]:
    """(format, all records) of a part; no records if no reader knows it."""
    source = part.source
    if part.table is not None:
        if not is_known(part.table):
            return "table", []
        impossible = Impossible()
        found = list(records(source.name, part.table, impossible))
        return "table", [*found, *impossible.findings()]
    reader = reader_for(source.head)
    if reader is None:
        return "", []
    source.stream.seek(0)
    return reader.format, list(reader.read(source))


def label_of(context: Sequence[str]) -> str:
    """The nearest line above a block that says whether it speculates, else the nearest line."""
    started = next((text for text in context[:4] if is_command(text)), "")
    if started and commanded(started) and not any(map(says_arm, context[:4])):
        k = k_of(started)
        return "started with speculation" + (f", k={k}" if k else "")
    short = [text for text in context[:4] if len(text) <= 120]
    telling = [text for text in short if named(text).state in (ON, OFF, WORD)]
    words = [text for text in telling if not is_command(text)]  # a command is long, and cut
    return next(iter(words + telling), context[0] if context else "")


def says_arm(text: str) -> bool:
    """Whether a line other than a command names an arm."""
    return len(text) <= 120 and not is_command(text) and named(text).state in (ON, OFF, WORD)


def _blocks(lines: list[str]) -> Iterator[tuple[list[str], list[str], bool]]:
    """(lines above, lines, whether fenced); an unclosed fence goes to the end."""
    block: list[str] = []
    fence = ""
    context: list[str] = []
    for place, line in enumerate(lines):
        match = _FENCE.match(line)
        if _RESULT.match(line) and not fence:
            yield [], block, False
            fence, context, block = _RESULT_ENDS, context_above(lines, place), [line]
        elif fence == _RESULT_ENDS:
            block.append(line)
            if line.strip() and not line.strip("= \t"):
                yield context, block, True
                fence, block = "", []
        elif match and not fence:
            yield [], block, False
            fence, context, block = match.group(1), context_above(lines, place), []
        elif fence and match and match.group(1).startswith(fence) and not match.group(2):
            yield context, block, True
            fence, block = "", []
        else:
            block.append(line)
    yield context if fence else [], block, bool(fence)


def _tables_out(block: list[str], context: Sequence[str], found: list[Part]) -> Iterator[str]:
    """The lines of a block without its tables, which become parts."""
    taken: set[int] = set()
    for table, place in tables(block, context):
        taken.update(place)
        found.append(Part(table.caption or label_of(table.context), table=table))
    yield from (line for number, line in enumerate(block) if number not in taken)


def _json_apart(text: str) -> Iterator[str]:
    """A block; if it has a JSON document after a command, only the document."""
    text = _ABRIDGED.sub(r"\1\2", text)
    start = _JSON_START.search(text)
    if start is None or looks_like_json(text.encode()):
        yield text
        return
    before = text[: start.start()]
    rest = text[start.start() :]
    end = max(rest.rfind("}"), rest.rfind("]")) + 1
    if '"' in rest and end:
        yield before
        yield rest[:end]
    else:
        yield text


def _named(path: str, found: list[Part]) -> list[Part]:
    """Unique names of the parts, such as `issue.md::with eagle`."""
    seen: dict[str, int] = {}
    for number, part in enumerate(found, start=1):
        said = re.sub(r"(?i)\bw/o\b", "without", re.sub(r"(?i)\bw/(?=\s)", "with", part.label))
        label = " ".join(_NAME.sub(" ", said).split())[:60]
        if not label and number < len(found):
            label = f"part {number}"
        seen[label] = seen.get(label, 0) + 1
        part.label = label if seen[label] == 1 else f"{label} {seen[label]}".strip()
        text = "\n".join(part.lines) + "\n" if part.lines else ""
        name = f"{path}{SEPARATOR}{part.label}" if part.label else path
        data = text.encode()
        part.source = Source(name, data[: 1 << 18], io.BytesIO(data))
    return [part for part in found if part.table is not None or any(part.lines)]
