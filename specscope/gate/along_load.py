"""Cells of one kind of traffic, side by side over rising load."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from specscope.gate.rules import Move


def look_along_load(moves: Sequence[Move]) -> tuple[list[Move], list[str]]:
    """Make the draft lengths consistent over rising batch: one range with speculation, no growth.

    If a draft gets longer as the load rises, it is shortened to its neighbour's length if that one
    is among the best there. Otherwise it stays as measured, with a flag.
    """
    kinds: dict[tuple[str | None, ...], list[int]] = defaultdict(list)
    for index, move in enumerate(moves):
        segment = move.place.verdict.segment
        kinds[segment.class_, segment.context, segment.output].append(index)
    looked, flags = list(moves), []
    for indices in kinds.values():
        for low, high in pairwise(indices):
            left, right = looked[low], looked[high]
            if left.table is None and right.table is None and 0 < left.new_k < right.new_k:
                if f"k{left.new_k}" in right.place.verdict.best and right.changes:
                    why = (
                        f"{right.why}; k = {left.new_k}, as at the lower load, is not proven worse"
                    )
                    looked[high] = Move(
                        right.place, right.rule, right.old_k, left.new_k, why, right.evidence
                    )
                else:
                    flags.append(_flag(left, right, "drafts grow with the load"))
        on = [_speculates(looked[index]) for index in indices]
        if _stretches(on) > 1:
            flags.append(
                _flag(
                    looked[indices[0]], looked[indices[-1]], "speculation is on, off, and on again"
                )
            )
    return looked, flags


def _speculates(move: Move) -> bool:
    return move.new_k > 0 if move.table is None else move.table.k_max > 0


def _flag(left: Move, right: Move, what: str) -> str:
    segment = left.place.verdict.segment
    return (
        f"NON_MONOTONE {segment.class_ or 'all classes'}: {what} "
        f"(batch {left.place.batch:.0f} to {right.place.batch:.0f})"
    )


def _stretches(on: Sequence[bool]) -> int:
    return sum(now and not before for before, now in zip([False, *on], on, strict=False))
