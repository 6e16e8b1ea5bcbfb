"""Map a verdict from the traffic of its pairs to a cell of the table.

A verdict has an offered load; a gate sees the current batch. The loads of one kind of traffic are
ordered by their mean batch at k = 0. The boundary between neighbours is the geometric mean of their
batches. Cells with speculation end at the largest measured batch. That is twice the mean, and in a
cohort, which starts full, all of its requests.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from specscope.assess import state_of
from specscope.evaluate.experiment.blocks import Design
from specscope.evaluate.experiment.summary import base_batch
from specscope.evaluate.verdict.verdict import Verdict
from specscope.policy.table import Cell, Limits, State, range_of
from specscope.store.buckets import CONTEXT, OUTPUT

BEYOND_MEASURED = 2.0


@dataclass(frozen=True, slots=True)
class Place:
    """A verdict with its cell (k still open) and a state inside the cell.

    batch: mean batch at k = 0. largest: largest batch at which speculation may run.
    """

    verdict: Verdict
    cell: Cell
    state: State
    batch: float
    largest: int

    def with_k(self, k: int) -> Cell:
        """The cell with a draft length; it covers batches above the measured ones only if k is
        0."""
        cell = replace(self.cell, k=k)
        if k and cell.batch is not None and cell.batch[1] is None:
            return replace(cell, batch=(cell.batch[0], max(self.largest, cell.batch[0]) + 1))
        return cell


def lay_out(verdicts: Sequence[Verdict], design: Design = "cohort") -> list[Place]:
    """A place for every verdict, grouped by kind of traffic, by rising batch."""
    kinds: dict[tuple[str | None, str | None, str | None], list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        kinds[verdict.segment.class_, verdict.segment.context, verdict.segment.output].append(
            verdict
        )
    places = []
    # Classes before what holds for every class: the first match wins.
    for key in sorted(kinds, key=lambda kind: (kind[0] is None, *(part or "" for part in kind))):
        group = sorted(kinds[key], key=_batch)
        for verdict, limits in zip(group, _split([_batch(v) for v in group]), strict=True):
            places.append(_place(verdict, limits, design))
    return places


def _place(verdict: Verdict, batch: Limits, design: Design) -> Place:
    segment = verdict.segment
    context, output = range_of(CONTEXT, segment.context), range_of(OUTPUT, segment.output)
    middle = max(batch[0], round(_batch(verdict)))
    return Place(
        verdict=verdict,
        cell=Cell(0, segment.class_, context, output, batch),
        state=state_of(segment, middle),
        batch=_batch(verdict),
        largest=_largest(verdict, design),
    )


def _split(batches: Sequence[float]) -> list[Limits]:
    """Adjacent ranges [low, high) of the batch that cover all batches."""
    cuts = [
        max(index + 2, math.ceil(math.sqrt(low * high)))
        for index, (low, high) in enumerate(pairwise(batches))
    ]
    for index in range(1, len(cuts)):
        cuts[index] = max(cuts[index], cuts[index - 1] + 1)
    lows = [0, *cuts]
    highs: list[int | None] = [*cuts, None]
    return list(zip(lows, highs, strict=True))


def _largest(verdict: Verdict, design: Design) -> int:
    twice = math.ceil(BEYOND_MEASURED * _batch(verdict))
    if design != "cohort" or not verdict.arms:
        return twice
    return max(twice, *(arm.requests // arm.blocks for arm in verdict.arms))


def _batch(verdict: Verdict) -> float:
    """Mean batch at k = 0, or of the first arm that ran; 1 without one."""
    return base_batch(verdict.arms)
