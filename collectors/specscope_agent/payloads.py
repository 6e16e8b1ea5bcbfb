"""Ring payloads as numpy arrays: scalars in one structured array, sequences in flat ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specscope_hook.columns import Column, columns
from specscope_hook.records import RingRequest, RingRound
from specscope_hook.ring import REQUEST, ROUND, RawRecord

_CODES = {
    "u8": "<u1",
    "u16": "<u2",
    "u32": "<u4",
    "u64": "<u8",
    "f32": "<f4",
    "f64": "<f8",
    "time": "<i8",
}


def _dtype(fields: Sequence[Column]) -> np.dtype[Any]:
    return np.dtype([(column.name, _CODES[column.base]) for column in fields])


ROUND_SCALARS = _dtype([c for c in columns(RingRound) if not c.repeated])
SEQUENCE_FIELDS = {c.name: np.dtype(_CODES[c.base]) for c in columns(RingRound) if c.repeated}
SEQUENCE_BYTES = sum(kind.itemsize for kind in SEQUENCE_FIELDS.values())
REQUEST_SCALARS = _dtype(columns(RingRequest))


@dataclass(frozen=True, slots=True)
class Rounds:
    """R rounds of N sequences in all, in the order of their record numbers.

    seq:       [R] record numbers
    scalars:   [R] structured, the scalar columns of RingRound
    batch:     [R] sequences of each round
    starts:    [R + 1] where each round's sequences begin in the flat arrays
    row:       [N] round of each sequence
    sequences: [N] each, the array columns of RingRound
    """

    seq: NDArray[np.uint64]
    scalars: NDArray[Any]
    batch: NDArray[np.int64]
    starts: NDArray[np.int64]
    row: NDArray[np.int64]
    sequences: dict[str, NDArray[Any]]


def fits(record: RawRecord) -> bool:
    """Whether the payload is as long as its kind and batch say."""
    if record.kind == ROUND:
        expected = ROUND_SCALARS.itemsize + record.batch * SEQUENCE_BYTES
    else:
        expected = REQUEST_SCALARS.itemsize
    return record.kind in (ROUND, REQUEST) and len(record.payload) == expected


def read_rounds(records: Sequence[RawRecord]) -> Rounds:
    """Rounds from ring records of kind ROUND, all of which `fits`."""
    payloads = [record.payload for record in records]
    width = ROUND_SCALARS.itemsize
    scalars = np.frombuffer(b"".join([p[:width] for p in payloads]), ROUND_SCALARS)
    batch = np.array([record.batch for record in records], np.int64)
    starts = np.concatenate([[0], np.cumsum(batch)])
    sequences, offset = {}, 0
    for name, kind in SEQUENCE_FIELDS.items():
        end = offset + kind.itemsize
        # One array after another within a payload, each as long as the batch.
        parts = [
            p[width + offset * n : width + end * n]
            for p, n in zip(payloads, batch.tolist(), strict=True)
        ]
        sequences[name] = np.frombuffer(b"".join(parts), kind)
        offset = end
    return Rounds(
        seq=np.array([record.seq for record in records], np.uint64),
        scalars=scalars,
        batch=batch,
        starts=starts,
        row=np.repeat(np.arange(len(batch)), batch),
        sequences=sequences,
    )


def read_requests(records: Sequence[RawRecord]) -> tuple[NDArray[np.uint64], NDArray[Any]]:
    """Record numbers [M] and values [M], structured, from records of kind REQUEST."""
    seq = np.array([record.seq for record in records], np.uint64)
    return seq, np.frombuffer(b"".join([r.payload for r in records]), REQUEST_SCALARS)
