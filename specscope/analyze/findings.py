"""Findings over all inputs: one entry per code and input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specscope.readers.codes import CODES
from specscope.readers.records import Finding

MOST_ITEMS = 16
"""Pieces of evidence kept per finding; the count goes on."""


@dataclass(slots=True)
class Entry:
    """A code in one input: its first text, its count, and its first pieces of evidence."""

    code: str
    input: str | None
    text: str
    count: int = 0
    items: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def severity(self) -> str:
        return CODES[self.code].severity

    def as_json(self) -> dict[str, Any]:
        """The finding in the schema; several occurrences have their evidence under `items`."""
        evidence: dict[str, Any] = dict(self.items[0]) if self.items else {}
        if self.count > 1:
            evidence["count"] = self.count
        if len(self.items) > 1:
            evidence["items"] = [dict(item) for item in self.items]
        if self.input is not None:
            evidence["input"] = self.input
        return {
            "code": self.code,
            "severity": self.severity,
            "text": self.text,
            "evidence": evidence,
        }


class Findings:
    """Findings in the order of first occurrence; `sorted` orders them by severity."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str | None], Entry] = {}

    def add(self, finding: Finding, input: str | None = None) -> None:
        """Count a finding. Raises KeyError for a code that is not in the list."""
        CODES[finding.code]
        key = (finding.code, input)
        entry = self._entries.setdefault(key, Entry(finding.code, input, finding.text))
        entry.count += 1
        if finding.evidence and len(entry.items) < MOST_ITEMS:
            entry.items.append(finding.evidence)

    def has(self, code: str, input: str | None = None) -> bool:
        """Whether a code occurred, in one input or in any."""
        return any(c == code and (input is None or i == input) for c, i in self._entries)

    def first(self, code: str, input: str) -> Finding | None:
        """The first finding of a code in an input."""
        entry = self._entries.get((code, input))
        return Finding(code, entry.text) if entry else None

    def sorted(self) -> list[Entry]:
        """Errors first, then warnings, then information."""
        rank = {"error": 0, "warning": 1, "info": 2}
        return sorted(self._entries.values(), key=lambda entry: rank[entry.severity])
