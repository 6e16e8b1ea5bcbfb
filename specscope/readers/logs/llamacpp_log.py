"""llama.cpp server logs, old and new, and `timings` objects of clients in them.

Each finished request has a block (prompt, eval, draft acceptance), followed by one `statistics`
line per drafter, cumulative since the server's start. With LLAMA_TRACE=1 every round prints
`accepted a/ n draft tokens`. Source: tools/server of builds 2025-06 to 11434 and
common/speculative.cpp.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from specscope.readers.logs.lines import REAL, number, plain
from specscope.readers.logs.llamacpp_request import Request, Requests
from specscope.readers.logs.llamacpp_stats import Drafters, Statistics
from specscope.readers.records import LONGEST_DRAFT, Finding, Record, Unparsed, Window
from specscope.readers.results.json_file import count, real
from specscope_agent.sources.llamacpp_lines import ACCEPTANCE, CLOCK, ROUND, TASK, TIMING

MOST_TASKS = 4096
"""Requests that may be open at once; beyond, the oldest is given out as it is."""

_SERVICE = re.compile(r"^\s*(\[\d+\]|[\w.\-/]+ +\|)")
_MEAN = re.compile(rf"mean (?:acceptance )?len(?:gth)? =\s*{REAL}")
_POSITIONS = re.compile(r"(?:acc|acceptance rate) per pos(?:ition)? = \(([^)]*)\)")
_SPEAKS = re.compile(r"draft acceptance(?: rate)? ?[=:]")


@dataclass(slots=True)
class _Rounds:
    accepted: list[int] = field(default_factory=list)
    proposed: int = 0
    drafts: int = 0
    k: int = 0
    replayed: int = 0

    def add(self, accepted: int, proposed: int, replayed: bool) -> None:
        self.drafts += 1
        self.proposed += proposed
        self.k = max(self.k, proposed)
        self.replayed += replayed
        self.accepted += [0] * (self.k - len(self.accepted))
        for position in range(min(accepted, self.k)):
            self.accepted[position] += 1


class LlamaCppLog:
    """Request blocks and round lines of one file, per child process."""

    name = "llamacpp-log"
    gates = (
        b"eval time",
        b"draft acceptance",
        b"#gen drafts",
        b"| accepted ",
        b'"predicted_n"',
    )
    marks = (
        b"eval time",
        b"draft acceptance",
        b"acc per pos",
        b"#gen drafts",
        b"| accepted ",
        b"print_timing",
        b'"predicted_n"',
    )

    def __init__(self, input: str) -> None:
        self._input = input
        self._requests = Requests(input)
        self._drafters: dict[str, Drafters] = {}
        self._open: dict[str, Request] = {}
        self._task: dict[str, str] = {}
        self._statistics: dict[str, list[Statistics]] = {}
        self._rounds: dict[tuple[str, str], _Rounds] = {}

    def feed(self, line: bytes, torn: bool) -> Iterable[Record]:  # noqa: ARG002
        text = plain(line)
        if "llama_print_timings" in text or "perf_context_print" in text:
            return ()
        match = _SERVICE.match(text)
        service = match.group(1) if match else ""
        task = TASK.search(text)
        if "#gen drafts" in text:
            return self._statistic(service, text)
        if '"predicted_n"' in text:
            return self._timings(text)
        rounds = ROUND.search(text)
        if rounds and task:
            return self._round((service, task.group(1)), rounds, "restore checkpoint" in text)
        if "eval time" in text:
            return self._timing(service, text, task)
        if task and "print_timing" in text:
            self._task[service] = task.group(1)
        return self._acceptance(service, text)

    def finish(self) -> Iterator[Record]:
        for service in list(self._open):
            yield from self._close(service)
        for key in list(self._rounds):
            yield from self._unfinished(key)

    def _timing(self, service: str, text: str, task: re.Match[str] | None) -> Iterator[Record]:
        match = TIMING.search(text)
        if match is None:
            yield Unparsed(text[:200])
            return
        ms, tokens = float(match.group(1)), int(match.group(2))
        request = self._open.get(service)
        prompt = "prompt eval time" in text
        if request is None or prompt or request.eval_ms is not None:
            yield from self._close(service)
            clock = CLOCK.search(text)
            request = self._open[service] = Request(start=clock.group(1) if clock else None)
        if task:
            self._task[service] = task.group(1)
        if prompt:
            request.prompt_ms, request.prompt_tokens = ms, tokens
        else:
            request.eval_ms, request.tokens = ms, tokens

    def _acceptance(self, service: str, text: str) -> Iterator[Record]:
        request = self._open.get(service)
        counts, mean, positions = (
            ACCEPTANCE.search(text),
            _MEAN.search(text),
            _POSITIONS.search(text),
        )
        if counts is None and positions is None:
            if _SPEAKS.search(text):  # prose speaks of it too
                yield Unparsed(text[:200])
            return
        if request is None:
            request = self._open[service] = Request()
        if counts:
            request.accepted, request.proposed = int(counts.group(1)), int(counts.group(2))
        if mean:
            request.mean = number(mean.group(1))
        if positions:
            request.positions = _rates(positions.group(1))

    def _statistic(self, service: str, text: str) -> Iterator[Record]:
        statistics = Statistics.parse(text)
        if statistics is None:
            yield Unparsed(text[:200])
            return
        self._statistics.setdefault(service, []).append(statistics)
        if service not in self._open:
            yield from self._drafter_windows(service)

    def _round(
        self, key: tuple[str, str], match: re.Match[str], replayed: bool
    ) -> Iterable[Record]:
        if key not in self._rounds and len(self._rounds) >= MOST_TASKS:
            yield from self._unfinished(next(iter(self._rounds)))
        accepted, proposed = int(match.group(1)), int(match.group(2))
        if proposed <= LONGEST_DRAFT:
            self._rounds.setdefault(key, _Rounds()).add(accepted, proposed, replayed)

    def _timings(self, text: str) -> Iterator[Record]:
        start, end = text.find("{"), text.rfind("}")
        try:
            found = json.loads(text[start : end + 1])
        except ValueError:
            yield Unparsed(text[:200])
            return
        if isinstance(found, dict):
            yield from self._requests.records(from_timings(found.get("timings", found)))

    def _close(self, service: str) -> Iterator[Record]:
        request = self._open.pop(service, None)
        if request is None:
            return
        rounds = self._rounds.pop((service, self._task.pop(service, "")), None)
        if rounds and rounds.proposed == request.proposed:
            request.drafts, request.accepted_at = rounds.drafts, tuple(rounds.accepted)
            if rounds.replayed:
                request.notes.append(
                    Finding(
                        "VERIFY_NOT_ONE_STEP",
                        f"{rounds.replayed} of {rounds.drafts} rounds restored a checkpoint "
                        "and were "
                        "verified twice",
                        {"replayed": rounds.replayed, "rounds": rounds.drafts},
                    )
                )
        statistics = self._statistics.get(service, [])
        self._drafters.setdefault(service, Drafters(self._input)).attach(statistics, request)
        yield from self._requests.records(request)
        yield from self._drafter_windows(service)

    def _drafter_windows(self, service: str) -> Iterator[Record]:
        statistics = self._statistics.pop(service, [])
        yield from self._drafters.setdefault(service, Drafters(self._input)).windows(statistics)

    def _unfinished(self, key: tuple[str, str]) -> Iterator[Record]:
        rounds = self._rounds.pop(key)
        yield Window(
            self._input,
            "llama.cpp",
            grain="request",
            k=rounds.k,
            drafts=rounds.drafts,
            proposed=rounds.proposed,
            accepted=sum(rounds.accepted),
            counted_at=tuple(rounds.accepted),
        )


def from_timings(found: dict[str, Any]) -> Request:
    """A request from the `timings` object of a response. Fields of other types are left out."""
    return Request(
        prompt_tokens=count(found, "prompt_n"),
        prompt_ms=real(found, "prompt_ms"),
        tokens=count(found, "predicted_n"),
        eval_ms=real(found, "predicted_ms"),
        proposed=count(found, "draft_n"),
        accepted=count(found, "draft_n_accepted"),
    )


def _rates(text: str) -> tuple[float | None, ...]:
    return tuple(number(part) for part in text.split(",") if part.strip())
