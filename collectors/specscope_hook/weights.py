"""Number and bytes of a model's weights, from its files' headers."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_BITS = {"F64": 64, "I64": 64, "U64": 64, "F32": 32, "I32": 32, "U32": 32}
_BITS |= {"BF16": 16, "F16": 16, "I16": 16, "U16": 16, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}
_LARGEST_HEADER = 100 << 20  # the format's own limit


@dataclass(frozen=True, slots=True)
class Weights:
    """Stored elements and their bytes. If an element packs several weights, the count is too small
    and the bytes per weight too large; their product is still right."""

    count: int
    size: int


def weights_of(directory: Path) -> Weights | None:
    """Weights of all safetensors files in a directory; None without files, or if one is
    unreadable."""
    count = bits = 0
    files = sorted(directory.glob("*.safetensors"))
    try:
        for file in files:
            for tensor in _header(file).values():
                elements = math.prod(tensor["shape"])
                count += elements
                bits += elements * _BITS.get(tensor["dtype"], 8)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Weights(count, bits // 8) if count else None


def _header(file: Path) -> dict[str, dict[str, Any]]:
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        if length > _LARGEST_HEADER:
            raise ValueError(f"{file} is no safetensors file")
        header = json.loads(opened.read(length))
    header.pop("__metadata__", None)
    return header  # type: ignore[no-any-return]
