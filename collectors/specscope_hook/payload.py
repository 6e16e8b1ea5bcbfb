"""A record's bytes on the ring, derived from its columns.

Little-endian, no padding: the scalars in declared order, then the arrays in declared order,
each as long as the record's batch.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Any

from specscope_hook.columns import Column, columns
from specscope_hook.errors import CorruptRing
from specscope_hook.layout import ROUND, RawRecord
from specscope_hook.ring_records import LAYOUT, RecordLayout, RingRequest, RingRound

CODES = {
    "u8": "B",
    "u16": "H",
    "u32": "I",
    "u64": "Q",
    "i16": "h",
    "i64": "q",
    "f32": "f",
    "f64": "d",
    "time": "q",
}
"""struct code of each column type that crosses the ring."""


def _struct(layout: Sequence[Column]) -> Struct:
    return Struct("<" + "".join(CODES[column.base] for column in layout if not column.repeated))


ROUND_SCALARS = _struct(LAYOUT.round)
ROUND_ARRAYS = tuple(CODES[column.base] for column in LAYOUT.round if column.repeated)
_CONVERSIONS = tuple((code, Struct("<" + code).size) for code in ROUND_ARRAYS)
ROUND_SEQUENCE_BYTES = sum(Struct("<" + code).size for code in ROUND_ARRAYS)
REQUEST = _struct(LAYOUT.request)
ALL_VERIFIED = 255  # the value of `verified` that stands for the whole draft


@lru_cache(maxsize=4096)
def round_struct(batch: int) -> Struct:
    """The struct of a round's payload with this number of sequences."""
    return Struct(ROUND_SCALARS.format + "".join(f"{batch}{code}" for code in ROUND_ARRAYS))


_SMALL_BATCH = 16  # up to here one pack of all values is cheaper than a conversion of each array
_pack_scalars = ROUND_SCALARS.pack
pack_single = round_struct(1).pack
"""All values of a round of one sequence, flat."""


def round_payload(arrays: tuple[Any, ...], *scalars: Any) -> bytes:
    """The payload of a round, all in declared order. HOT PATH.

    arrays: lists, or objects with `itemsize` and `tobytes` of the declared type.

    Raises ValueError for unequal lengths; struct.error, ValueError, OverflowError or TypeError for
    a value that does not fit.
    """
    batch = len(arrays[0])
    if batch <= _SMALL_BATCH:
        r, c, d, k, a, e, f, v = arrays
        return round_struct(batch).pack(*scalars, *r, *c, *d, *k, *a, *e, *f, *v)
    parts = [_pack_scalars(*scalars)]
    for (code, size), values in zip(_CONVERSIONS, arrays, strict=True):
        if size == 1:
            parts.append(bytes(values))
        elif getattr(values, "itemsize", 0) == size:
            parts.append(values.tobytes())
        else:
            parts.append(array(code, values).tobytes())
    payload = b"".join(parts)
    if len(payload) != ROUND_SCALARS.size + batch * ROUND_SEQUENCE_BYTES:
        raise ValueError("a round's arrays differ in length")
    return payload


def decode(record: RawRecord, layout: RecordLayout = LAYOUT) -> RingRound | RingRequest:
    """Decode the record of a payload.

    layout: layout of its ring. A column that the ring lacks is unknown.

    Raises CorruptRing if the length does not fit the kind and batch.
    """
    kind: type[RingRound | RingRequest] = RingRound if record.kind == ROUND else RingRequest
    declared = layout.round if kind is RingRound else layout.request
    bytes_layout, size = _whole_struct(declared, record.batch), len(record.payload)
    if bytes_layout.size != size:
        raise CorruptRing(f"{kind.__name__} of {size} bytes, not {bytes_layout.size}")
    values = _named(declared, bytes_layout.unpack(record.payload), record.batch)
    whole: dict[str, Any] = {c.name: _unknown(c, record.batch) for c in columns(kind)}
    whole.update({name: value for name, value in values.items() if name in whole})
    return kind(**whole)


@lru_cache(maxsize=4096)
def _whole_struct(declared: tuple[Column, ...], batch: int) -> Struct:
    return Struct("<" + "".join(f"{batch if c.repeated else ''}{CODES[c.base]}" for c in declared))


def unknown_value(column: Column) -> float | int:
    """The ring's value for unknown."""
    if column.base in ("f32", "f64"):
        return math.nan
    return int(2 ** (8 * Struct(CODES[column.base]).size) - 1)


def _unknown(column: Column, batch: int) -> Any:
    value = unknown_value(column)
    return [value] * batch if column.repeated else value


def _named(declared: Sequence[Column], values: tuple[Any, ...], batch: int) -> dict[str, Any]:
    """Values by column; arrays are declared after all scalars, as in their layout."""
    named: dict[str, Any] = {}
    place = 0
    for column in declared:
        step = batch if column.repeated else 1
        named[column.name] = (
            list(values[place : place + step]) if column.repeated else values[place]
        )
        place += step
    return named
