"""Text to train the bundled pair on: found on the machine (prose, Python) or generated (SQL, JSON).

A document is held out whole, by the hash of its content, so that no held-out sentence was seen.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from specscope.engine.errors import NoCorpus
from specscope.engine.traffic import json_log, sql_script

DOCS = Path("/usr/share/doc/python3.11/html/_sources")
STDLIB = Path("/usr/lib/python3.11")
HELD_OUT_PERCENT = 5
SQL_DOCUMENTS = 1100
JSON_DOCUMENTS = 800

_SKIPPED_STDLIB = {
    "test", "tests", "idle_test", "ensurepip", "encodings", "pydoc_data", "dist-packages",
    "__pycache__",
}  # fmt: skip
_BLOCK = re.compile(r"^(\s*)(\.\.|:[\w ]+:|[|+*#=\-~^\"']{3,}|>>>|>)")
_ROLE = re.compile(r":[\w:+.-]+:`([^`]*)`")
_LINK = re.compile(r"`([^`<]+?)\s*<[^`>]*>`_{0,2}")
_MARK = re.compile(r"``?([^`]+)``?_{0,2}|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*")


@dataclass(frozen=True, slots=True)
class Document:
    """One text with its class and where it came from."""

    label: str
    source: str
    text: str

    @property
    def held_out(self) -> bool:
        """Whether it belongs to the held-out part; a function of the text alone."""
        return int(hashlib.sha256(self.text.encode()).hexdigest(), 16) % 100 < HELD_OUT_PERCENT


def collect(docs: Path = DOCS, stdlib: Path = STDLIB, seed: int = 2026) -> list[Document]:
    """Every document of the four classes.

    Raises NoCorpus where Python's documentation sources or library are not installed.
    """
    if not docs.is_dir():
        raise NoCorpus(f"no reST sources at {docs}: install Debian's python3.11-doc or name them")
    if not stdlib.is_dir():
        raise NoCorpus(f"no Python library at {stdlib}: install python3.11 or name it")
    found = [*_prose(docs), *_python(stdlib)]
    found += [Document("sql", f"generated:{i}", sql_script(seed, i)) for i in range(SQL_DOCUMENTS)]
    found += [Document("json", f"generated:{i}", json_log(seed, i)) for i in range(JSON_DOCUMENTS)]
    return found


def running_text(rest: str) -> str:
    """The paragraphs of a reST text: no directives, code, tables, fields, headings or markup."""
    kept = [_paragraph(block) for block in re.split(r"\n\s*\n", _without_code(rest))]
    return "\n\n".join(text for text in kept if text)


def _prose(docs: Path) -> Iterator[Document]:
    for path in sorted(docs.rglob("*.rst.txt")):
        text = running_text(path.read_text(errors="replace"))
        if len(text) > 500 and "license" not in path.name:
            yield Document("prose", str(path.relative_to(docs)), text)


def _python(stdlib: Path) -> Iterator[Document]:
    for path in sorted(stdlib.rglob("*.py")):
        inside = path.relative_to(stdlib)
        if _SKIPPED_STDLIB & set(inside.parts) or inside.name.startswith("_sysconfigdata"):
            continue
        text = path.read_text(errors="replace")
        if len(text) > 300 and not _foreign(text):
            yield Document("python", str(inside), text)


def _foreign(text: str) -> bool:
    """Whether a file carries a licence note of its own: then it is not ours to learn from."""
    notes = [line for line in text.lower().splitlines() if "copyright" in line]
    return any("python software foundation" not in note for note in notes)


def _without_code(rest: str) -> str:
    """`rest` less directives and literal blocks, which end where indentation returns."""
    kept: list[str] = []
    inside: int | None = None  # indentation of the line that opened the block
    for line in rest.expandtabs(4).splitlines():
        indent = len(line) - len(line.lstrip())
        if inside is not None and line.strip() and indent <= inside:
            inside = None
        if inside is None:
            stripped = line.strip()
            if _opens_prose(stripped):
                continue  # what a function or class says of itself is running text
            if stripped.startswith("..") or stripped.endswith("::"):
                inside = indent
                line = line.rstrip(":") if not stripped.startswith("..") else ""
            kept.append(line)
    return "\n".join(kept)


def _opens_prose(stripped: str) -> bool:
    kinds = ("function", "method", "class", "exception", "data", "attribute", "note", "warning",
             "versionchanged", "versionadded", "c:function", "opcode", "describe")  # fmt: skip
    return stripped.startswith(".. ") and stripped[3:].split("::")[0] in kinds


def _paragraph(block: str) -> str:
    lines = [line for line in block.splitlines() if line.strip()]
    if not lines or any(_BLOCK.match(line) for line in lines):
        return ""
    text = " ".join(line.strip() for line in lines)
    text = _LINK.sub(r"\1", _ROLE.sub(lambda m: m[1].lstrip("~!").split(" <")[0], text))
    text = _MARK.sub(lambda m: m[1] or m[2] or m[3], text)
    letters = sum(c.isalpha() or c.isspace() for c in text)
    # Headings are short, tables and signatures are mostly not letters.
    return text if len(text) > 60 and letters > 0.8 * len(text) else ""
