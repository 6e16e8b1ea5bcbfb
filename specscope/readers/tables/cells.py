"""Parse a cell of a hand-made table.

A cell holds a number with its unit, several runs (`116.9 / 120.7 / 120.7`), a spread (`95 ± 3`), a
fraction of counts (`538/660`), a remark in brackets (`30.3 (1.35x, 96% accept)`), a step between
arms (`a -> b`), or words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_TAG = re.compile(r"</?[a-zA-Z][^>]{0,60}>")
_MARKUP = re.compile(r"\*\*|__|~~|`|\\(?=[|*_~])|(?<![\w*])\*(?=\S)|(?<=\S)\*(?![\w*])")
_GROUPED = r"\d{1,3}(?:[, \u00a0\u202f]\d{3})+(?!\d)(?:\.\d+)?"
_SEPARATORS = str.maketrans("", "", ", \u00a0\u202f")
_QUANTITY = re.compile(
    rf"^[\s~≈<>≤≥=+\\*]*(?P<number>-?(?:{_GROUPED}|\d+,\d{{1,2}}(?!\d)|\d+(?:\.\d+)?(?:[eE][-+]?\d+)?))"
    r"(?!-[a-zA-Z]|\d|,\d)"
    r"(?P<range>\s*(?:-|–|—|to|…|\.\.)\s*~?(?P<high>\d+(?:\.\d+)?))?"
    r"\s*(?P<unit>[^\d\s(+,;|*±/→][^\s(,;±→]*)?"
)
_RATIO = re.compile(
    r"(?P<plain>\d+(?:\.\d+)?)\s*[x×](?![a-z0-9])|(?P<percent>[+\-−–]\d+(?:\.\d+)?)\s*%"
)
_ACCEPTED = re.compile(r"(\d+(?:\.\d+)?)\s*%\s*(?:draft\s*)?acc\w*", re.IGNORECASE)
_AT = re.compile(r"@\s*(\d+(?:\.\d+)?)(?:\s*[-–]\s*\d+(?:\.\d+)?)?\s*%")
"""An acceptance behind a speed (`118.8 t/s @ 52.1%`), or its range."""

_FRACTION = re.compile(
    r"(?<![\d./])(\d{1,3}(?:,\d{3})+|\d{1,12})\s*(?:/|of|out "
    r"of)\s*(\d{1,3}(?:,\d{3})+|\d{1,12})(?![\d./]*\d)"
)
_FIRST = re.compile(
    r"\b(?:pos(?:ition)?s?|first|1st|token)\b\s*#?[01]?\b|@\s*1\b|k=1\b", re.IGNORECASE
)
_MEAN = re.compile(r"\b(?:mean|avg|average)\b", re.IGNORECASE)
_STATISTIC = re.compile(
    r"\b(?:mean|avg|average|med(?:ian)?|p\d\d|min|max|std|best|worst|peak|typical|cold|warm)\b",
    re.IGNORECASE,
)
_SPREAD = re.compile(r"±|\+/-|\+-")
_RUNS = re.compile(r"\s*(?:/|;|\||,(?=\s))\s*")
_ARROW = re.compile(r"\s*(?:->|→|⇒|=>|➜)\s*")
_BRACKETS = re.compile(r"\(([^()]*)\)|\[([^\[\]]*)\]")

_RANGE_FIRST = re.compile(
    r"(\d[\d.]{0,12})\s?(\([^()]{1,40}\)|\[[^\[\]]{1,40}\])\s?(tok\w*/s(?:ec)?\b|t/s\b|tps\b)",
    re.IGNORECASE,
)

NARROW = 1.25
"""A range whose ends are no further apart is as good as its middle, if it states its unit."""

ALIKE = 1.5
"""Two figures in one cell are runs of one thing if they are no further apart; three or more are if
they are within twice that."""

LARGEST = 1e15
"""No quantity of a benchmark comes near it; arithmetic stays finite below it."""

LONGEST_CELL = 400
"""A longer text is no cell; its marks are left in."""


REMEMBERED = 4096
"""Several columns and shapes ask for one cell, so the answers to the last ones are kept."""


class Quantity(NamedTuple):
    """A number and its unit, in lower case; `` without a unit."""

    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a measure. `values` holds one number per run, and none if the cell is no
    measure."""

    values: tuple[float, ...] = ()
    unit: str = ""
    spread: float | None = None
    """Half of what stands behind `±`, in the cell's unit; what kind of spread is not said."""
    fraction: tuple[int, int] | None = None
    ratio: float | None = None
    """A speedup beside the value, 1 is even."""
    rate: float | None = None
    """An acceptance beside the value, 0..1."""
    accepts: bool = False
    """An acceptance, or a range of it, stands beside the value."""
    first_position: bool = False
    """The cell speaks of one draft position only."""

    @property
    def value(self) -> float | None:
        """Mean over the runs."""
        return sum(self.values) / len(self.values) if self.values else None


def bare(text: str) -> str:
    """A cell without the marks of Markdown and HTML."""
    if len(text) <= LONGEST_CELL and not set(text).isdisjoint("*_`~<[\\"):
        text = _MARKUP.sub("", _TAG.sub(" ", _LINK.sub(r"\1", text)))
    return text.strip()


def unit_first(text: str) -> str:
    """A text in which a range in brackets stands behind the unit: `30 (28-32) tok/s`."""
    return _RANGE_FIRST.sub(r"\1 \3 \2", text)


def read(text: str | None) -> Cell:
    """Parse a text; an empty cell if it has no number."""
    return Cell() if not text or len(text) > LONGEST_CELL else _read(text)


@lru_cache(REMEMBERED)
def _read(text: str) -> Cell:
    sides = steps(text)
    if len(sides) > 1 and all(quantity(side) for side in sides):
        return Cell()  # of which arm would the number be?
    text = sides[0] if sides else ""
    remarks = " ; ".join(a or b for a, b in _BRACKETS.findall(text))
    plain = _AT.sub(" ", _BRACKETS.sub(" ", text)).replace("−", "-").strip()
    found = _fraction(plain) or _fraction(remarks)
    rate, at = _ACCEPTED.search(text), _AT.search(text)
    rate = None if rate and text.startswith(rate.group()) else rate
    plain = _ACCEPTED.sub(" ", plain).strip() if rate else plain
    spread = None
    parts = _SPREAD.split(plain, maxsplit=1)
    if len(parts) == 2:
        plain = parts[0]
        deviation = quantity(parts[1])
        spread = deviation.value if deviation else None
    pieces = _of_one_statistic([piece for piece in _RUNS.split(plain) if piece])
    runs = [run for piece in pieces if (run := quantity(piece))]
    values: tuple[float, ...] = ()
    if len(runs) == len(pieces) > 1:
        values = tuple(run.value for run in runs) if _alike([run.value for run in runs]) else ()
    elif runs and (len(pieces) == 1 or quantity(plain) is not None):
        first = quantity(plain)
        values = (first.value,) if first and len(pieces) <= 2 else ()
        runs = [first] if first else []
    unit = next((run.unit for run in reversed(runs) if run.unit), "")
    return Cell(
        values,
        unit,
        spread if values else None,
        found,
        ratio_of(remarks),
        float(rate.group(1)) / 100 if rate else None,
        bool(at),
        bool(_FIRST.search(text)),
    )


def _of_one_statistic(pieces: list[str]) -> list[str]:
    """The mean, else the median, if the pieces are statistics of one set of runs (`41.3 mean / 41.4
    median`); otherwise all of them."""
    if not any(map(_STATISTIC.search, pieces)):
        return pieces
    means = [piece for piece in pieces if _MEAN.search(piece)]
    medians = [piece for piece in pieces if "med" in piece.lower()]
    return (means or medians)[:1] or pieces[:1]


def steps(text: str | None) -> list[str]:
    """The sides of an arrow; a single one without an arrow."""
    return [side for side in _ARROW.split(text or "") if side.strip()]


def ratio_of(text: str) -> float | None:
    """A speedup in a text: `1.47x`, `+52%`, `-28 %`; None if there is none."""
    match = _RATIO.search(text)
    if match is None:
        return None
    if match.group("plain"):
        return float(match.group("plain")) or None
    value = 1 + float(match.group("percent").replace("−", "-").replace("–", "-")) / 100
    return value if value > 0 else None


def rates(text: str | None) -> tuple[float, ...]:
    """A list of rates in one cell (`90.5% 80.5% 73.6%`, `0.9, 0.8, 0.7`), 0..1; empty for
    anything else."""
    pieces = re.split(r"[\s,;/|]+", (text or "").strip("()[] "))
    found = [quantity(piece) for piece in pieces if piece]
    if len(found) < 2 or None in found:
        return ()
    percent = any(q is not None and (q.unit == "%" or q.value > 1) for q in found)
    values = tuple(q.value / (100 if percent else 1) for q in found if q is not None)
    return values if all(0 <= value <= 1 for value in values) else ()


def quantity(text: str | None) -> Quantity | None:
    """The number that a cell begins with, and its unit; None for words or nothing.

    `1,234.5 tok/s`, `~62%`, `1.6x`, `94 ms`. A comma before three digits separates thousands,
    before one or two digits it is a decimal comma. A narrow range with a unit or a fraction (`10-11
    tok/s`) gives its middle, any other range nothing. `8K` keeps its unit; `2.7k tok/s` is 2700.
    """
    return _quantity(text[:LONGEST_CELL]) if text else None


@lru_cache(REMEMBERED)
def _quantity(text: str) -> Quantity | None:
    match = _QUANTITY.match(text.replace("\\", "/").replace("−", "-"))
    if match is None or (match.group("range") and not _is_narrow(match)):
        return None
    number = match.group("number")
    grouped = re.fullmatch(rf"-?{_GROUPED}", number)
    value = float(number.translate(_SEPARATORS) if grouped else number.replace(",", "."))
    if match.group("range"):
        value = (value + float(match.group("high"))) / 2
    unit = (match.group("unit") or "").strip("*±/|.").lower()
    if unit == "k" and re.match(r"\s*tok", text[match.end() :], re.IGNORECASE):
        value, unit = value * 1000, "tok/s"
    if not abs(value) < LARGEST:  # nor infinity
        return None
    return Quantity(value, "" if unit[:1].isdigit() else unit)


def _fraction(text: str) -> tuple[int, int] | None:
    match = _FRACTION.search(text)
    if match is None:
        return None
    part, whole = (int(group.replace(",", "")) for group in match.groups())
    return (part, whole) if part <= whole and whole else None


def _alike(values: Sequence[float]) -> bool:
    low, high = min(values), max(values)
    return low > 0 and high <= low * (ALIKE if len(values) == 2 else 2 * ALIKE)


def _is_narrow(match: re.Match[str]) -> bool:
    try:
        low, high = float(match.group("number")), float(match.group("high"))
    except ValueError:
        return False
    stated = bool(match.group("unit")) or "." in match.group("number") + match.group("high")
    return stated and 0 < low <= high <= NARROW * low
