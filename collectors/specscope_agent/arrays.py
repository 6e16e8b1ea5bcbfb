"""Convert numpy to Arrow, with unknown values as null."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from specscope_hook.columns import End, TimingSource

NO_ARM = 255
TIME = pa.timestamp("ns", "UTC")
ENDS = pa.array([end.name.lower() for end in End])
TIMING_SOURCES = pa.array([source.name.lower() for source in TimingSource])


@dataclass(frozen=True, slots=True)
class Names:
    """The ring's dictionaries as lookups of 256 entries; an unnamed class is `other`."""

    classes: pa.Array
    arms: pa.Array
    adapters: pa.Array

    @classmethod
    def of(
        cls, classes: Mapping[int, str], arms: Mapping[int, str], adapters: Mapping[int, str]
    ) -> Self:
        return cls(
            pa.array([classes.get(index, "other") for index in range(256)]),
            pa.array([arms.get(index) for index in range(256)], pa.string()),
            pa.array([adapters.get(index) for index in range(256)], pa.string()),
        )


def known(values: NDArray[Any], unknown: NDArray[np.bool_]) -> pa.Array:
    return pa.array(values, mask=unknown)


def finite(values: NDArray[Any]) -> pa.Array:
    """NaN as null."""
    return pa.array(values, mask=np.isnan(values))


def instants(values: NDArray[np.int64], unknown: NDArray[np.bool_] | None = None) -> pa.Array:
    """Nanoseconds since 1970 as timestamps in UTC."""
    return pa.array(np.ascontiguousarray(values).view("M8[ns]"), TIME, mask=unknown)


def looked_up(names: pa.Array, codes: NDArray[Any]) -> pa.Array:
    """Names by code; null if the code is outside the lookup."""
    outside = codes >= len(names)
    return names.take(pa.array(np.where(outside, 0, codes), mask=outside))


def lists(starts: NDArray[np.int64], values: Any, kind: Any = None) -> pa.Array:
    """A list column: row i holds values[starts[i]:starts[i + 1]], as numpy's `kind`."""
    flat = values if isinstance(values, pa.Array) else pa.array(values.astype(kind or values.dtype))
    return pa.ListArray.from_arrays(pa.array(starts.astype(np.int32)), flat)


def totals(starts: NDArray[np.int64], values: NDArray[Any]) -> NDArray[np.int64]:
    """Sum of values[starts[i]:starts[i + 1]] for each i; 0 over nothing."""
    out = np.zeros(len(starts) - 1, np.int64)
    filled = starts[1:] > starts[:-1]
    if filled.any():
        out[filled] = np.add.reduceat(values, starts[:-1][filled], dtype=np.int64)
    return out


def largest(starts: NDArray[np.int64], values: NDArray[Any]) -> NDArray[Any]:
    """Largest of values[starts[i]:starts[i + 1]] for each i; 0 over nothing."""
    out = np.zeros(len(starts) - 1, values.dtype)
    filled = starts[1:] > starts[:-1]
    if filled.any():
        out[filled] = np.maximum.reduceat(values, starts[:-1][filled])
    return out
