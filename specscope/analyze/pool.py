"""Totals from counts, and a bounded list of windows.

Engines and ranks are summed before any division. Each window is added once, to the bucket of its
series; a closed bucket goes into the totals and becomes one window of the list. A bucket holds one
window, and two, four, ... if the list gets too long. So a log of any size gives at most
`MOST_WINDOWS` windows per input, with exact totals.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from specscope.analyze.sums import Sums
from specscope.readers.records import GRAINS, Window
from specscope.readers.source import SEPARATOR

MOST_WINDOWS = 512
COUNTED, EXCLUDED, TARGET_ONLY = 0, 1, 2


@dataclass(slots=True)
class _Bucket:
    first: Window
    sums: Sums = field(default_factory=Sums)


class Pool:
    """The windows of one input."""

    def __init__(self) -> None:
        self.merged = False
        self._open: dict[tuple[object, ...], _Bucket] = {}
        self._closed: list[tuple[int, tuple[object, ...], Window]] = []
        self._totals: dict[tuple[str, int, str | None], Sums] = {}
        self._size = 1
        self._number = 0

    def add(self, window: Window) -> None:
        """Add one normalised window."""
        self._number += 1
        key = (
            window.engine,
            window.engine_index,
            window.label,
            window.grain,
            window.excluded,
            window.target_only,
            window.k,
        )
        if self._size == 1:
            self._closed.append((self._number, key, window))
            self._total(window).add(window)
            if len(self._closed) > MOST_WINDOWS:
                self._coarsen()
            return
        bucket = self._open.get(key)
        if bucket is None:
            if len(self._open) >= MOST_WINDOWS:  # series without end: totals only
                self._total(window).add(window)
                return
            bucket = self._open[key] = _Bucket(window)
        bucket.sums.add(window)
        if bucket.sums.count >= self._size:
            self._close(key)

    def windows(self) -> list[Window]:
        """Windows in reading order."""
        for key in list(self._open):
            self._close(key)
        return [window for _, _, window in sorted(self._closed, key=lambda entry: entry[0])]

    def totals(self) -> dict[tuple[str, int], Sums]:
        """Sums by grain and kind: counted, excluded from totals, or target-only.

        Runs of a benchmark are arms or workloads, so they are not summed.
        """
        for key in list(self._open):
            self._close(key)
        by_kind: dict[tuple[str, int], list[Sums]] = {}
        for (grain, kind, _), sums in self._totals.items():
            by_kind.setdefault((grain, kind), []).append(sums)
        return {key: found[0] for key, found in by_kind.items() if len(found) == 1}

    def runs(self) -> list[tuple[str, Sums]]:
        """The speculating runs of a benchmark, by label; empty for a single run."""
        self.totals()
        found = [
            (label or "", sums)
            for (_, kind, label), sums in self._totals.items()
            if kind == COUNTED and sums.speculated
        ]
        return found if len(found) > 1 else []

    def speculated(self) -> bool:
        """Whether the input shows that speculation ran."""
        self.totals()
        return any(sums.speculated for sums in self._totals.values())

    def best(self) -> Sums | None:
        """The sums of the best grain, preferring those with speculation."""
        totals = self.totals()
        for kind in (COUNTED, EXCLUDED):
            for grain in GRAINS:
                sums = totals.get((grain, kind))
                if sums and sums.speculated:
                    return sums
        if self.runs():
            return None
        return next((sums for (_, kind), sums in totals.items() if kind != EXCLUDED), None)

    def baseline(self) -> Sums | None:
        """The target-only sums of an input that also speculated; else None."""
        totals = self.totals()
        if not self.speculated():
            return None
        return next((sums for (_, kind), sums in totals.items() if kind == TARGET_ONLY), None)

    def _total(self, window: Window) -> Sums:
        excluded = window.excluded is not None
        kind = EXCLUDED if excluded else TARGET_ONLY if window.target_only else COUNTED
        label = window.label if window.grain == "run" else None
        key = (window.grain, kind, label)
        sums = self._totals.get(key)
        if sums is None:
            sums = self._totals[key] = Sums()
        return sums

    def _close(self, key: tuple[object, ...]) -> None:
        bucket = self._open.pop(key)
        self._total(bucket.first).merge(bucket.sums)
        pooled = replace(bucket.sums.window(bucket.first), start=bucket.first.start)
        self._closed.append((self._number, key, pooled))
        if len(self._closed) > MOST_WINDOWS:
            self._coarsen()

    def _coarsen(self) -> None:
        """Merge neighbours of each series; with too many series keep the latest windows."""
        self.merged = True
        self._size *= 2
        by_series: dict[tuple[object, ...], list[tuple[int, Window]]] = {}
        for number, key, window in self._closed:
            by_series.setdefault(key, []).append((number, window))
        self._closed = []
        for key, series in by_series.items():
            for place in range(0, len(series), 2):
                pair = series[place : place + 2]
                windows = [window for _, window in pair]
                self._closed.append((pair[0][0], key, merged(windows)))
        if len(self._closed) > MOST_WINDOWS * 3 // 4:
            self._closed.sort(key=lambda entry: entry[0])
            del self._closed[: -MOST_WINDOWS // 2]


def total(pools: dict[str, Pool]) -> tuple[Sums, list[str], list[str]]:
    """(sums over the inputs with the best grain of all, those inputs, those left out)."""
    best: dict[str, tuple[int, int]] = {}
    for input, pool in pools.items():
        for (grain, kind), sums in pool.totals().items():
            if sums.speculated:
                rank = (kind, GRAINS.index(grain))
                best[input] = min(best.get(input, rank), rank)
    result = Sums()
    if not best and not any(pool.runs() for pool in pools.values()):
        for pool in pools.values():
            for (_, kind), sums in pool.totals().items():
                if kind != EXCLUDED:
                    result.merge(sums)
        return result, [], []
    if not best:
        return result, [], []
    top = min(best.values())
    used = [input for input, rank in best.items() if rank == top]
    if len(used) > 1 and (GRAINS[top[1]] == "run" or any(SEPARATOR in input for input in used)):
        return result, [], []  # runs, and blocks of one document, are arms or deployments
    for input in used:
        result.merge(pools[input].totals()[GRAINS[top[1]], top[0]])
    return result, used, [input for input in best if input not in used]


def merged(windows: Iterable[Window]) -> Window:
    """Neighbouring windows as one."""
    first, *rest = windows
    if not rest:
        return first
    sums = Sums()
    for window in (first, *rest):
        sums.add(window)
    return replace(sums.window(first), start=first.start)
