"""A script for the stand-in engine, and what the hook made of it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specscope_hook.layout import NAME_CLASS, Cursor
from specscope_hook.payload import decode
from specscope_hook.reader import RingReader
from specscope_hook.ring_records import RingRequest, RingRound


class Hands:
    """A clock that moves when the script spends time."""

    def __init__(self) -> None:
        self.ns = 1_000_000_000

    def monotonic_ns(self) -> int:
        return self.ns

    def unix_ns(self) -> int:
        return self.ns + 1_700_000_000_000_000_000


@dataclass
class Plan:
    """Stands for the models and the clients: what is accepted, what it costs, what happens when."""

    hands: Hands
    algorithm: str = "EAGLE"
    overlap: bool = False
    mixed: bool = False
    steps: int = 3
    topk: int = 1
    width: int = 4
    eos: int = 2
    adaptive: Any = None
    queue_is_full: bool = False
    accepts: Callable[[Any], int] = lambda req: 2
    tokens: Callable[[Any, int], int] = lambda req, place: 7
    costs_us: dict[str, int] = field(default_factory=dict)
    events: dict[int, Callable[[Any], None]] = field(default_factory=dict)
    turns: int = 0

    @property
    def k(self) -> int:
        return self.width - 1 if self.topk == 1 else min(self.steps, self.width - 1)

    def spend(self, what: str) -> None:
        self.hands.ns += 1000 * self.costs_us.get(what, 1)

    def token(self, req: Any) -> int:
        return self.tokens(req, len(req.output_ids))

    def accept(self, batch: Any, result: Any) -> Any:
        """Turn a forward pass into a verification."""
        kept = [min(self.accepts(req), self.k) for req in batch.reqs]
        given = [len(req.output_ids) for req in batch.reqs]
        result.tokens = [
            [self.tokens(req, place) for place in range(first, first + count + 1)]
            for req, first, count in zip(batch.reqs, given, kept, strict=True)
        ]
        result.accept_lens = [count + 1 for count in kept]
        result.speculative_num_draft_tokens, result.depth = self.width, self.k
        return result

    def happens(self, scheduler: Any) -> None:
        self.turns += 1
        if self.turns in self.events:
            self.events[self.turns](scheduler)

    def over(self) -> bool:
        return self.turns > max(self.events, default=0)


@dataclass
class Ring:
    """What the hook recorded."""

    rounds: list[RingRound] = field(default_factory=list)
    requests: list[RingRequest] = field(default_factory=list)
    boot: dict[str, Any] = field(default_factory=dict)
    classes: dict[int, str] = field(default_factory=dict)
    fault: str = ""
    ended: bool = False

    @property
    def ends(self) -> list[RingRequest]:
        return [request for request in self.requests if request.ended_at]

    def truth(self) -> dict[int, list[tuple[int, int, int, int]]]:
        """(k, accepted, emitted, context) of each request's rounds, by its hash."""
        found = defaultdict(list)
        for each in self.rounds:
            values = zip(each.k, each.accepted, each.emitted, each.contexts, strict=True)
            for request, row in zip(each.requests, values, strict=True):
                found[request].append(row)
        return dict(found)


def read_ring(directory: Path) -> Ring | None:
    """The one ring in a directory; None where there is none."""
    paths = list(directory.glob("*.ring"))
    if not paths:
        return None
    (path,) = paths
    reader = RingReader.open(path)
    raw, _, gaps = reader.pull(Cursor(), 1 << 40)
    assert gaps == []
    ring = Ring(boot=reader.boot, classes=reader.names(NAME_CLASS))
    for record in map(decode, raw):
        (ring.rounds if isinstance(record, RingRound) else ring.requests).append(record)
    ring.fault, ring.ended = reader.fault_text, reader.ended
    return ring


def rules(directory: Path, *each: dict[str, Any]) -> Path:
    """A file of class rules."""
    path = directory / "classes.json"
    path.write_text(json.dumps({"rules": list(each)}))
    return path
