"""SGLang server logs: the `Decode batch` line of every version.

`accept len` counts the bonus token and is a mean over the last `decode_log_interval` steps. Counts
are not printed, so a window holds rates only. In the first line after the start or after idle
time, the speed is too low: SGLang divides by the idle time too.
Source: metrics_reporter.py of 0.5.23 and the lines of 0.4 to 0.5.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from statistics import median
from typing import Any

from specscope.readers.logs.accept_rate import Definition, RateDefinition
from specscope.readers.logs.lines import INTEGER, REAL, fields, number, plain, whole
from specscope.readers.records import Finding, Origin, Record, Unparsed, Window
from specscope.readers.results.request_json import sglang_request

HOLD = 256
"""Windows held back until the definition of the rate and the usual round are settled."""

FEW = 3
"""From so many lines on, the usual round shows which lines cover idle time."""

IDLE_FACTOR = 3.0
"""A window whose round seems this much longer than the usual one covers idle time."""

_PREFIX = re.compile(
    r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[^\]]*?((?: (?:DP|TP|PP|EP)\d+)*)\]"
    r"|\[((?:DP|TP|PP|EP)\d+(?: (?:DP|TP|PP|EP)\d+)*)\]"
)
_LENGTH = re.compile(rf"accept len: {REAL}, accept rate: {REAL}(?=[,\s]|$)")
"""What is left of a decode line that a person shortened."""

_META = re.compile(rf"'(spec_\w+|completion_tokens)': {REAL}(?=[,}}])")
"""Figures of the `meta_info` that the log of a finished request shows as Python writes it."""

_RANK = re.compile(rf"(DP|TP|PP|EP){INTEGER}")
_VERSION = re.compile(r"sglang[^\n]{0,40}?version[=: ]+'?(\d+\.\d[\w.]*)")


class SglangLog:
    """Decode lines of one file; ranks of one engine beside rank 0 are left out."""

    name = "sglang-log"
    gates = (b"Decode batch", b"'spec_verify_ct'", b"accept len: ")
    marks = (b"Decode batch", b"speculative_algorithm=", b"'spec_verify_ct'", b"accept len: ")

    def __init__(self, input: str) -> None:
        self._input = input
        self._engines: dict[tuple[str, int | None], _Engine] = {}

    def feed(self, line: bytes, torn: bool) -> Iterable[Record]:
        text = plain(line)
        head, mark, body = text.partition("Decode batch")
        if not mark and (shortened := _LENGTH.search(text)):
            head, mark, body = "", "accept len", text[shortened.start() :]
        if "'spec_verify_ct'" in text:
            found = {name: float(value) for name, value in _META.findall(text)}
            return list(sglang_request(self._input, found))
        if not mark:
            version = _VERSION.search(text)
            return [Origin("sglang", version.group(1) if version else None)]
        if "#running-req" not in body and not _LENGTH.search(body):
            return [Unparsed(text[:200])] if "accept" in body else ()
        prefix = _PREFIX.search(head)
        ranks = (
            {kind: int(n) for kind, n in _RANK.findall(prefix.group(2) or prefix.group(3) or "")}
            if prefix
            else {}
        )
        service = head[: prefix.start()].strip() if prefix else ""
        key = (service, ranks.get("DP"))
        engine = self._engines.get(key)
        if engine is None:
            engine = self._engines[key] = _Engine(self._input, ranks.get("DP"))
        return engine.decode(
            fields(body.lstrip(".,")),
            prefix.group(1) if prefix else None,
            ranks.get("TP"),
            torn,
        )

    def finish(self) -> Iterator[Record]:
        for engine in self._engines.values():
            yield from engine.finish()


class _Engine:
    def __init__(self, input: str, index: int | None) -> None:
        self._input, self._index = input, index
        self._rank: int | None = None
        self._rates = RateDefinition()
        self._definition: Definition | None = None
        self._held: list[dict[str, Any]] = []
        self._usual_ms: float | None = None

    def decode(
        self, found: dict[str, list[str]], start: str | None, rank: int | None, torn: bool
    ) -> Iterator[Record]:
        if self._rank is None:
            self._rank = rank
        if rank != self._rank:
            yield Finding("DUPLICATE_RANKS", f"lines of TP{rank} repeat those of TP{self._rank}")
            return
        if torn:
            yield Finding("TORN_LINE", "a decode line is cut at the end of the input")
            if found:
                found.popitem()  # the last value may be cut
        length = number(_value(found, "accept len"))
        rate = number(_value(found, "accept rate"))
        tok_s = number(_value(found, "gen throughput (token/s)"))
        running = whole(_value(found, "#running-req"))
        values: dict[str, Any] = {
            "start": start,
            "printed_rate": rate,
            "printed_length": length,
            "running": running,
            "waiting": whole(_value(found, "#queue-req")),
            "throughput_tok_s": tok_s,
            # With speculation on, every decode line has an accept length, before the throughput.
            "target_only": length is None and tok_s is not None,
            # Without speculation a step gives one token to each request.
            "round_ms": 1000 * (length or 1.0) * (running or 1) / tok_s if tok_s else None,
        }
        if self._definition is not None:
            yield from self._given(values)
            return
        if length is not None and rate is not None:
            self._rates.see(length, rate)
        self._held.append(values)
        if len(self._held) >= HOLD:
            yield from self.finish()

    def finish(self) -> Iterator[Record]:
        """Return the waiting windows.

        Before that, decide the definition of `accept len` and the usual time of a round.
        """
        if self._definition is None and self._held:
            self._definition = self._rates.decide()
            yield from self._said()
            timed = [held["round_ms"] for held in self._held if held["round_ms"] is not None]
            if len(timed) >= FEW:
                self._usual_ms = median(timed)
        for held in self._held:
            yield from self._given(held)
        self._held = []

    def _given(self, found: dict[str, Any]) -> Iterator[Record]:
        """A window in strict terms, without a speed if it includes idle time."""
        self._convert(found)
        ms, usual = found["round_ms"], self._usual_ms
        if ms is not None and (usual is None or ms > IDLE_FACTOR * usual):
            yield Finding(
                "IDLE_WINDOW",
                "a decode line covers the time since the start or since the last request",
                {"printed_tok_s": found["throughput_tok_s"]},
            )
            found |= {"throughput_tok_s": None, "round_ms": None, "excluded": "covers idle time"}
            # Of a short log only the first line is suspect.
            self._usual_ms = ms if usual is None else usual
        elif ms is not None and usual is not None:
            self._usual_ms = usual + 0.05 * (ms - usual)  # follows a growing context
        yield Window(self._input, "sglang", engine_index=self._index, **found)

    def _said(self) -> Iterator[Finding]:
        seen = [
            held["printed_rate"]
            for held in self._held
            if held["printed_rate"] is not None and held["printed_length"] is not None
        ]
        if not seen or self._definition is None:
            return
        name, k = self._definition.name, self._definition.k
        code = {
            "bonus_included": "ACCEPT_RATE_BONUS_INCLUDED",
            "strict": "ACCEPT_RATE_STRICT",
            "ambiguous": "ACCEPT_RATE_AMBIGUOUS",
        }[name]
        yield Finding(
            code,
            f"accept rate is {name.replace('_', ' ')}"
            + (f" with {k + 1} draft tokens, {k} proposed" if k else ""),
            {"accept_rate_definition": name, "k": k, "printed": seen[:8]},
        )

    def _convert(self, found: dict[str, Any]) -> None:
        """k, and the strict rate: accepted / proposed without the bonus token."""
        definition = self._definition or Definition("ambiguous", None)
        length, k = found["printed_length"], definition.k
        if length is not None and length < 1:
            return  # impossible, and said so where windows are normalised
        found["k"] = k
        if definition.name != "strict":
            found["printed_rate"] = (length - 1) / k if length is not None and k else None


def _value(found: dict[str, list[str]], name: str) -> str | None:
    values = found.get(name)
    return values[0] if values else None
