"""JSON documents: whole files, one document per line, and arrays read element by element."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from specscope.readers.logs.lines import LINE_LIMIT
from specscope.readers.source import blocks

DOCUMENT_LIMIT = 1 << 28
"""256 MiB: a larger document is no benchmark result."""

LARGEST = 1e300
"""No quantity here comes near it; nan and infinity do not pass the comparison either."""

_SPACE = re.compile(r"[\s,]*")


def documents(stream: BinaryIO) -> Iterator[Any]:
    """The documents of a stream: one, or one per line. Invalid lines are skipped.

    A top-level array is one document.
    """
    data = b"".join(_limited(stream)).decode("utf-8-sig", "replace")
    try:
        yield json.loads(data)
        return
    except (ValueError, RecursionError):
        lines = data.splitlines()
    for line in lines:
        text = line.strip().rstrip(",")
        if text[:1] in ("{", "["):
            try:
                yield json.loads(text)
            except (ValueError, RecursionError):
                continue


def elements(stream: BinaryIO, key: str) -> Iterator[dict[str, Any]]:
    """The objects of the array under `key`, one at a time.

    A trace may be gigabytes. The array's key must be the first of that name in the document; a
    truncated array ends where it is cut.
    """
    decoder = json.JSONDecoder()
    text = ""
    source = blocks(stream)
    opening = re.compile(rf'"{re.escape(key)}"\s*:\s*\[')
    for block in source:
        text += block.decode("utf-8", "replace")
        match = opening.search(text)
        if match:
            text = text[match.end() :]
            break
        text = text[-LINE_LIMIT:]
    else:
        return
    at = 0
    while True:
        space = _SPACE.match(text, at)
        at = space.end() if space else at
        try:
            if at < len(text):
                if text[at] == "]":
                    return
                element, at = decoder.raw_decode(text, at)
                if isinstance(element, dict):
                    yield element
                continue
        except (ValueError, RecursionError):
            if len(text) - at > LINE_LIMIT * 16:
                return
        block = next(source, b"")
        if not block:
            return
        text, at = text[at:] + block.decode("utf-8", "replace"), 0


def dicts(document: Any, depth: int = 6) -> Iterator[dict[str, Any]]:
    """Every object in a document, outermost first, to a depth that no real result exceeds."""
    if isinstance(document, dict):
        yield document
        inner = list(document.values())
    elif isinstance(document, list):
        inner = document
    else:
        return
    if depth:
        for value in inner:
            if isinstance(value, dict | list):
                yield from dicts(value, depth - 1)


def real(document: dict[str, Any], *names: str) -> float | None:
    """The first of the names that holds a finite number."""
    for name in names:
        value = document.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST:
            return float(value)
    return None


def count(document: dict[str, Any], *names: str) -> int | None:
    """The first of the names that holds a number of at least 0, as a whole number."""
    value = real(document, *names)
    return round(value) if value is not None and value >= 0 else None


def _limited(stream: BinaryIO) -> Iterator[bytes]:
    size = 0
    for block in blocks(stream):
        size += len(block)
        if size > DOCUMENT_LIMIT:
            return
        yield block


def looks_like_json(head: bytes) -> bool:
    """Whether a file starts like a JSON document, with any byte order mark."""
    return head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[")
