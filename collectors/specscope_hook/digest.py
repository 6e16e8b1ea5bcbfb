"""A digest of an output."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import blake2b


def token_digest(token_ids: Sequence[int]) -> int:
    """64-bit digest of output token ids: equal texts, equal digests; never 0."""
    raw = blake2b(token_bytes(token_ids), digest_size=8).digest()
    return int.from_bytes(raw, "little") or 1


def token_bytes(token_ids: Sequence[int]) -> bytes:
    """Token ids as bytes. Called once per request, so it is written for speed."""
    try:
        return array("I", token_ids).tobytes()
    except OverflowError:  # placeholders below 0
        return array("q", token_ids).tobytes()
