"""vLLM server logs of V0 and V1, with all forms of their speculation lines.

V1: every interval one `Engine 000: Avg ...` line and, if anything was drafted, one `SpecDecoding
metrics:` line behind it, counts of that interval. V0: the same pair, but cumulative counters. The
interval is not printed. It follows from counts over rates for the speculation line, and from the
spacing of the engine lines for the other. After idle time the two differ: the speculation logger
does not restart its clock while there is nothing to draft.
Source: vllm/v1/metrics/loggers.py and vllm/v1/spec_decode/metrics.py, 0.8 to 0.32.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from specscope.readers.logs.lines import INTEGER, REAL, plain
from specscope.readers.logs.vllm_series import Series
from specscope.readers.logs.vllm_spec_line import EngineLine, SpecLine
from specscope.readers.records import Finding, Origin, Record, Unparsed, Window

_VERSION = re.compile(r"(?:LLM engine \(v|version )(\d+\.\d[\w.+]*)")
_SPEC_CONFIG = re.compile(r"speculative_config=SpeculativeConfig\(method='(\w+)'(.*)")
_SPEC_K = re.compile(rf"num_spec\w*_tokens'?[=:] ?{INTEGER}")
_PROCESS = re.compile(r"^(?:([\w.\-/]+) +\| )?.{0,160}?(?:\((\w+ pid=\d+)\)|(\S+\[\d+\]):)")
_SERVICE = re.compile(r"^([\w.\-/]+) +\| ")
_TIME = re.compile(r"\d\d-\d\d \d\d:\d\d:\d\d")
_ENGINE = re.compile(rf"Engine {INTEGER}: $")
_STEP = (
    rf"Engine {INTEGER}: Iteration\(\d+\): {INTEGER} context requests, \d+ context tokens, "
    rf"{INTEGER} generation requests, \d+ generation tokens, iteration elapsed time: {REAL} ms"
)
_ITERATION = re.compile(_STEP.encode())


MOST_PROCESSES = 256
"""Heads remembered: a prefix with a clock of its own makes every head new."""


class VllmLog:
    """Lines of a vLLM log; one `Series` per process and engine."""

    name = "vllm-log"
    gates = (
        b"SpecDecoding metrics:",
        b"Speculative metrics:",
        b"Avg prompt throughput:",
        b": Iteration(",
        b"LLM engine (v",
        b"er-position acceptance rate: ",
    )
    marks = (
        b" metrics: ",
        b"er-position acceptance rate: ",
        b"Avg prompt throughput:",
        b": Iteration(",
        b"LLM engine (v",
        b"speculative_config=",
    )

    def __init__(self, input: str) -> None:
        self._input = input
        self._series: dict[tuple[str, int | None], Series] = {}
        self._last: dict[str, int | None] = {}
        self._name = "vllm"
        self._drafter: Origin | None = None
        self._processes: dict[str, str] = {}
        self._step_head: bytes | None = None
        self._step_process = ""
        self._step_series: dict[bytes, Series] = {}
        self._before: str | None = None
        self._placed: tuple[str, str | None, int | None] = ("", None, None)

    def feed(self, line: bytes, torn: bool) -> Iterable[Record]:
        if b": Iteration(" in line:
            return self._iteration(line)
        text = plain(line)
        if not self._series and " lmdeploy " in text:
            self._name = "lmdeploy"
        if "SpecDecoding metrics:" in text or "Speculative metrics:" in text:
            return self._spec(text, torn)
        if "Avg prompt throughput:" in text:
            return self._engine(text)
        if "er-position acceptance rate: " in text:
            return self._rates(text, torn)
        return self._config(text)

    def finish(self) -> Iterator[Record]:
        for series in self._series.values():
            yield from series.finish()

    def _spec(self, text: str, torn: bool) -> Iterable[Record]:
        head, _, body = text.partition(" metrics:")
        line = SpecLine.parse(body, torn)
        if line is None:
            return [Unparsed(text[:200])]
        before: Iterable[Record] = ()
        if "System efficiency:" in text and line.emitted is None:  # V0, cut
            before = [
                Finding(
                    "V0_ACCEPTANCE_NOT_PREFIX",
                    "printed acceptance counts matches behind the first mismatch",
                )
            ]
        elif "Avg prompt throughput:" in head:  # LMDeploy prints both on one line
            before = self._engine(head)
            head = head.partition("Avg prompt throughput:")[0]
        process, start, at = self._place(head)
        return [*before, *self._at((process, self._last.get(process))).spec(line, start, at)]

    def _rates(self, text: str, torn: bool) -> Iterable[Record]:
        """The end of a quoted speculation line: rates by position without counts."""
        _, mark, rest = text.partition("Per-position acceptance rate: ")
        rest = rest.rstrip("`* ")
        if rest.endswith(","):
            return ()  # it goes on in the next line
        line = SpecLine.parse(mark + rest, torn) if mark else None
        if line is None or line.positions is None or None in line.positions:
            return ()
        length = 1 + sum(rate or 0.0 for rate in line.positions)
        return [
            Window(
                self._input,
                "vllm",
                k=len(line.positions),
                printed_positions=line.positions,
                printed_length=length,
                printed_rate=line.rate,
            )
        ]

    def _engine(self, text: str) -> Iterable[Record]:
        head, _, body = text.partition("Avg prompt throughput:")
        line = EngineLine.parse(body)
        if line is None:
            return ()
        process, start, at = self._place(head)
        index = _engine_index(head)
        self._last[process] = index
        series = self._at((process, index))
        nameless = self._series.get((process, None)) if index is not None else None
        window = nameless.orphan(at) if nameless else None
        if window is None:
            return series.engine(line, start, at)
        return [*series.adopt(window, at), *series.engine(line, start, at)]

    def _iteration(self, line: bytes) -> Iterable[Record]:
        match = _ITERATION.search(line)
        if match is None:
            return ()
        index, context, requests, elapsed = match.groups()
        head = line[: match.start()].partition(b" [")[0]
        if head != self._step_head:  # many steps share a second
            process, _, _ = self._place(plain(head))
            self._step_head, self._step_series = head, {}
            self._step_process = process
        series = self._step_series.get(index)
        if series is None:
            series = self._at((self._step_process, int(index)))
            self._step_series[index] = series
        series.iteration(int(context), int(requests), float(elapsed))
        return ()

    def _place(self, head: str) -> tuple[str, str | None, int | None]:
        """(process, printed time, seconds since some fixed day) of a line's head."""
        before, _, _ = head.partition(" [")  # what follows is the source line, which varies
        if before != self._before:
            self._before, self._placed = before, self._parsed(before)
        return self._placed

    def _parsed(self, head: str) -> tuple[str, str | None, int | None]:
        match = _TIME.search(head)
        before = head[: match.start()] if match else head
        process = self._processes.get(before)
        if process is None:
            if len(self._processes) > MOST_PROCESSES:
                self._processes.clear()
            process = self._processes[before] = _process(before)
        if match is None:
            return process, None, None
        printed = match.group()
        # For differences only: every month may count 31 days.
        days = int(printed[:2]) * 31 + int(printed[3:5])
        minutes = int(printed[6:8]) * 60 + int(printed[9:11])
        return process, printed, days * 86_400 + minutes * 60 + int(printed[12:])

    def _config(self, text: str) -> Iterable[Record]:
        version = _VERSION.search(text)
        drafter = _SPEC_CONFIG.search(text)
        if drafter:
            k = _SPEC_K.search(drafter.group(2))
            self._drafter = Origin("vllm", None, drafter.group(1), int(k.group(1)) if k else None)
        if version or drafter:
            yield Origin(
                "vllm",
                version.group(1) if version else None,
                self._drafter.method if self._drafter else None,
                self._drafter.k if self._drafter else None,
                True if drafter else None,
            )

    def _at(self, key: tuple[str, int | None]) -> Series:
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = Series(self._input, key[1], self._name)
        return series


def _engine_index(head: str) -> int | None:
    """The index before `Avg prompt ...`; engines print it with three digits."""
    if head[-12:-5] == "Engine " and head[-5:-2].isdigit():
        return int(head[-5:-2])
    match = _ENGINE.search(head)
    return int(match.group(1)) if match else None


def _process(head: str) -> str:
    if "pid=" in head or "]:" in head:
        match = _PROCESS.match(head)
        if match:
            return "|".join(group or "" for group in match.groups())
    match = _SERVICE.match(head)
    return match.group(1) if match else ""
