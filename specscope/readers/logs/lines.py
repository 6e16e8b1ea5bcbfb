"""Lines of a stream in bounded memory, and parsers shared by log formats."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

from specscope.readers.source import blocks

LINE_LIMIT = 1 << 16
"""A longer line is no log line: 64 KiB holds a thousand position rates."""

INTEGER = r"(\d{1,15})"
REAL = r"(\d{1,15}(?:\.\d{1,15})?)"
"""Groups for numbers in patterns. Bounded: damage may leave thousands of digits in a row."""

_ANSI = re.compile(rb"\x1b\[[0-9;]*m")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)", re.IGNORECASE)


def line_blocks(stream: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """(complete lines, number of dropped over-long lines) to the end of the stream.

    The last block holds the text after the last newline, if there is any.
    """
    tail = b""
    skipping = False
    for block in blocks(stream):
        dropped = 0
        if skipping:
            _, newline, block = block.partition(b"\n")
            if not newline:
                continue
            skipping = False
        cut = block.rfind(b"\n") + 1
        whole, tail = (tail + block[:cut], block[cut:]) if cut else (b"", tail + block)
        if len(tail) > LINE_LIMIT:
            tail, skipping, dropped = b"", True, 1
        yield whole, dropped
    if tail:
        yield tail, 0


def marked(block: bytes, marks: tuple[bytes, ...]) -> Iterator[bytes]:
    """The lines of a block with one of the marks, in order. Other lines are only searched."""
    spans: dict[int, int] = {}
    for mark in marks:
        at = block.find(mark)
        while at >= 0:
            start = block.rfind(b"\n", 0, at) + 1
            end = block.find(b"\n", at)
            end = len(block) if end < 0 else end
            spans[start] = end
            at = block.find(mark, end)
    for start in sorted(spans):
        if spans[start] - start <= LINE_LIMIT:
            yield block[start : spans[start]]


def plain(line: bytes) -> str:
    """A line as text without colour codes; invalid UTF-8 becomes replacement characters."""
    if b"\x1b" in line:
        line = _ANSI.sub(b"", line)
    return line.decode("utf-8", "replace")


def fields(text: str) -> dict[str, list[str]]:
    """`a: 1 x, b: 2, 3` to {"a": ["1 x"], "b": ["2", "3"]}; keys in lower case.

    Engines reorder and add fields between versions, so fields are found by name.
    """
    found: dict[str, list[str]] = {}
    values: list[str] = []
    for part in text.split(","):
        name, colon, value = part.partition(":")
        if colon:
            values = [value.strip()]
            found[name.strip().lower()] = values
        elif part.strip():
            values.append(part.strip())
    return found


def number(text: str | None) -> float | None:
    """The number at the start of a text; None for nan, infinity, none or no number."""
    if not text:
        return None
    try:
        value = float(text)
        return value if value - value == 0 else None
    except ValueError:
        pass
    match = _NUMBER.match(text.strip())
    if match is None:
        return None
    value = float(match.group())
    return value if value - value == 0 else None


def whole(text: str | None) -> int | None:
    """A non-negative whole number at the start of a text, or None."""
    value = number(text)
    return int(value) if value is not None and value >= 0 and value == int(value) else None
