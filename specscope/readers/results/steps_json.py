"""Single rounds as JSON lines: proposed, accepted and emitted tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from specscope.readers.records import LONGEST_DRAFT, Finding, Record, Window
from specscope.readers.results.json_file import count, documents, looks_like_json
from specscope.readers.source import Source

_PROPOSED = ("num_draft_tokens", "proposed", "drafted", "draft_tokens", "num_proposed")
_ACCEPTED = (
    "accepted_prefix",
    "accepted",
    "num_accepted_tokens",
    "accepted_tokens",
    "num_accepted",
)
_EMITTED = ("emitted_tokens", "emitted", "committed_tokens", "output_tokens", "num_emitted")
_ENDS = ("finish_reason", "end", "finished")


class StepsJson:
    """One object per round; accepted tokens that were not emitted are counted apart."""

    format = "rounds-json"

    def sniff(self, head: bytes) -> float:
        """0.6 for JSON lines that hold a proposed, an accepted and an emitted count."""
        if not looks_like_json(head):
            return 0.0
        groups = (_PROPOSED, _ACCEPTED, _EMITTED)
        return 0.6 if all(any(f'"{n}"'.encode() in head for n in g) for g in groups) else 0.0

    def read(self, source: Source) -> Iterator[Record]:
        """The rounds pooled into one window, with its over-count."""
        rounds = _Rounds()
        for document in documents(source.stream):
            for found in document if isinstance(document, list) else [document]:
                if isinstance(found, dict):
                    rounds.add(found)
        yield from rounds.records(source.name)


class _Rounds:
    def __init__(self) -> None:
        self.drafts = self.proposed = self.accepted = self.emitted = 0
        self.over = self.ended = self.k = 0
        self.at: list[int] = []
        self.requests: dict[str, int] = {}

    def add(self, found: dict[str, Any]) -> None:
        proposed, accepted = count(found, *_PROPOSED), count(found, *_ACCEPTED)
        emitted = count(found, *_EMITTED)
        if not proposed or proposed > LONGEST_DRAFT or accepted is None or emitted is None:
            return
        self.drafts += 1
        self.proposed += proposed
        self.accepted += accepted
        self.emitted += emitted
        self.k = max(self.k, proposed)
        self.at += [0] * (self.k - len(self.at))
        for position in range(min(accepted, proposed)):
            self.at[position] += 1
        if any(found.get(name) not in (None, "", "none", False) for name in _ENDS):
            over = max(accepted + 1 - emitted, 0)
            self.over += over
            self.ended += over > 0

    def records(self, input: str) -> Iterator[Record]:
        if not self.drafts:
            return
        exact = self.proposed == self.k * self.drafts
        if self.over:
            yield Finding(
                "EOS_OVERCOUNT",
                f"{self.over} tokens were counted behind the end of the text in {self.ended} "
                "rounds; "
                f"at most k = {self.k} per request, which weighs most on short outputs",
                {
                    "counted": self.accepted + self.drafts,
                    "emitted": self.emitted,
                    "overcount": self.over,
                    "bound_per_request": self.k,
                },
            )
        yield Window(
            input,
            "unknown",
            grain="round",
            k=self.k if exact else None,
            drafts=self.drafts,
            proposed=self.proposed,
            accepted=self.accepted,
            came_out=self.emitted,
            counted_at=tuple(self.at) if exact else None,
        )
