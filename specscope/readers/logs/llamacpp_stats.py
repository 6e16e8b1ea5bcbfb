"""llama.cpp's `statistics` lines: one per drafter, cumulative since the server started."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from specscope.readers.logs.lines import REAL, number
from specscope.readers.logs.llamacpp_request import Request
from specscope.readers.records import Finding, Record, Window

_NAME = re.compile(r"statistics\s+([\w\-+.]+):")
_COUNT = r"{} =\s*(\d{{1,15}})"
_DURATION = re.compile(rf"dur\(b,g,a\) =\s*{REAL},\s*{REAL},\s*{REAL} ms")
_RATES = re.compile(r"#acc rate/pos = \(([^)]*)\)")


@dataclass(frozen=True, slots=True)
class Statistics:
    """One line, or the difference of two."""

    drafter: str
    drafts: int
    proposed: int
    accepted: int
    draft_ms: float | None
    rates: tuple[float | None, ...] | None

    @classmethod
    def parse(cls, text: str) -> Statistics | None:
        name = _NAME.search(text)
        counts = [
            re.search(_COUNT.format(what), text)
            for what in ("#gen drafts", "#gen tokens", "#acc tokens")
        ]
        if name is None or not all(counts):
            return None
        drafts, proposed, accepted = (int(m.group(1)) for m in counts if m)
        duration = _DURATION.search(text)
        rates = _RATES.search(text)
        return cls(
            name.group(1),
            drafts,
            proposed,
            accepted,
            number(duration.group(2)) if duration else None,
            tuple(number(part) for part in rates.group(1).split(",")) if rates else None,
        )

    def since(self, before: Statistics | None) -> Statistics:
        """The difference, without rates. A decrease means a restart."""
        if before is None or self.proposed < before.proposed or self.drafts < before.drafts:
            return self
        ms = None
        if self.draft_ms is not None and before.draft_ms is not None:
            ms = self.draft_ms - before.draft_ms
        return replace(
            self,
            drafts=self.drafts - before.drafts,
            proposed=self.proposed - before.proposed,
            accepted=self.accepted - before.accepted,
            draft_ms=ms,
            rates=self.rates if before.drafts == 0 else None,
        )


class Drafters:
    """The drafters of one server, with their increments since the last line."""

    def __init__(self, input: str) -> None:
        self._input = input
        self._last: dict[str, Statistics] = {}

    def attach(self, lines: list[Statistics], request: Request) -> None:
        """Add drafts and draft time to a request if the increments are exactly its own."""
        if not lines:
            return
        own = [line.since(self._last.get(line.drafter)) for line in lines]
        if (
            sum(line.proposed for line in own) == request.proposed
            and sum(line.accepted for line in own) == request.accepted
        ):
            request.drafts = sum(line.drafts for line in own)
            if all(line.draft_ms is not None for line in own):
                request.draft_ms = sum(line.draft_ms or 0.0 for line in own)
            return
        slowest = max(lines, key=lambda line: line.draft_ms or 0.0)
        if slowest.draft_ms and slowest.drafts:
            ms = slowest.draft_ms / slowest.drafts
            request.drafter_ms = (slowest.drafter, ms, slowest.drafts)

    def windows(self, lines: list[Statistics]) -> Iterator[Record]:
        """One window per drafter, in addition to the request's; totals exclude them."""
        for line in lines:
            own = line.since(self._last.get(line.drafter))
            self._last[line.drafter] = line
            if line.drafts == 0:
                yield Finding(
                    "DRAFTER_NEVER_USED",
                    f"{line.drafter} was called and has never drafted: its rate is unknown, not 0",
                    {"drafter": line.drafter},
                )
            yield Window(
                self._input,
                "llama.cpp",
                grain="request",
                label=line.drafter,
                drafts=own.drafts,
                proposed=own.proposed,
                accepted=own.accepted,
                printed_positions=own.rates,
                k=len(own.rates) if own.rates else None,
                draft_ms=own.draft_ms / own.drafts if own.draft_ms and own.drafts else None,
                excluded="one drafter's share of the requests",
            )
