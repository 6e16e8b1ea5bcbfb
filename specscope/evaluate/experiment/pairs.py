"""Pairs of blocks: the unit of inference.

A pair that is not comparable is dropped and counted with its reason (`checks`), never repaired.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from math import isfinite
from typing import Any

from specscope.evaluate.experiment.blocks import BlockPart, BlockTime, Design, OfBlock, merge_blocks
from specscope.evaluate.experiment.segments import Mix, Segment, segments_of

PairKey = tuple[str, int, str, str, int]


def pair_key(row: OfBlock) -> PairKey:
    """The key that the blocks of one pair share."""
    return row.epoch, row.policy, row.replica, row.boot, row.pair


@dataclass(frozen=True, slots=True)
class Pair:
    """The blocks of one pair by arm, their traffic, and the offered load of the pair."""

    key: PairKey
    blocks: Mapping[str, BlockTime]
    parts: Mapping[str, tuple[BlockPart, ...]]
    segment: Segment
    offered: float | None = None


def pairs_of(
    blocks: Iterable[BlockTime], parts: Iterable[BlockPart], design: Design = "cohort"
) -> list[Pair]:
    """Group block rows into pairs, in the order of their keys.

    A repeated row counts once; rows of one block (split over deliveries) are added. Blocks without
    time or tokens, and blocks outside an experiment (pair 0 of policy 0), are dropped. design:
    defines the load of a pair.
    """
    times: dict[PairKey, dict[str, list[BlockTime]]] = defaultdict(lambda: defaultdict(list))
    for block in dict.fromkeys(known(block) for block in blocks):
        if block.arm and (block.policy or block.pair):
            times[pair_key(block)][block.arm].append(block)
    kinds: dict[PairKey, dict[str, list[BlockPart]]] = defaultdict(lambda: defaultdict(list))
    for part in dict.fromkeys(parts):
        kinds[pair_key(part)][part.arm].append(part)
    merged_pairs = []
    for key in sorted(times):
        merged = {arm: merge_blocks(rows) for arm, rows in sorted(times[key].items())}
        whole = {arm: block for arm, block in merged.items() if measured(block)}
        if whole:
            merged_pairs.append(
                (key, whole, {arm: tuple(kinds[key].get(arm, ())) for arm in whole})
            )
    placed = segments_of([Mix(key[0], whole, rows) for key, whole, rows in merged_pairs], design)
    return [
        Pair(*one, place.segment, place.offered)
        for one, place in zip(merged_pairs, placed, strict=True)
    ]


def known(block: BlockTime) -> BlockTime:
    """Replace every time of a block that is not a number by None."""
    odd: dict[str, Any] = {
        name: None
        for name in _TIMES
        if (time := getattr(block, name)) is not None and not isfinite(time)
    }
    return replace(block, **odd) if odd else block


def measured(block: BlockTime) -> bool:
    """Whether a block has valid time and tokens; a store may hold NULL or invalid values."""
    wall = block.wall_us
    return wall is not None and isfinite(wall) and wall >= _SHORTEST_US and block.emitted > 0


_TIMES = tuple(field.name for field in fields(BlockTime) if field.name.endswith("_us"))

# No block of a real engine is over within a nanosecond.
_SHORTEST_US = 1e-3
