"""One speculation line of a vLLM log, with the field names of any version."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from specscope.readers.logs.lines import INTEGER, REAL, fields, number, whole

_THREE_DECIMALS = re.compile(r"[01]\.\d{3}$|nan$")
_MOST_CANDIDATES = 4096
_CURRENT = re.compile(
    rf" Mean acceptance length: {REAL}, Accepted throughput: {REAL} tokens/s, "
    rf"Drafted throughput: {REAL} tokens/s, Accepted: {INTEGER} tokens, Drafted: {INTEGER} tokens, "
    rf"Per-position acceptance rate: ([01.\d, ]+), Avg Draft acceptance rate: {REAL}%"
)
"""The spelling since 0.10.2, read at once because most lines of a long log are of this kind."""

_EARLIER = re.compile(
    rf" Draft acceptance rate: {REAL}%, Mean acceptance length: {REAL}, "
    rf"(?:Accepted throughput: {REAL} tokens/s, Drafted throughput: {REAL} tokens/s, )?"
    rf"Accepted: {INTEGER} tokens, Drafted: {INTEGER} tokens, "
    r"Per-position acceptance rate: ([01.\d, ]+)$"
)
"""The spelling from 0.8.5 on, with or without throughput."""

_ENGINE = re.compile(
    rf"generation throughput: {REAL} tokens/s(?:.*?Running: {INTEGER} reqs)?"
    rf"(?:.*?(?:Waiting|Pending): {INTEGER} reqs)?"
)


class EngineLine(NamedTuple):
    """Load of the interval before, and the state at print time."""

    tok_s: float | None
    running: int | None
    waiting: int | None

    @classmethod
    def parse(cls, text: str) -> EngineLine | None:
        """The line from `Avg prompt throughput`; None if it is cut before its first figure."""
        match = _ENGINE.search(text)
        if match is None:
            return None
        tok_s, running, waiting = match.groups()
        return cls(
            number(tok_s),
            int(running) if running is not None else None,
            int(waiting) if waiting is not None else None,
        )


class SpecLine(NamedTuple):
    """The printed values. `emitted` marks a V0 line, whose counts are cumulative."""

    accepted: int | None
    proposed: int | None
    emitted: int | None
    k: int | None
    rate: float | None
    mean: float | None
    accepted_tok_s: float | None
    drafted_tok_s: float | None
    positions: tuple[float | None, ...] | None
    torn: bool

    @classmethod
    def parse(cls, body: str, torn: bool) -> SpecLine | None:
        """The line behind `metrics:`; None if it has neither a count nor a rate.

        torn: the file ends in this line without a newline, so its last value may be cut.
        """
        line = None if torn else cls._usual(body)
        if line is not None:
            return line
        # V0 up to 0.5 says `Number of draft tokens tokens`.
        found = fields(body.replace("tokens tokens:", "tokens:"))
        accepted = _count(found, "accepted", "number of accepted tokens")
        proposed = _count(found, "drafted", "number of draft tokens")
        rate = _rate(found)
        printed = found.get("per-position acceptance rate")
        if accepted is None and proposed is None and rate is None and not printed:
            return None
        positions = None
        cut = False
        if printed:
            values = [value for value in printed if value]
            positions = tuple(number(v) if _THREE_DECIMALS.match(v) else None for v in values)
            formed = all(_THREE_DECIMALS.match(value) for value in values)
            cut = not formed or (torn and not _complete(positions, found))
        if printed and accepted is None and proposed is None and (cut or not positions):
            return None  # prose about the rates, or a line without anything sure
        emitted = _first(found, "number of emitted tokens")
        if torn and emitted is not None and not emitted.endswith("."):
            return None
        return cls(
            accepted,
            proposed,
            whole(emitted),
            whole(_first(found, "number of speculative tokens")),
            rate,
            number(_first(found, "mean acceptance length")),
            number(_first(found, "accepted throughput")),
            number(_first(found, "drafted throughput")),
            positions,
            cut or (torn and proposed is None),
        )

    @classmethod
    def _usual(cls, body: str) -> SpecLine | None:
        """A whole line in one of the two long-lived spellings; None for any other."""
        match = _CURRENT.match(body)
        if match:
            mean, accepted_s, drafted_s, kept, drafted, rates, percent = match.groups()
        elif match := _EARLIER.match(body):
            percent, mean, accepted_s, drafted_s, kept, drafted, rates = match.groups()
        else:
            return None
        rates = rates.rstrip()
        parts = rates.split(", ")
        if len(rates) != 7 * len(parts) - 2:  # three decimals each: none is cut
            return None
        try:
            return cls(
                int(kept),
                int(drafted),
                None,
                None,
                float(percent) / 100,
                float(mean),
                float(accepted_s) if accepted_s else None,
                float(drafted_s) if drafted_s else None,
                tuple(map(float, parts)),
                False,
            )
        except ValueError:
            return None

    def seconds(self) -> float | None:
        """Length of the window: a count over its printed rate, from the count with more digits."""
        pairs = [(self.proposed, self.drafted_tok_s), (self.accepted, self.accepted_tok_s)]
        if (self.accepted_tok_s or 0) > (self.drafted_tok_s or 0):
            pairs.reverse()
        for count, rate in pairs:
            if count and rate:
                return count / rate
        return None

    def drafts(self, k: int | None) -> tuple[int | None, bool]:
        """(request-rounds that proposed, whether that is an estimate).

        If it agrees with the printed mean length, all drafts have length k. Otherwise the mean
        allows a range, (accepted / (mean - 1)); the position rates, which are whole counts over
        drafts, select from it.
        """
        if self.proposed is None or self.accepted is None:
            return None, False
        if k and self.proposed % k == 0:
            drafts = self.proposed // k
            if self.mean is None or not drafts:
                return drafts, False
            if abs(1 + self.accepted / drafts - self.mean) < 0.0051:
                return drafts, False
        if self.mean is None or self.mean < 1.01 or not self.accepted:
            return None, False
        low = math.ceil(self.accepted / (self.mean + 0.00501 - 1))
        high = math.floor(self.accepted / max(self.mean - 0.00501 - 1, 1e-9))
        high = min(high, self.proposed)
        if high < low:
            return None, False
        if high - low < _MOST_CANDIDATES:
            fitting = [drafts for drafts in range(low, high + 1) if self._fits(drafts)]
            if len(fitting) == 1:
                return fitting[0], False
        return round(self.accepted / (self.mean - 1)), True

    def _fits(self, drafts: int) -> bool:
        rates = [rate for rate in self.positions or () if rate is not None]
        return all(abs(round(rate * drafts) / drafts - rate) <= 0.00051 for rate in rates)


def _complete(positions: tuple[float | None, ...], found: dict[str, list[str]]) -> bool:
    """Whether a list at the torn end of a file is whole: then 1 + its sum is the mean length."""
    mean = number(_first(found, "mean acceptance length"))
    total = 1 + sum(rate or 0.0 for rate in positions)
    return mean is not None and abs(total - mean) < 0.006 + 0.0005 * len(positions)


def _first(found: dict[str, list[str]], *names: str) -> str | None:
    for name in names:
        if found.get(name):
            return found[name][0]
    return None


def _count(found: dict[str, list[str]], v1: str, v0: str) -> int | None:
    """A count; the V1 spelling ends in `tokens`, so a cut number is not taken for a smaller one."""
    text = _first(found, v1)
    if text is not None:
        return whole(text) if text.endswith("tokens") else None
    return whole(_first(found, v0))


def _rate(found: dict[str, list[str]]) -> float | None:
    """0..1, from a percentage or, in the first versions, a ratio."""
    text = _first(found, "avg draft acceptance rate", "draft acceptance rate")
    value = number(text)
    if text is None or value is None:
        return None
    return value / 100 if text.endswith("%") else value
