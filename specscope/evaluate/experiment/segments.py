"""Segments: which pairs of blocks are about the same traffic.

What places a pair, such as the requests that it was offered, is a sample of its traffic. Near an
edge between two buckets chance alone would split one traffic into two thin segments. So a pair
whose number lies within the noise of an edge goes with the more numerous side. The noise is what
blocks of one pair differ by: nothing where a driver gives each the same requests.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from specscope.evaluate.experiment.blocks import BlockPart, BlockTime


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """Traffic that a verdict is about. None: more than one kind ran together.

    load: requests offered per block of the pair, as a bucket, and never the realised batch of
    open traffic, which the arm itself changes; in a closed loop the clients asking at once.
    """

    class_: str | None = None
    context: str | None = None
    output: str | None = None
    load: str | None = None

    def __str__(self) -> str:
        named = [self.class_ or "all classes"]
        named += [text for text in (self.context, self.output) if text]
        return " ".join(named) + (f" at load {self.load}" if self.load else "")


_EDGES = (1.0, 4.0, 16.0, 64.0, 256.0)  # inclusive
_LOADS = ("1", "2-4", "5-16", "17-64", "65-256", "257+")
# A pair belongs to a bucket when this share of its request-rounds does.
_NEARLY_ALL = 0.9
_NOISE = 2.0  # standard deviations within which a number does not tell the side of an edge


@dataclass(frozen=True, slots=True)
class Mix:
    """What a pair served, by its arms' rows. All of one epoch."""

    epoch: str
    blocks: Mapping[str, BlockTime]
    parts: Mapping[str, Sequence[BlockPart]]


def load_bucket(requests: float) -> str:
    """Bucket of the requests offered in a block."""
    return _LOADS[bisect_left(_EDGES, requests)]


def segments_of(mixes: Sequence[Mix], closed_loop: bool = False) -> list[Segment]:
    """The segment of each pair, in the order given; it depends on the set of pairs alone.

    closed_loop: a faster arm is asked more; how many ask at once is the clients' to say, or the
    slots'.
    """
    classes = _classes(mixes)
    traffic = [(mix.epoch, names) for mix, names in zip(mixes, classes, strict=True)]
    contexts = _shared(mixes, traffic, "context_bucket")
    outputs = _shared(mixes, traffic, "output_bucket")
    kinds = list(zip(traffic, contexts, outputs, strict=True))
    loads = _loads(mixes, kinds, closed_loop)
    return [
        Segment(names[0] if len(names) == 1 else None, context, output, load)
        for names, context, output, load in zip(classes, contexts, outputs, loads, strict=True)
    ]


def _classes(mixes: Sequence[Mix]) -> list[tuple[str, ...]]:
    """The classes of each pair's traffic.

    On a replica whose blocks mix classes, a block that happened to hold one class is no traffic of
    its own: all its pairs are of the classes that have nearly all of its request-rounds. A replica
    on which no block mixes them ran them apart by design.
    """
    own = [
        tuple(sorted({name for block in mix.blocks.values() for name in block.classes}))
        for mix in mixes
    ]
    sources = [_source(mix) for mix in mixes]
    found = list(own)
    for members in _groups(sources):
        if all(len(own[i]) < 2 for i in members):
            continue
        shared = _nearly_all([mixes[i] for i in members])
        for i in members:
            found[i] = shared or own[i]
    return found


def _source(mix: Mix) -> Hashable:
    block = next(iter(mix.blocks.values()))
    return mix.epoch, block.policy, block.replica


def _nearly_all(mixes: Sequence[Mix]) -> tuple[str, ...]:
    """The one class of nearly all request-rounds, else every class; empty if no part tells."""
    weights: Counter[str] = Counter()
    for mix in mixes:
        for rows in mix.parts.values():
            for part in rows:
                weights[part.class_] += part.request_rounds
    if not weights:
        return tuple(sorted({n for m in mixes for b in m.blocks.values() for n in b.classes}))
    name, most = max(sorted(weights.items()), key=lambda item: item[1])
    return (name,) if most >= _NEARLY_ALL * weights.total() else tuple(sorted(weights))


def _loads(mixes: Sequence[Mix], kinds: Sequence[Hashable], closed_loop: bool) -> list[str]:
    found = [""] * len(mixes)
    for members in _groups(kinds):
        offered = [[_offered(b, closed_loop) for b in mixes[i].blocks.values()] for i in members]
        values = [_offered_to_pair(mixes[i], closed_loop) for i in members]
        # Counts spread with their size, by more than chance where arrivals come in bursts.
        means = [math.fsum(row) / len(row) for row in offered]
        scaled = [
            [(n - mean) / math.sqrt(mean) if mean else 0.0 for n in row]
            for row, mean in zip(offered, means, strict=True)
        ]
        spread = _spread(scaled)
        noise = [
            spread * math.sqrt(mean / len(row)) for row, mean in zip(offered, means, strict=True)
        ]
        for i, place in zip(members, _settled(values, noise, _EDGES), strict=True):
            found[i] = _LOADS[place]
    return found


def _offered(block: BlockTime, closed_loop: bool) -> float:
    if closed_loop:
        return block.request_rounds / max(1, block.rounds)
    return block.requests / block.merged


def _offered_to_pair(mix: Mix, closed_loop: bool) -> float:
    blocks = mix.blocks.values()
    if closed_loop:
        rounds = sum(block.rounds for block in blocks)
        return round(sum(b.request_rounds for b in blocks) / max(1, rounds))
    return sum(b.requests for b in blocks) / sum(b.merged for b in blocks)


def _shared(mixes: Sequence[Mix], traffic: Sequence[Hashable], name: str) -> list[str | None]:
    """The bucket of (nearly) all of each pair's request-rounds; None where there is none."""
    largest = [
        _largest([part for rows in mix.parts.values() for part in rows], name) for mix in mixes
    ]
    found: list[str | None] = [None] * len(mixes)
    for members in _groups(list(zip(traffic, largest, strict=True))):
        bucket = largest[members[0]]
        if bucket is None:
            continue
        by_block = [
            [_share(rows, name, bucket) for rows in mixes[i].parts.values() if rows]
            for i in members
        ]
        whole = [
            _share([part for rows in mixes[i].parts.values() for part in rows], name, bucket)
            for i in members
        ]
        centred = [[s - math.fsum(row) / len(row) for s in row] for row in by_block]
        spread = _spread(centred)
        noise = [spread / math.sqrt(len(row)) for row in by_block]
        # An edge is inclusive from below, this one from above.
        missing = [1.0 - share for share in whole]
        for i, place in zip(members, _settled(missing, noise, (1.0 - _NEARLY_ALL,)), strict=True):
            found[i] = bucket if place == 0 else None
    return found


def _largest(parts: Sequence[BlockPart], name: str) -> str | None:
    weights: dict[str, int] = defaultdict(int)
    for part in parts:
        weights[getattr(part, name)] += part.request_rounds
    return max(sorted(weights), key=lambda bucket: weights[bucket]) if weights else None


def _share(parts: Sequence[BlockPart], name: str, bucket: str) -> float:
    """Share of request-rounds in a bucket; all of nothing counts as in it. [0..1]"""
    total = sum(part.request_rounds for part in parts)
    inside = sum(part.request_rounds for part in parts if getattr(part, name) == bucket)
    return inside / total if total else 1.0


def _spread(centred: Sequence[Sequence[float]]) -> float:
    """Standard deviation of one block, from what blocks of a pair differ by; 0 where unknown."""
    freedom = sum(len(row) - 1 for row in centred)
    return math.sqrt(math.fsum(x * x for row in centred for x in row) / freedom) if freedom else 0.0


def _settled(
    values: Sequence[float], noise: Sequence[float], edges: Sequence[float]
) -> Iterator[int]:
    """The bucket of each value; within noise of an edge, that of its two with more values."""
    own = [bisect_left(edges, value - 1e-9) for value in values]
    often = Counter(own)
    for value, error, place in zip(values, noise, own, strict=True):
        near = [place]
        if place > 0 and value - edges[place - 1] <= _NOISE * error:
            near.append(place - 1)
        if place < len(edges) and edges[place] - value <= _NOISE * error:
            near.append(place + 1)
        yield max(near, key=lambda bucket: (often[bucket], -bucket))


def _groups(keys: Sequence[Hashable]) -> Iterator[list[int]]:
    """Places of equal keys."""
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for place, key in enumerate(keys):
        groups[key].append(place)
    yield from groups.values()
