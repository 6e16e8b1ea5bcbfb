"""Files, directories and compressed files as byte streams."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from specscope.errors import InputError

HEAD_BYTES = 1 << 18
SEPARATOR = "::"
"""Between a document's path and the name of its part."""

_GZIP = b"\x1f\x8b"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class Source:
    """A name to show, the first bytes, and the whole stream from its beginning."""

    name: str
    head: bytes
    stream: BinaryIO
    path: Path | None = None


def arm_name(input: str) -> str:
    """The name of an arm without a name: its part's label, or its file's name."""
    _, mark, label = input.partition(SEPARATOR)
    return label if mark else Path(input).name.split(".")[0]


def walk(paths: list[str]) -> list[Path]:
    """The regular files under the given paths, sorted within a directory.

    Raises InputError if a path does not exist.
    """
    files: list[Path] = []
    for text in paths:
        path = Path("/dev/stdin" if text == "-" else text)
        if path.is_dir():
            files += sorted(p for p in path.rglob("*") if p.is_file() and not _hidden(p, path))
        elif path.exists():
            files.append(path)
        else:
            raise InputError(f"{text}: no such file or directory")
    return list(dict.fromkeys(files))


def open_source(path: Path) -> Source:
    """Open a file and decode gzip and UTF-16. Raises InputError with the reason."""
    try:
        raw: BinaryIO = path.open("rb")
        start = raw.read(4)
        stream = raw
        if raw.seekable():
            raw.seek(0)
        else:
            stream = _pushed_back(start, raw)
        if start.startswith(_GZIP):
            stream = io.BufferedReader(_Gunzipped(stream), 1 << 20)  # type: ignore[type-var]
        elif start.startswith(_UTF16):
            stream = io.BytesIO(stream.read().decode("utf-16", "replace").encode())
        return from_stream(str(path), stream, path if not start.startswith(_GZIP) else None)
    except (OSError, EOFError) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def from_stream(name: str, stream: BinaryIO, path: Path | None = None) -> Source:
    """Read the head and put it back."""
    head = stream.read(HEAD_BYTES)
    if stream.seekable():
        stream.seek(0)
        return Source(name, head, stream, path)
    return Source(name, head, _pushed_back(head, stream), path)


def blocks(stream: BinaryIO, size: int = 1 << 20) -> Iterator[bytes]:
    """Blocks of a stream until it ends."""
    while block := stream.read(size):
        yield block


def _hidden(path: Path, root: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(root).parts)


class _Rejoined(io.RawIOBase):
    """Bytes already read, then the rest of their stream."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head, self._rest = head, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        data = self._head[: len(buffer)] or self._rest.read(len(buffer))
        self._head = self._head[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)


class _Gunzipped(io.RawIOBase):
    """A gzip stream that returns its content up to a truncation or damage."""

    def __init__(self, packed: BinaryIO) -> None:
        self._packed = packed
        self._inflate = zlib.decompressobj(wbits=31)
        self._rest = b""
        self._started = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        try:
            data = self._next(len(buffer))
        except zlib.error as error:
            if not self._started:
                raise OSError(f"damaged gzip: {error}") from error
            data = b""
        self._started |= bool(data)
        buffer[: len(data)] = data
        return len(data)

    def _next(self, size: int) -> bytes:
        while True:
            packed = self._rest or self._packed.read(1 << 16)
            if not packed:
                return b""
            data = self._inflate.decompress(packed, size)
            self._rest = self._inflate.unconsumed_tail
            if self._inflate.eof:  # the next member of the file, if there is one
                self._rest = self._inflate.unused_data
                self._inflate = zlib.decompressobj(wbits=31)
            if data:
                return data


def _pushed_back(head: bytes, rest: BinaryIO) -> BinaryIO:
    return io.BufferedReader(_Rejoined(head, rest), 1 << 20)  # type: ignore[type-var]
