"""Totals from counts, and a bounded list of windows.

Engines and ranks are summed before anything is divided. A log of any size leaves at most
`MOST_WINDOWS` windows per input: when there are more, neighbours of one series are merged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from specscope.analyze.sums import Sums
from specscope.readers.records import GRAINS, Window

MOST_WINDOWS = 512


class Windows:
    """The windows of one input, in the order read."""

    def __init__(self) -> None:
        self.merged = False
        self._series: dict[tuple[object, ...], list[tuple[int, Window]]] = defaultdict(list)
        self._count = self._seen = 0

    def add(self, window: Window) -> None:
        """Keep a window; halve the longest series when there are too many."""
        key = (
            window.engine,
            window.engine_index,
            window.label,
            window.grain,
            window.excluded,
            window.k,
        )
        self._series[key].append((self._seen, window))
        self._count += 1
        self._seen += 1
        if self._count > MOST_WINDOWS:
            self._halve()

    def all(self) -> list[Window]:
        """In the order read."""
        numbered = [pair for series in self._series.values() for pair in series]
        return [window for _, window in sorted(numbered, key=lambda pair: pair[0])]

    def _halve(self) -> None:
        key = max(self._series, key=lambda k: len(self._series[k]))
        series = self._series[key]
        if len(series) < 2:  # as many series as windows: the rest is in the totals only
            self._series.pop(key)
            self._count -= 1
            self.merged = True
            return
        pairs = [series[i : i + 2] for i in range(0, len(series), 2)]
        self._series[key] = [(pair[0][0], merged([window for _, window in pair])) for pair in pairs]
        self._count += len(pairs) - len(series)
        self.merged = True


class Pools:
    """Sums per input and grain; what totals leave out is kept apart."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str, bool], Sums] = {}

    def add(self, window: Window) -> None:
        key = (window.input, window.grain, window.excluded is not None)
        sums = self._sums.get(key)
        if sums is None:
            sums = self._sums[key] = Sums()
        sums.add(window)

    def of_input(self, input: str) -> Sums | None:
        """The best grain's sums of one input, preferring those that speak of speculation."""
        for excluded in (False, True):
            for grain in GRAINS:
                sums = self._sums.get((input, grain, excluded))
                if sums and sums.speculated:
                    return sums
        return next((s for (i, _, out), s in self._sums.items() if i == input and not out), None)

    def total(self, inputs: Iterable[str]) -> tuple[Sums, list[str], list[str]]:
        """(sums over the inputs with the best grain of all, those inputs, those left out)."""
        best: dict[str, tuple[int, int]] = {}
        for (input, grain, excluded), sums in self._sums.items():
            if sums.speculated:
                rank = (int(excluded), GRAINS.index(grain))
                best[input] = min(best.get(input, rank), rank)
        total = Sums()
        if not best:
            for (_, _, excluded), sums in self._sums.items():
                if not excluded:
                    total.merge(sums)
            return total, [], []
        top = min(best.values())
        used, left = [], []
        for input in inputs:
            if input not in best:
                continue
            rank = best[input]
            if rank == top:
                total.merge(self._sums[input, GRAINS[rank[1]], bool(rank[0])])
                used.append(input)
            else:
                left.append(input)
        return total, used, left


def merged(windows: list[Window]) -> Window:
    """Neighbouring windows as one."""
    if len(windows) == 1:
        return windows[0]
    sums = Sums()
    for window in windows:
        sums.add(window)
    return replace(sums.window(windows[0]), start=windows[0].start)
