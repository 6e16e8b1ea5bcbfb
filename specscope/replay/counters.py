"""What each side's own counters say of a replay: did the baseline draft, and how much was kept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from specscope.analyze.scrapes import Scrapes
from specscope.readers.records import Finding, Scrape, Window
from specscope.readers.scrapes.prometheus import Exposition


@dataclass(frozen=True, slots=True)
class Counted:
    """Tokens that a server counted over some stretches of a replay.

    drafts: request-rounds that proposed; accepted: leading proposals kept. All of the server, so
    traffic of others is in them.
    """

    drafts: int
    proposed: int
    accepted: int

    @property
    def mean_length(self) -> float | None:
        """Tokens of a round that drafted, with the correction or bonus token; None if none did."""
        return 1.0 + self.accepted / self.drafts if self.drafts else None


def between(before: str | None, after: str | None) -> Counted | None:
    """What was counted between two scrapes of a server's `/metrics`.

    None if the server counts no drafts, was started anew meanwhile, or a scrape is missing.
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
    return _sum(one for one in records if isinstance(one, Window))


def total(stretches: Iterable[Counted | None]) -> Counted | None:
    """Of all stretches; None if one of them is not known."""
    drafts = proposed = accepted = 0
    for one in stretches:
        if one is None:
            return None
        drafts, proposed, accepted = (
            drafts + one.drafts, proposed + one.proposed, accepted + one.accepted,
        )  # fmt: skip
    return Counted(drafts, proposed, accepted)


def _scrape(text: str) -> Scrape | None:
    reader, found = Exposition("/metrics"), list[Scrape]()
    for line in text.splitlines():
        found += (one for one in reader.feed(line.encode(), False) if isinstance(one, Scrape))
    found += (one for one in reader.finish() if isinstance(one, Scrape))
    return found[-1] if found else None


def _sum(windows: Iterable[Window]) -> Counted | None:
    """Over the engines behind one address; None if one of them does not count."""
    known = [(one.drafts, one.proposed, one.accepted) for one in windows]
    if not known:
        return None
    drafts = proposed = accepted = 0
    for counts in known:
        if counts[0] is None or counts[1] is None or counts[2] is None:
            return None
        drafts, proposed, accepted = drafts + counts[0], proposed + counts[1], accepted + counts[2]
    return Counted(drafts, proposed, accepted)
