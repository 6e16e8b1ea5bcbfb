"""Messages of a stream with a check at their end: HTTP/2 has none, and TCP's misses flipped bits.

A message without a check, of an earlier version, passes.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

_CHECK_BYTES = 5  # a tag and 32 bits


def sealed(message: Any) -> bytes:
    """A FromAgent or FromService as bytes that end with their check."""
    body: bytes = message.SerializeToString()
    check: bytes = type(message)(check=crc32(body)).SerializeToString()
    return body + check


def intact(message: Any, raw: bytes) -> bool:
    """Whether a message that was read from these bytes matches its check, if it carries one."""
    if not message.HasField("check"):
        return True
    return bool(message.check == crc32(memoryview(raw)[:-_CHECK_BYTES]))
