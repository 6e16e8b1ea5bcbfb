"""Speeds that stand in lines instead of a table: `without eagle: 21 tps`, one below the other, or
`Prompt 1: without draft 15.1 tok/s, with draft 11.0 tok/s`.

Such lines are arms only if they name a run without speculation and one with it, and nothing else
about the two differs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from specscope.readers.tables.cells import bare
from specscope.readers.tables.names import OFF, ON, WORD, named

MOST_ROWS = 10_000
LONGEST_LABEL = 60
LONGEST_LINE = 400
_SPEED = re.compile(
    r"(?<![\w.,])(?P<value>\d[\d.,]{0,15})\s{0,3}(?P<unit>tok(?:en)?s?\s?/\s?s(?:ec(?:ond)?)?|t/s|tps"
    r"|tokens? per second)(?![\w/])",
    re.IGNORECASE,
)
_NO_OUTPUT = re.compile(
    r"(?:prefill|prompt(?: eval| processing)?|pp|input|total)\W*(?:speed\W*)?$", re.IGNORECASE
)
_LABELLED = re.compile(r"^(?P<label>[^:|]{1,60}):\s+(?P<rest>.*)$")
_AMBIGUOUS = re.compile(r"\bvs\.?\s|\bfrom\b|\bto\s+\d|->|→", re.IGNORECASE)
_HEADING = re.compile(r"^\s*(?:#+\s*|<summary>\s*|[-*•]\s+)?(.*?)(?:</summary>)?[\s:#*]*$")
_MARKS = re.compile(r"^[\s>*•+-]{0,12}")


class Listed(NamedTuple):
    """One speed of a line."""

    arm: str
    label: str
    speed: str


def line_speeds(line: str) -> list[Listed]:
    """The arms of one line with their speeds; nothing for prose."""
    if len(line) > LONGEST_LINE or _AMBIGUOUS.search(line):
        return []
    text = _MARKS.sub("", bare(line))
    matches = [m for m in _SPEED.finditer(text) if not _NO_OUTPUT.search(text[: m.start()])]
    if not matches:
        return []
    label = ""
    labelled = _LABELLED.match(text)
    if labelled and not named(labelled.group("label")).state and len(matches) > 1:
        label = labelled.group("label").strip()
    start = labelled.start("rest") if label and labelled else 0
    found = []
    for match in matches:
        phrase = text[start : match.start()].strip(" ,;:.-–—=~≈(@")
        state = named(phrase).state
        if state in (ON, OFF, WORD):
            found.append(Listed(phrase, label, f"{match.group('value')} {match.group('unit')}"))
        start = match.end()
    if len(found) == 1:  # of several speeds in a line of one arm the last is that of the output
        arm = re.split(r":\s|,(?=\s*\[)", found[0].arm)[0].strip()
        match = matches[-1]
        found = [Listed(arm, label, f"{match.group('value')} {match.group('unit')}")]
    return [one for one in found if len(one.arm) <= LONGEST_LABEL and len(one.arm.split()) <= 9]


def arms_in_lines(lines: Sequence[str], place: int) -> tuple[list[Listed], int] | None:
    """(the arms of neighbouring lines, the number of the last) from a place on; None for prose."""
    rows: list[Listed] = []
    headings: list[str] = []
    last = place
    for number in range(place, min(place + MOST_ROWS, len(lines))):
        line = lines[number]
        speeds = line_speeds(line)
        if speeds:
            label = ", ".join(headings[-1:])
            rows += [
                one._replace(label=", ".join(filter(None, [label, one.label]))) for one in speeds
            ]
            last = number
        elif line.strip() and len(line) > LONGEST_LABEL and rows:
            break
        elif line.strip():
            heading = _HEADING.sub(r"\1", bare(line[:LONGEST_LINE]))[:LONGEST_LABEL]
            if not heading or (not rows and number > place):
                break
            headings.append(heading)
        elif not rows:
            break
    return (rows, last) if _tells(rows) else None


def has_list(text: str) -> bool:
    """Whether a text lists speeds of a run without speculation and of one with it."""
    return _tells([one for line in text.splitlines() for one in line_speeds(line)])


def _tells(rows: Sequence[Listed]) -> bool:
    bases = [named(row.arm) for row in rows if named(row.arm).state in (OFF, WORD)]
    others = [named(row.arm) for row in rows if named(row.arm).state == ON]
    rests = {_key(base.rest) for base in bases}
    return any(_key(other.rest) in rests for other in others)


def _key(rest: str) -> str:
    return " ".join(rest.lower().split())


def headings_above(lines: Sequence[str], place: int) -> Iterator[str]:
    """The headings that a line stands under, from the innermost outwards."""
    level = 7
    for number in range(place - 1, -1, -1):
        match = re.match(r"^\s{0,3}(#{1,6})\s+(.*)$", lines[number][:LONGEST_LINE])
        if match and len(match.group(1)) < level:
            level = len(match.group(1))
            yield bare(match.group(2)).strip(" #:")
