"""tabbyAPI (exllama): the `Metrics` line of each request, with drafts if a drafter ran."""

from __future__ import annotations

import re
from collections.abc import Iterable

from specscope.readers.logs.lines import INTEGER, REAL, plain
from specscope.readers.records import Record
from specscope.readers.results.client_usage import drafted

_METRICS = re.compile(
    rf"Metrics \(ID: [^)]{{1,64}}\): {INTEGER} tokens generated in .{{0,300}}?Generate: {REAL} T/s"
    rf"(?:, Context: [\d ,]{{1,16}}tokens(?:, Draft: {INTEGER} / {INTEGER} tokens accepted|\)))"
)


class TabbyLog:
    """One window per request. A terminal may have wrapped the long line."""

    name = "tabby-log"
    gates = (b"Metrics (ID: ",)
    marks = (b"Metrics (ID: ", b"Generate: ")

    def __init__(self, input: str) -> None:
        self._input = input
        self._begun = ""

    def feed(self, line: bytes, torn: bool) -> Iterable[Record]:  # noqa: ARG002
        """The window of a line, or of two lines of a wrapped one."""
        text = plain(line).rstrip()
        if "Metrics (ID: " not in text:
            text = f"{self._begun} {text}"
        found = _METRICS.search(text[:1000])
        self._begun = "" if found else text[:400]
        if found is None:
            return ()
        tokens, speed, accepted, proposed = found.groups()
        counts = (int(accepted), int(proposed)) if accepted is not None else None
        return (drafted(self._input, "tabbyapi", int(tokens), float(speed), counts),)

    def finish(self) -> Iterable[Record]:
        """Nothing is held back."""
        return ()
