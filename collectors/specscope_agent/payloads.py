"""Ring payloads as numpy arrays: scalars in one structured array, sequences in flat ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specscope_hook.columns import Column
from specscope_hook.payload import unknown_value
from specscope_hook.ring import REQUEST, ROUND, RawRecord
from specscope_hook.ring_records import LAYOUT, RecordLayout

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
    return np.dtype([(c.name, _CODES[c.base]) for c in fields if not c.repeated])


ROUND_SCALARS, REQUEST_SCALARS = _dtype(LAYOUT.round), _dtype(LAYOUT.request)


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


class Payloads:
    """Read the payloads of one ring by the layout in its header.

    A column that this version does not know is dropped. A column that the ring lacks is unknown:
    NaN, or the largest value of its type.
    """

    def __init__(self, layout: RecordLayout) -> None:
        self._round, self._request = _dtype(layout.round), _dtype(layout.request)
        self._arrays = {c.name: np.dtype(_CODES[c.base]) for c in layout.round if c.repeated}
        self._sequence_bytes = sum(kind.itemsize for kind in self._arrays.values())

    def fits(self, record: RawRecord) -> bool:
        """Whether the payload's length fits its kind and batch."""
        if record.kind == ROUND:
            expected = self._round.itemsize + record.batch * self._sequence_bytes
        else:
            expected = self._request.itemsize
        return record.kind in (ROUND, REQUEST) and len(record.payload) == expected

    def rounds(self, records: Sequence[RawRecord]) -> Rounds:
        """Rounds from ring records of kind ROUND, all of which `fits`."""
        payloads = [record.payload for record in records]
        width = self._round.itemsize
        scalars = np.frombuffer(b"".join([p[:width] for p in payloads]), self._round)
        batch = np.array([record.batch for record in records], np.int64)
        starts = np.concatenate([[0], np.cumsum(batch)])
        sequences, offset = {}, 0
        for name, kind in self._arrays.items():
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
            scalars=_completed(scalars, LAYOUT.round, ROUND_SCALARS),
            batch=batch,
            starts=starts,
            row=np.repeat(np.arange(len(batch)), batch),
            sequences=_completed_arrays(sequences, int(starts[-1])),
        )

    def requests(self, records: Sequence[RawRecord]) -> tuple[NDArray[np.uint64], NDArray[Any]]:
        """Record numbers [M] and values [M], structured, from records of kind REQUEST."""
        seq = np.array([record.seq for record in records], np.uint64)
        values = np.frombuffer(b"".join([r.payload for r in records]), self._request)
        return seq, _completed(values, LAYOUT.request, REQUEST_SCALARS)


def _completed(values: NDArray[Any], wanted: Sequence[Column], kind: np.dtype[Any]) -> NDArray[Any]:
    """The values with exactly the columns of this version."""
    if values.dtype == kind:
        return values
    names = values.dtype.names or ()
    whole = np.empty(len(values), kind)
    for column in wanted:
        if not column.repeated:
            missing = column.name not in names
            whole[column.name] = unknown_value(column) if missing else values[column.name]
    return whole


def _completed_arrays(sequences: Mapping[str, NDArray[Any]], count: int) -> dict[str, NDArray[Any]]:
    """Arrays over the sequences with exactly the columns of this version; `verified` counts tokens,
    at most k."""
    whole = {
        c.name: sequences[c.name]
        if c.name in sequences
        else np.full(count, unknown_value(c), _CODES[c.base])
        for c in LAYOUT.round
        if c.repeated
    }
    whole["verified"] = np.minimum(whole["verified"], whole["k"])
    return whole
