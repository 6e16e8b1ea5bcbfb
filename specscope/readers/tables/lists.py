"""Speeds that stand in lines instead of a table: `without eagle: 21 tps`, one below the other,
`Prompt 1: without draft 15.1 tok/s, with draft 11.0 tok/s`, or lines of one shape below headings
that name the arm.

Such lines are arms only if they name a run without speculation and one with it, without another
difference.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from specscope.readers.tables import headers
from specscope.readers.tables.above import HEADING, LONGEST_LINE, PLAIN
from specscope.readers.tables.attributes import DRAFTERS_NAME
from specscope.readers.tables.cells import bare, unit_first
from specscope.readers.tables.csv_file import name_of
from specscope.readers.tables.names import OFF, ON, WORD, named

MOST_ROWS = 10_000
MOST_HEADINGS = 3
"""Lines above the first speed that may name its class and its arm."""

LONGEST_LABEL = 60

_SPEED = re.compile(
    r"(?<![\w.,])(?P<value>\d[\d.,]{0,24})\s{0,3}(?P<unit>tok(?:en)?s?[\s-]?(?:/|per)[\s-]?s(?:ec(?:ond)?)?"
    r"|t/s|tps)(?![\w/])",
    re.IGNORECASE,
)
_BARE_SPEED = re.compile(r"(?<=[:=] )(?P<value>\d[\d.,]{0,24})(?P<unit>)(?=\s*(?:[,;(]|$))")
"""A number without its unit, which a line above gives."""

_NO_OUTPUT = re.compile(
    r"(?:prefill|prompt(?: eval| processing)?|pp|input|total)\W*(?:speed\W*)?$", re.IGNORECASE
)
_OF_TABLE = re.compile(r"[|\t│┃]|\S\s{2,}\S.*\S\s{2,}\S")
"""A row of a table: bars, tabs, or three columns."""

_RULE = re.compile(r"[\s+:=─━-]{3,}")
"""The line below the header of a table."""

_TIME = re.compile(
    r"^[\s>*•-]{0,8}(?P<label>[^:|]{1,60}):\s{1,20}(?P<value>\d{1,6}(?:\.\d{1,6})?)\s?s(?:ec\w*)?\W*$"
)
_CLAIM = re.compile(
    r"^[\s>*•-]{0,8}speed-?up\W{1,20}(\d{1,3}(?:\.\d{1,4})?)\s?[x×]?\W*$", re.IGNORECASE
)
AGREES = 0.02
"""A speedup is printed with two decimals."""

MOST_TIMES = 6
MOST_BLOCKS = 60
"""Lines in which runs stand below each other, each with its figures."""

_FIGURE = re.compile(r"^[\s>*•-]{0,8}[^:=]{1,40}:\s{1,4}~?\d[\d.,]*\s?\S{0,12}$")
_UNIT = re.compile(r"tok(?:en)?s?[\s-]?/[\s-]?s(?:ec(?:ond)?)?|t/s|tps", re.IGNORECASE)
_ITEM = r"^[\s>*•-]{0,8}(?P<label>[^:|→]{1,60}):\s{1,20}"
_ARROWED = re.compile(
    _ITEM + r"(?P<figure>~?\d[\d.,]{0,12}\s?(?:tok\S*|t/s|tps)?\s?(?:->|→|⇒)\s?~?\d[\d.,]{0,12}"
    r"\s?(?:tok\S*|t/s|tps)?(?:\s?\([^()]{0,40}\))?)\s*$",
    re.IGNORECASE,
)
_RATIO = re.compile(_ITEM + r"~?(?P<figure>\d{1,2}(?:\.\d{1,3})?\s?[x×])\W*$", re.IGNORECASE)
_ARM_TO_ARM = re.compile(
    r"^([^:|→]{1,40}?)\s?(?:->|→|⇒)\s?([^:|→]{1,40}):\s~?(\d[\d.]{0,12})\s?(?:tok\S*|t/s|tps)?"
    r"\s?(?:->|→|⇒)\s?~?(\d[\d.]{0,12})\s?(tok\w*/s(?:ec)?|t/s|tps)\b",
    re.IGNORECASE,
)
_LABELLED = re.compile(r"^(?P<label>[^:|]{1,60}):\s+(?P<rest>.*)$")
_AMBIGUOUS = re.compile(r"\bvs\.?\s|\bfrom\b|\bto\s+\d|->|→", re.IGNORECASE)
_MARKS = re.compile(r"^[\s>*•+#-]{0,12}(?:\d{1,2}[.)]\s)?")
_PATH = re.compile(r"\(?(?<![\w/])(?!tok)[\w.-]{2,}/[\w.-]{3,}[\w./-]*\)?", re.IGNORECASE)
_BRACKETS = re.compile(r"\([^()]*\)")
LOG_PREFIX = re.compile(r"^\d{4}-\d\d-\d\d[ T][\d:,.]{8,15}\s?-?\s?(?:\[?[A-Z]{4,8}\]?)?\s?[-:]?\s")
"""Time and level before what a program prints through its logger."""

_LENGTH = re.compile(r"\b(?:k|n|n[-_ ]?max|depth|gamma)\s?=\s?\d+", re.IGNORECASE)
OPTION = re.compile(r"\s?--(?:spec|draft|parallel|np)[\w-]*(?:[= ](?!-)[\w.-]+)?")
"""Options of speculation, and of the one slot that it needs."""

_ENGINES_OWN = re.compile(
    r"print_timing|eval time|Decode batch|SpecDecoding|INFO |questions:|throughput:.*accept"
    r"|metrics:|requests/s|pred=|task \d",
    re.IGNORECASE,
)
"""Lines that a reader of logs knows better."""


class Listed(NamedTuple):
    """One speed of a line."""

    arm: str
    label: str
    speed: str


class _Above:
    """The headings that a line stands under: the nearest that names an arm, and the nearest other
    one."""

    def __init__(self, bases: frozenset[str] = frozenset()) -> None:
        self.arm, self.label, self.unit = "", "", ""
        self._bases = bases
        self._arm_level = self._label_level = PLAIN
        self._label_is_newer = False

    def enter(self, text: str, level: int) -> None:
        """Add a heading; it closes all deeper Markdown headings."""
        if level < PLAIN:
            self.close(level)
        if named(text).state in (ON, OFF, WORD) or _key(text) in self._bases:
            self.arm, self._arm_level, self._label_is_newer = text, level, False
            if self._label_level >= level < PLAIN:
                self.label = ""
        elif headers.metric_of(name_of(text)) == "throughput_tok_s":
            self.unit = "tok/s"
        else:
            self.label, self._label_level, self._label_is_newer = text, level, True

    def demote(self, speeds: Sequence[Listed]) -> None:
        """Treat a heading about a drafter above runs without one as a class, not as an arm."""
        plain = any(named(one.arm).state in (OFF, WORD) for one in speeds)
        if plain and named(self.arm).state == ON:
            if not self._label_is_newer:
                self.label, self._label_level = self.arm, self._arm_level
            self.arm = ""

    def close(self, level: int) -> None:
        if self.arm and self._arm_level >= level:
            self.arm, self._arm_level = "", PLAIN
        if self.label and self._label_level >= level:
            self.label, self._label_level = "", PLAIN


def line_speeds(line: str, above: _Above | None = None) -> list[Listed]:
    """The arms of one line with their speeds; nothing for prose."""
    above = above or _Above()
    if len(line) > LONGEST_LINE or _ENGINES_OWN.search(line):
        return []
    text = unit_first(_without_gaps(_MARKS.sub("", bare(LOG_PREFIX.sub("", line)))))
    first = _SPEED.search(text)
    # What stands in brackets behind a speed is a remark, if the speed does not stand in some too.
    if first and text.count("(", 0, first.end()) == text.count(")", 0, first.end()):
        text = text[: first.end()] + _BRACKETS.sub(" ", text[first.end() :])
    if steps := _ARM_TO_ARM.match(text):
        return _stepped(*steps.groups())
    if _AMBIGUOUS.search(text):
        return []
    matches = [m for m in _SPEED.finditer(text) if not _NO_OUTPUT.search(text[: m.start()])]
    if not matches and above.unit:
        matches = list(_BARE_SPEED.finditer(text))[:1]
    if not matches:
        return []
    label = ""
    labelled = _LABELLED.match(text)
    if labelled and not named(labelled.group("label")).state and len(matches) > 1:
        label = labelled.group("label").strip()
    start = labelled.start("rest") if label and labelled else 0
    found: list[Listed] = []
    silent: list[Listed] = []
    for match in matches:
        phrase = text[start : match.start()].strip(" ,;:.-–—=~≈(@")
        state = named(phrase).state
        speed = f"{match.group('value')} {match.group('unit') or above.unit}"
        (found if state in (ON, OFF, WORD) else silent).append(Listed(phrase, label, speed))
        start = match.end()
    if len(found) == 1:  # of several speeds in a line of one arm the last is that of the output
        arm = re.split(r":\s|,(?=\s*\[)", found[0].arm)[0].strip()
        found = [Listed(arm, label, (*found, *silent)[-1].speed)]
        if above.arm and named(arm).state == ON and named(above.arm).state == ON:
            found = [found[0]._replace(arm=f"{above.arm} {arm}")]
    elif not found and above.arm:
        kind = " ".join(re.findall(r"[^\W\d]+", silent[-1].arm))
        found = [Listed(above.arm, kind, silent[-1].speed)]
    return [one for one in found if len(OPTION.sub("", _PATH.sub("", one.arm))) <= LONGEST_LABEL
            and len(OPTION.sub("", one.arm).split()) <= 9]  # fmt: skip


def _stepped(base: str, arm: str, before: str, after: str, unit: str) -> list[Listed]:
    """`8B → 8B MTP: 24 → 41 tok/s`: the arms go the same way as their speeds."""
    apart = named(base).state not in (OFF, WORD, "") or named(arm).state != ON
    if apart or named(arm).versioned or _key(base) != _key(arm):
        return []
    label, speeds = _key(base), (f"{before} {unit}", f"{after} {unit}")
    return [Listed(base.strip(), label, speeds[0]), Listed(arm.strip(), label, speeds[1])]


def arms_in_lines(lines: Sequence[str], place: int) -> tuple[list[Listed], int] | None:
    """(the arms of neighbouring lines, the number of the last) from a place on; None for prose."""
    rows: list[Listed] = []
    headed = place < len(lines) and len(lines[place]) <= LONGEST_LABEL
    above = _Above(_names_of_bases(lines[place : place + MOST_BLOCKS]) if headed else frozenset())
    headings, last = 0, place
    for number in range(place, min(place + MOST_ROWS, len(lines))):
        line = lines[number]
        text = line[:LONGEST_LINE].strip()
        if _RULE.fullmatch(text) or _OF_TABLE.search(_without_gaps(text)):
            break
        mark = re.match(r"^\s{0,3}(#{1,6})\s", line[:LONGEST_LINE])
        level = len(mark.group(1)) if mark else PLAIN
        speeds = line_speeds(line, above)
        if speeds:
            if mark:
                above.close(level)
            above.demote(speeds)
            rows += [
                one._replace(label=", ".join(filter(None, [above.label, one.label])))
                for one in speeds
            ]
            last, headings = number, 0
        elif not line.strip():
            if not rows and not headings:
                break
        elif above.arm and not mark and _FIGURE.match(text) and not named(text).state:
            continue  # another figure of the run
        elif len(line.strip()) > LONGEST_LABEL and not _PATH.search(line):
            break
        else:
            heading = HEADING.sub(r"\2", bare(line[:LONGEST_LINE]))[: 2 * LONGEST_LABEL]
            headings += 1
            if not heading or headings > MOST_HEADINGS:
                break
            above.enter(heading, level)
    rows = _without_shared_labels(rows)
    return (rows, last) if _holds_comparison(rows) else None


def _names_of_bases(lines: Sequence[str]) -> frozenset[str]:
    """What headings with a drafter say besides it (`spec 7b`): alone (`7b:`) it names the run
    without."""
    short = [line for line in lines if len(line) <= LONGEST_LABEL]
    said = [bare(line).strip(" #:*") for line in short]
    told = [text for text in said if not re.search(r"\d\W+\S*/s|[=|→]|: ", text)]
    read = [named(text) for text in told]
    rests = {_key(text) for text, name in zip(told, read, strict=True) if name.state == ON}
    plain = {_key(text) for text, name in zip(told, read, strict=True) if not name.state}
    return frozenset((rests & plain) - {""})


def _without_gaps(line: str) -> str:
    """A print that is aligned behind its labels and before its units, with single blanks there."""
    line = re.sub(r"(\d)\s{2,4}(?=tok|t/s|tps)", r"\1 ", line)
    return re.sub(r"(?<=s)\s{2,20}(?=\()", " ", re.sub(r":\s{2,20}(?=[\d~])", ": ", line))


def times_in_lines(lines: Sequence[str], place: int) -> tuple[list[Listed], int] | None:
    """(two runs of the same work with their seconds, the number of the last line), if the speedup
    printed below agrees; None for others."""
    rows: list[Listed] = []
    for number in range(place, min(place + MOST_TIMES, len(lines))):
        line = bare(LOG_PREFIX.sub("", lines[number][:LONGEST_LINE]))
        found, claim = _TIME.match(line), _CLAIM.match(line)
        if found and named(found.group("label")).state in (ON, OFF, WORD):
            rows.append(Listed(found.group("label").strip(" *#-"), "", f"{found.group('value')} s"))
        elif claim and len(rows) == 2:
            base, arm = sorted(rows, key=lambda row: named(row.arm).state == ON)
            ratio = float(base.speed[:-2]) / (float(arm.speed[:-2]) or 1)
            agrees = abs(ratio / float(claim.group(1)) - 1) < AGREES
            return (rows, number) if agrees and _holds_comparison(rows) else None
        elif not rows or line.strip():
            return None
    return None


class Figures(NamedTuple):
    """Lines that give a class and one figure each."""

    rows: list[tuple[str, str]]
    """(class, figure)"""
    measure: str
    last: int
    """The number of the last line."""


def figures_in_lines(lines: Sequence[str], place: int) -> Figures | None:
    """Lines of a place on that give a step each (`Code: 24.1 → 41.0 tok/s`) or a speedup each
    (`Code: 2.31x`); None for fewer than two."""
    for pattern, measure in ((_ARROWED, "tok/s"), (_RATIO, "speedup")):
        rows: list[tuple[str, str]] = []
        last = place
        for number in range(place, min(place + MOST_ROWS, len(lines))):
            match = pattern.match(bare(lines[number][:LONGEST_LINE]))
            if match:
                rows.append((match.group("label").strip(), match.group("figure").strip()))
                last = number
            elif lines[number].strip() or not rows:
                break
        output = [row for row in rows if not _NO_OUTPUT.search(row[0])]
        if len(rows) > 1 and output:
            return _with_unit(Figures(output, measure, last))
    return None


def _with_unit(found: Figures) -> Figures | None:
    """Steps need a unit, in each line or in one for all."""
    units = [unit.group() for _, figure in found.rows if (unit := _UNIT.search(figure))]
    if found.measure == "speedup" or len(units) == len(found.rows):
        return found
    rows = (
        [
            (label, figure if _UNIT.search(figure) else f"{figure} {units[0]}")
            for label, figure in found.rows
        ]
        if len(units) == 1
        else []
    )
    return found._replace(rows=rows) if rows else None


def has_list(text: str) -> bool:
    """Whether a text lists speeds of a run without speculation and of one with it."""
    lines = text.splitlines()
    return any(
        arms_in_lines(lines, place)
        or times_in_lines(lines, place)
        or figures_in_lines(lines, place)
        for place in range(len(lines))
        if lines[place].strip()
    )


def _without_shared_labels(rows: list[Listed]) -> list[Listed]:
    """Drop a label that all rows share."""
    shared = len({row.label for row in rows}) == 1
    return [row._replace(label="") for row in rows] if shared else rows


def _holds_comparison(rows: Sequence[Listed]) -> bool:
    states = [named(row.arm).state for row in rows]
    others = [row for row, state in zip(rows, states, strict=True) if state == ON]
    drafted = {_key(row.arm) for row in others}
    bases = [
        row
        for row, state in zip(rows, states, strict=True)
        if state in (OFF, WORD) or (not state and _key(row.arm) in drafted)
    ]
    known = {(row.label, _key(row.arm)) for row in bases}
    return any((row.label, _key(row.arm)) in known for row in others)


def _key(arm: str) -> str:
    """The rest of a name besides speculation, without model paths and remarks in brackets."""
    arm = OPTION.sub("", arm)
    plain = _LENGTH.sub("", DRAFTERS_NAME.sub("draft", _BRACKETS.sub("", _PATH.sub("", arm))))
    return " ".join(named(plain).rest.lower().split())
