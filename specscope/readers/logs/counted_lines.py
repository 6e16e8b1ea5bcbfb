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
from specscope.readers.tables import headers
from specscope.readers.tables.csv_file import name_of

_ROUNDS = re.compile(rf"\brounds={INTEGER} accepted={INTEGER}/{INTEGER}\b")
_EMITTED = re.compile(rf"\bemitted={INTEGER}\b")
_WIDTH = re.compile(rf"\bblock_size={INTEGER}\b")
_PAIR = re.compile(r"(?<![\w./-])([A-Za-z][\w/]{1,40})=(\d{1,12}(?:\.\d{1,12})?)(?![\w.])")
_OWN_NAMES = {
    "generated": "output_tokens",
    "predicted": "output_tokens",
    "emitted": "output_tokens",
    "steps": "drafts",
}
ONE_OFF = 0.03
"""A first token from the prompt's pass, and a length of two decimals."""

_REPLY = re.compile(rf"Chat completion: {INTEGER} tokens in {REAL}s \({REAL} tok/s\)")


def _figures(input: str, label: str, text: str) -> Window | None:
    """The window of a line of `name=value` that gives rounds and what they kept, by the names that
    tables use for them; None for any other.

    A length that leaves out the token after the draft is told by rounds and generated tokens.
    """
    metrics: dict[str, float] = {}
    for name, value in _PAIR.findall(text):
        metric = headers.metric_of(name_of(name)) or _OWN_NAMES.get(name.lower())
        if metric:
            metrics.setdefault(metric, float(value))
    rounds, generated = metrics.get("drafts"), metrics.get("output_tokens")
    if not rounds or not metrics.keys() & {"accepted", "acceptance_rate", "mean_length"}:
        return None
    length = metrics.get("mean_length")
    if length is not None and generated:
        readings = (length, length + 1)
        fits = [one for one in readings if abs(one * rounds / generated - 1) < ONE_OFF]
        length = fits[0] if fits else None
    return Window(
        input,
        "unknown",
        grain="run",  # of which model and load, the line does not say
        label=label,
        drafts=round(rounds),
        proposed=_whole(metrics.get("proposed")),
        accepted=_whole(metrics.get("accepted")),
        came_out=round(length * rounds) if length and "accepted" not in metrics else None,
        generated=generated,
        printed_rate=metrics.get("acceptance_rate"),
        printed_length=length,
        throughput_tok_s=metrics.get("throughput_tok_s"),
        tolerance=0.05,
    )


def _whole(value: float | None) -> int | None:
    return int(value) if value is not None and value == int(value) else None


class CountedLines:
    """One window per request; its speed stands in a later line."""

    name = "rounds-log"
    gates = (b" rounds=", b"Chat completion: ", b" proposed=")
    marks = gates

    def __init__(self, input: str) -> None:
        self._input = input
        self._open: dict[str, Any] | None = None
        self._lines = 0

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
        figures = _figures(self._input, f"line {self._lines + 1}", text)
        self._lines += bool(figures)
        return [figures] if figures else ()

    def finish(self) -> Iterator[Record]:
        """The window whose speed has not come."""
        fields, self._open = self._open, None
        if fields:
            yield Window(self._input, "omlx", grain="request", tolerance=0.01, **fields)
