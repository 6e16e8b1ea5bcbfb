"""One number that stands for an output text."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b


def token_digest(token_ids: Iterable[int]) -> int:
    """64-bit digest of output token ids: equal texts, equal digests; never 0."""
    text = ",".join(map(str, token_ids)).encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little") or 1
