"""Cut a trace into parts; each part runs on both endpoints, one after the other, in random order.

A part corresponds to a pair of blocks: a slow drift affects both endpoints equally. Orders come in
twos (AB BA or BA AB), drawn at random.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from specscope.replay.trace import Asked, Trace

SIDES = ("a", "b")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the trace's requests, with the order of the sides.

    begin_s: offset of the part's begin.
    """

    number: int
    begin_s: float
    requests: tuple[Asked, ...]
    order: tuple[str, ...]


def cut(trace: Trace, parts: int, passes: int, seed: int, *, by_time: bool = True) -> list[Part]:
    """Parts of equal length (by_time) or with equal numbers of requests; empty ones are left
    out."""
    stretches = _by_time(trace, parts) if by_time else _by_count(trace, parts)
    drawn, made = random.Random(seed), list[Part]()
    order = SIDES
    for _ in range(passes):
        for begin, requests in stretches:
            even = len(made) % 2 == 0
            order = drawn.choice((SIDES, SIDES[::-1])) if even else order[::-1]
            made.append(Part(len(made), begin, requests, order))
    return made


def _by_time(trace: Trace, parts: int) -> list[tuple[float, tuple[Asked, ...]]]:
    first = trace.requests[0].offset_s
    length = trace.span_s / parts
    groups: dict[int, list[Asked]] = {}
    for asked in trace.requests:
        place = int((asked.offset_s - first) / length) if length > 0 else 0
        groups.setdefault(min(place, parts - 1), []).append(asked)
    return [(first + place * length, tuple(group)) for place, group in sorted(groups.items())]


def _by_count(trace: Trace, parts: int) -> list[tuple[float, tuple[Asked, ...]]]:
    requests: Sequence[Asked] = trace.requests
    size = -(-len(requests) // parts)
    groups = [tuple(requests[at : at + size]) for at in range(0, len(requests), size)]
    return [(group[0].offset_s, group) for group in groups]
