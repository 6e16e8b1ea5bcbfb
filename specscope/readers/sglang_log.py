"""SGLang server logs: the `Decode batch` line of every version.

`accept len` counts the bonus token and is a mean over the last `decode_log_interval` steps. Counts
are not printed, so a window holds rates only. The first line after the start or after idle time
divides by the idle time too.
Source: metrics_reporter.py of 0.5.23 and the lines of 0.4 to 0.5.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from specscope.readers.accept_rate import Definition, RateDefinition
from specscope.readers.lines import fields, number, plain, whole
from specscope.readers.records import Finding, Origin, Record, Unparsed, Window

HOLD = 256
"""Windows held back until the definition of the rate is settled."""

IDLE_FACTOR = 3.0
"""A window whose round seems this much longer than the usual one covers idle time."""

_PREFIX = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[^\]]*?((?: (?:DP|TP|PP|EP)\d+)*)\]")
_RANK = re.compile(r"(DP|TP|PP|EP)(\d+)")
_VERSION = re.compile(r"sglang[^\n]{0,40}?version[=: ]+'?(\d+\.\d[\w.]*)")


class SglangLog:
    """Decode lines of one file; ranks of one engine beside rank 0 are left out."""

    name = "sglang-log"
    gates = (b"Decode batch",)
    marks = (b"Decode batch", b"speculative_algorithm=")

    def __init__(self, input: str) -> None:
        self._input = input
        self._engines: dict[tuple[str, int | None], _Engine] = {}

    def feed(self, line: bytes, torn: bool) -> Iterable[Record]:
        text = plain(line)
        head, mark, body = text.partition("Decode batch")
        if not mark:
            version = _VERSION.search(text)
            return [Origin("sglang", version.group(1) if version else None)]
        if "#running-req" not in body:
            return [Unparsed(text[:200])] if "accept" in body else ()
        prefix = _PREFIX.search(head)
        ranks = {kind: int(n) for kind, n in _RANK.findall(prefix.group(2))} if prefix else {}
        service = head[: prefix.start()].strip() if prefix else ""
        key = (service, ranks.get("DP"))
        engine = self._engines.setdefault(key, _Engine(self._input, ranks.get("DP")))
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
        self._first = True
        self._rates = RateDefinition()
        self._definition: Definition | None = None
        self._held: list[Window] = []
        self._usual_ms: float | None = None

    def decode(
        self, found: dict[str, list[str]], start: str | None, rank: int | None, torn: bool
    ) -> Iterator[Record]:
        if self._rank is None:
            self._rank = rank
        if rank != self._rank:
            yield Finding("DUPLICATE_RANKS", f"lines of TP{rank} repeat those of TP{self._rank}")
            return
        length = number(_value(found, "accept len"))
        rate = number(_value(found, "accept rate"))
        tok_s = number(_value(found, "gen throughput (token/s)"))
        if torn:
            yield Finding("TORN_LINE", "a decode line is cut at the end of the input")
            last = list(found)[-1]
            length = None if last == "accept len" else length
            rate = None if last == "accept rate" else rate
            tok_s = None if last.startswith("gen throughput") else tok_s
        running = whole(_value(found, "#running-req") or _value(found, "[iter] #running-req"))
        first, self._first = self._first, False
        window = Window(
            self._input,
            "sglang",
            start=start,
            engine_index=self._index,
            printed_rate=rate,
            printed_length=length,
            running=running,
            waiting=whole(_value(found, "#queue-req")),
            throughput_tok_s=tok_s,
        )
        if length is not None:
            per_step = length * (running or 1)
            window = replace(window, round_ms=1000 * per_step / tok_s if tok_s else None)
        window, idle = self._without_idle(window, first)
        if idle:
            yield idle
        if length is not None and rate is not None and self._definition is None:
            self._rates.see(length, rate)
        if self._definition is not None:
            yield self._converted(window)
            return
        self._held.append(window)
        if (self._rates.settled() and len(self._held) > 1) or len(self._held) >= HOLD:
            yield from self.finish()

    def finish(self) -> Iterator[Record]:
        """Settle the definition and give out what was held back."""
        if self._definition is None and self._held:
            self._definition = self._rates.decide()
            yield from self._said()
        for window in self._held:
            yield self._converted(window)
        self._held = []

    def _said(self) -> Iterator[Finding]:
        seen = [
            w for w in self._held if w.acceptance_rate is not None and w.mean_length is not None
        ]
        if not seen or self._definition is None:
            return
        name, k = self._definition.name, self._definition.k
        code = {
            "bonus_included": "ACCEPT_RATE_BONUS_INCLUDED",
            "strict": "ACCEPT_RATE_STRICT",
            "ambiguous": "ACCEPT_RATE_AMBIGUOUS",
        }[name]
        printed = [w.acceptance_rate for w in seen[:8]]
        yield Finding(
            code,
            f"accept rate is {name.replace('_', ' ')}"
            + (f" with {k + 1} draft tokens, {k} proposed" if k else ""),
            {"accept_rate_definition": name, "k": k, "printed": printed},
        )

    def _converted(self, window: Window) -> Window:
        definition = self._definition or Definition("ambiguous", None)
        length, k = window.mean_length, definition.k
        if length is not None and length < 1:
            return window  # impossible, and said so where windows are normalised
        if definition.name == "strict":
            return replace(window, k=k)
        rate = (length - 1) / k if length is not None and k else None
        return replace(window, k=k, printed_rate=rate)

    def _without_idle(self, window: Window, first: bool) -> tuple[Window, Finding | None]:
        """The first line, and any whose round is far longer than usual, cover idle time."""
        ms = window.round_ms
        idle = first or (
            ms is not None and self._usual_ms is not None and ms > IDLE_FACTOR * self._usual_ms
        )
        if not idle:
            if ms is not None:
                self._usual_ms = ms if self._usual_ms is None else min(self._usual_ms * 1.05, ms)
            return window, None
        finding = Finding(
            "IDLE_WINDOW",
            "a decode line covers the time since the start or since the last request",
            {"printed_tok_s": window.throughput_tok_s},
        )
        clean = replace(window, throughput_tok_s=None, round_ms=None, excluded="covers idle time")
        return clean, finding


def _value(found: dict[str, list[str]], name: str) -> str | None:
    values = found.get(name)
    return values[0] if values else None
