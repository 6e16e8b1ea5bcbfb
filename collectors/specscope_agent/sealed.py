"""Stream messages with a checksum at their end: HTTP/2 has none, and TCP's misses flipped bits.

A message without a checksum, from an earlier version, passes.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

_CHECK_BYTES = 5  # a tag and 32 bits


def sealed(message: Any) -> bytes:
    """Serialise a FromAgent or FromService with a checksum at its end."""
    body: bytes = message.SerializeToString()
    check: bytes = type(message)(check=crc32(body)).SerializeToString()
    return body + check


def intact(message: Any, raw: bytes) -> bool:
    """Whether the bytes of a message match its checksum, if it has one."""
    if not message.HasField("check"):
        return True
    return bool(message.check == crc32(memoryview(raw)[:-_CHECK_BYTES]))
