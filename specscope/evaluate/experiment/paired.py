"""The blocks of one experiment as pairs, grouped once for all judgements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from specscope.evaluate.experiment.blocks import BlockPart, BlockTime, Design
from specscope.evaluate.experiment.checks import Usable, usable_pairs
from specscope.evaluate.experiment.loads import by_segment
from specscope.evaluate.experiment.pairs import Pair, pairs_of
from specscope.evaluate.experiment.segments import Segment

SegmentKey = tuple[str, Segment]
"""An epoch and a segment: evidence crosses neither."""


@dataclass(frozen=True, slots=True)
class Paired:
    """The pairs of an experiment.

    pairs: all pairs, in the order of their keys. segments: the same pairs, by epoch and segment.
    usable: the comparable pairs of each segment.
    """

    design: Design
    pairs: Sequence[Pair]
    segments: Mapping[SegmentKey, Sequence[Pair]]
    usable: Mapping[SegmentKey, Usable]


def paired(
    blocks: Iterable[BlockTime], parts: Iterable[BlockPart], design: Design = "cohort"
) -> Paired:
    """Group blocks into pairs and segments.

    The order of rows does not matter; a repeated row counts once.
    """
    pairs = pairs_of(blocks, parts, design)
    segments = by_segment(pairs, design)
    usable = {key: usable_pairs(members, design) for key, members in segments.items()}
    return Paired(design, pairs, segments, usable)
