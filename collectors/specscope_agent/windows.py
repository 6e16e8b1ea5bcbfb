"""Device samples that enclose a round's start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Window(NamedTuple):
    """Mean over one device sample: share of time that the memory of a boot's devices was busy."""

    began_at: int  # ns since 1970
    ended_at: int
    dram_active: float


def enclosing(
    windows: Sequence[Window], started_at: NDArray[np.int64]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """`dram_active` and `dram_window_ms` by round, [R]; nan if no window has closed yet.

    windows: in the order of time, without overlaps
    """
    count = len(started_at)
    share, length = np.full(count, np.nan, np.float32), np.full(count, np.nan, np.float32)
    if windows:
        began, ended = (np.array([w[side] for w in windows], np.int64) for side in (0, 1))
        index = np.searchsorted(began, started_at, side="right") - 1
        inside = (index >= 0) & (started_at < ended[index])
        chosen = index[inside]
        share[inside] = np.array([w.dram_active for w in windows])[chosen]
        length[inside] = (ended - began)[chosen] / 1e6
    return share, length
