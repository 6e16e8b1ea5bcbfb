"""Segments: group pairs of blocks by their traffic.

The quantity that places a pair, such as its offered load, is a sample of its traffic. Near an edge
between two buckets, chance alone would split one traffic into two small segments. So a pair within
the noise of an edge joins the larger side. The noise is the difference between blocks of one pair.
It is 0 if a driver sends each block the same requests.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from specscope.evaluate.experiment.blocks import BASELINE, BlockPart, BlockTime, Design


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """The traffic of one verdict. A field is None if more than one kind ran together.

    load: sequences that the traffic would keep running at k = 0, as a bucket or as the range on one
    side of a crossing (`loads`). For live traffic it is the arrival rate times the service time at
    k = 0; in a closed loop, the number of clients; in a cohort, its requests. It is never the
    realised batch of live traffic, which the arm changes.
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
    """The traffic of a pair, from its arms' rows, all of one epoch."""

    epoch: str
    blocks: Mapping[str, BlockTime]
    parts: Mapping[str, Sequence[BlockPart]]


def load_bucket(requests: float) -> str:
    """Bucket of the requests offered in a block."""
    return _LOADS[bisect_left(_EDGES, requests)]


@dataclass(frozen=True, slots=True)
class Placed:
    """The segment of a pair. offered: its load, one number for all of its arms."""

    segment: Segment
    offered: float


def segments_of(mixes: Sequence[Mix], design: Design = "cohort") -> list[Placed]:
    """The segment and load of each pair, in the given order. It depends only on the set of
    pairs."""
    classes = _classes(mixes)
    traffic = [(mix.epoch, names) for mix, names in zip(mixes, classes, strict=True)]
    contexts = _shared(mixes, traffic, "context_bucket")
    outputs = _shared(mixes, traffic, "output_bucket")
    kinds = list(zip(traffic, contexts, outputs, strict=True))
    offered = [0.0] * len(mixes)
    by_block: list[list[float]] = [[]] * len(mixes)
    for members in _groups(traffic):
        scale = _scale([mixes[i] for i in members], design)
        for i in members:
            blocks = list(mixes[i].blocks.values())
            by_block[i] = [_offered([block], design, scale) for block in blocks]
            offered[i] = _offered(blocks, design, scale)
    loads = _buckets(kinds, offered, by_block)
    return [
        Placed(Segment(names[0] if len(names) == 1 else None, context, output, load), amount)
        for names, context, output, load, amount in zip(
            classes, contexts, outputs, loads, offered, strict=True
        )
    ]


def _classes(mixes: Sequence[Mix]) -> list[tuple[str, ...]]:
    """The classes of each pair's traffic.

    If a replica's blocks mix classes, a block that holds one class by chance is no segment of its
    own. All of the replica's pairs then belong to the classes that have nearly all of its
    request-rounds. If no block of a replica mixes classes, they ran apart by design.
    """
    own = [
        tuple(sorted({name for block in mix.blocks.values() for name in block.classes}))
        for mix in mixes
    ]
    sources = [_source(mix) for mix in mixes]
    classes = list(own)
    for members in _groups(sources):
        if all(len(own[i]) < 2 for i in members):
            continue
        shared = _nearly_all([mixes[i] for i in members])
        for i in members:
            classes[i] = shared or own[i]
    return classes


def _source(mix: Mix) -> Hashable:
    block = next(iter(mix.blocks.values()))
    return mix.epoch, block.policy, block.replica


def _nearly_all(mixes: Sequence[Mix]) -> tuple[str, ...]:
    """The class of nearly all request-rounds, else every class; empty if no part has a class."""
    weights: Counter[str] = Counter()
    for mix in mixes:
        for rows in mix.parts.values():
            for part in rows:
                weights[part.class_] += part.request_rounds
    if not weights:
        return tuple(sorted({n for m in mixes for b in m.blocks.values() for n in b.classes}))
    name, most = max(sorted(weights.items()), key=lambda item: item[1])
    return (name,) if most >= _NEARLY_ALL * weights.total() else tuple(sorted(weights))


def _buckets(
    kinds: Sequence[Hashable], offered: Sequence[float], by_block: Sequence[Sequence[float]]
) -> list[str]:
    buckets = [""] * len(offered)
    for members in _groups(kinds):
        # Counts spread with their size, by more than chance where arrivals come in bursts.
        means = [math.fsum(by_block[i]) / len(by_block[i]) for i in members]
        scaled = [
            [(n - mean) / math.sqrt(mean) if mean else 0.0 for n in by_block[i]]
            for i, mean in zip(members, means, strict=True)
        ]
        spread = _spread(scaled)
        noise = [
            spread * math.sqrt(mean / len(by_block[i]))
            for i, mean in zip(members, means, strict=True)
        ]
        values = [offered[i] for i in members]
        for i, place in zip(members, _settled(values, noise, _EDGES), strict=True):
            buckets[i] = _LOADS[place]
    return buckets


def _offered(blocks: Sequence[BlockTime], design: Design, scale: float | None) -> float:
    """Load of blocks. scale: for live traffic, sequence-seconds of a request at k = 0."""
    if design == "closed_loop":
        rounds = sum(block.rounds for block in blocks)
        asking = sum(block.request_rounds + (block.waiting or 0) for block in blocks)
        asking_at_once = asking / max(1, rounds)
        return round(asking_at_once) if len(blocks) > 1 else asking_at_once
    if scale is None:
        return sum(b.requests for b in blocks) / sum(b.merged for b in blocks)
    return scale * sum(map(_arrivals, blocks)) / sum(map(_seconds, blocks))


def _scale(mixes: Sequence[Mix], design: Design) -> float | None:
    """Mean seconds that a request of one epoch and kind of live traffic runs at k = 0; None if
    unknown.

    All pairs share this number. So the load is an arrival rate in another unit, which neither an
    arm nor the noise of a block changes.
    """
    blocks = [block for mix in mixes for block in mix.blocks.values()]
    if design != "switchback" or any(_seconds(block) <= 0 for block in blocks):
        return None
    base = [block for block in blocks if block.arm == BASELINE and block.rounds] or blocks
    tokens = sum(block.emitted for block in base)
    ended = [b for b in blocks if b.ended_requests and b.output_tokens]
    asked = sum(b.output_tokens or 0 for b in ended) / max(
        1, sum(b.ended_requests or 0 for b in ended)
    )
    if not ended:
        asked = sum(b.emitted for b in blocks) / max(1.0, sum(map(_arrivals, blocks)))
    seconds = sum(1e-6 * b.wall_us * b.request_rounds / max(1, b.rounds) for b in base)
    return asked * seconds / tokens if tokens and asked else None


def _arrivals(block: BlockTime) -> float:
    """Requests that arrived in the time of the block's sums, on one or several replicas."""
    return float(sum(block.admitted_counts) or block.requests)


def _seconds(block: BlockTime) -> float:
    """Seconds of the block's sums, added over its replicas."""
    return 1e-9 * block.merged * (block.last_at - block.first_at)


def _shared(mixes: Sequence[Mix], traffic: Sequence[Hashable], name: str) -> list[str | None]:
    """The bucket with (nearly) all of each pair's request-rounds; None if there is none."""
    largest = [
        _largest([part for rows in mix.parts.values() for part in rows], name) for mix in mixes
    ]
    buckets: list[str | None] = [None] * len(mixes)
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
            buckets[i] = bucket if place == 0 else None
    return buckets


def _largest(parts: Sequence[BlockPart], name: str) -> str | None:
    weights: dict[str, int] = defaultdict(int)
    for part in parts:
        weights[getattr(part, name)] += part.request_rounds
    return max(sorted(weights), key=lambda bucket: weights[bucket]) if weights else None


def _share(parts: Sequence[BlockPart], name: str, bucket: str) -> float:
    """Share of request-rounds in a bucket; 1 if there are no request-rounds. [0..1]"""
    total = sum(part.request_rounds for part in parts)
    inside = sum(part.request_rounds for part in parts if getattr(part, name) == bucket)
    return inside / total if total else 1.0


def _spread(centred: Sequence[Sequence[float]]) -> float:
    """Standard deviation of one block, from differences within pairs; 0 if unknown."""
    freedom = sum(len(row) - 1 for row in centred)
    return math.sqrt(math.fsum(x * x for row in centred for x in row) / freedom) if freedom else 0.0


def _settled(
    values: Sequence[float], noise: Sequence[float], edges: Sequence[float]
) -> Iterator[int]:
    """The bucket of each value; within noise of an edge, the bucket with more values."""
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
