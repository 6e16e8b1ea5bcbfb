"""Lines in which an engine counts a request's rounds: oMLX, and what is printed like it.

`vlm_mtp stats: ... rounds=1079 accepted=1414/2158 (65.5%) ... emitted=2493 block_size=3`, and the
speed of the reply in `Chat completion: 2492 tokens in 26.09s (96.8 tok/s)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from specscope.readers.logs.lines import INTEGER, REAL, plain
from specscope.readers.records import Record, Window

_ROUNDS = re.compile(rf"\brounds={INTEGER} accepted={INTEGER}/{INTEGER}\b")
_EMITTED = re.compile(rf"\bemitted={INTEGER}\b")
_WIDTH = re.compile(rf"\bblock_size={INTEGER}\b")
_REPLY = re.compile(rf"Chat completion: {INTEGER} tokens in {REAL}s \({REAL} tok/s\)")


class CountedLines:
    """One window per request; its speed stands in a later line."""

    name = "rounds-log"
    gates = (b" rounds=", b"Chat completion: ")
    marks = gates

    def __init__(self, input: str) -> None:
        self._input = input
        self._open: dict[str, Any] | None = None

    def feed(self, line: bytes, torn: bool) -> Iterable[Record]:  # noqa: ARG002
        text = plain(line)
        counted, reply = _ROUNDS.search(text), _REPLY.search(text)
        if counted:
            ended = list(self.finish())
            rounds, accepted, proposed = map(int, counted.groups())
            emitted, width = _EMITTED.search(text), _WIDTH.search(text)
            self._open = {
                "drafts": rounds,
                "accepted": accepted,
                "proposed": proposed,
                "came_out": int(emitted.group(1)) if emitted else None,
                "k": int(width.group(1)) - 1 if width and int(width.group(1)) > 1 else None,
            }
            return ended
        if reply:
            tokens, seconds, speed = reply.groups()
            own = self._open or {"target_only": False}
            self._open = {**own, "generated": float(tokens), "seconds": float(seconds)}
            self._open["throughput_tok_s"] = float(speed)
            if own.get("drafts"):
                self._open["round_ms"] = 1000 * float(seconds) / own["drafts"]
            return list(self.finish())
        return ()

    def finish(self) -> Iterator[Record]:
        """The window whose speed has not come."""
        fields, self._open = self._open, None
        if fields:
            yield Window(self._input, "omlx", grain="request", tolerance=0.01, **fields)
