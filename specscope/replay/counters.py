"""Counters of both servers during a replay: whether the baseline drafted, and acceptance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from specscope.analyze.scrapes import Scrapes
from specscope.readers.records import Finding, Scrape, Window
from specscope.readers.scrapes.prometheus import Exposition


@dataclass(frozen=True, slots=True)
class Counted:
    """Counters of a server over parts of a replay.

    drafts: request-rounds with proposals. accepted: accepted draft tokens. They count all of the
    server's traffic, including other clients.
    """

    drafts: int
    proposed: int
    accepted: int

    @property
    def mean_length(self) -> float | None:
        """Tokens per drafting round, with the correction or bonus token; None without drafts."""
        return 1.0 + self.accepted / self.drafts if self.drafts else None


def between(before: str | None, after: str | None) -> Counted | None:
    """The difference of two scrapes of a server's `/metrics`.

    None if the server counts no drafts, if it restarted in between, or if a scrape is missing.
    """
    scrapes = Scrapes()
    for text in (before, after):
        one = None if text is None else _scrape(text)
        if one is None:
            return None
        scrapes.add(one)
    records = list(scrapes.records())
    if any(isinstance(one, Finding) and one.code == "COUNTER_RESET" for one in records):
        return None
    windows = [one for one in records if isinstance(one, Window)]
    return total(map(_counted, windows)) if windows else None


def total(stretches: Iterable[Counted | None]) -> Counted | None:
    """Sum over all parts; None if one of them is unknown."""
    drafts = proposed = accepted = 0
    for one in stretches:
        if one is None:
            return None
        drafts, proposed, accepted = (
            drafts + one.drafts, proposed + one.proposed, accepted + one.accepted,
        )  # fmt: skip
    return Counted(drafts, proposed, accepted)


def read_counted(raw: Mapping[str, Any]) -> dict[str, Counted | None]:
    """Read the counters by side from JSON."""
    return {side: one and Counted(**one) for side, one in raw.items()}


def _scrape(text: str) -> Scrape | None:
    reader, found = Exposition("/metrics"), list[Scrape]()
    for line in text.splitlines():
        found += (one for one in reader.feed(line.encode(), False) if isinstance(one, Scrape))
    found += (one for one in reader.finish() if isinstance(one, Scrape))
    return found[-1] if found else None


def _counted(window: Window) -> Counted | None:
    """Counters of one engine; None if it does not count drafts."""
    if window.drafts is None or window.proposed is None or window.accepted is None:
        return None
    return Counted(window.drafts, window.proposed, window.accepted)
