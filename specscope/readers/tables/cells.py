"""What stands in a cell of a table that a person made: markup, units, thousands, remarks."""

from __future__ import annotations

import re
from typing import NamedTuple

_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_TAG = re.compile(r"</?[a-zA-Z][^>]{0,60}>")
_MARKUP = re.compile(r"\*\*|__|~~|`|\\(?=[|*_~])")
_GROUPED = r"\d{1,3}(?:[, \u00a0\u202f]\d{3})+(?!\d)(?:\.\d+)?"
_SEPARATORS = str.maketrans("", "", ", \u00a0\u202f")
_QUANTITY = re.compile(
    rf"^[\s~≈<>≤≥=+\\*]*(?P<number>-?(?:{_GROUPED}|\d+,\d{{1,2}}(?!\d)|\d+(?:\.\d+)?(?:[eE][-+]?\d+)?))"
    r"(?!-[a-zA-Z]|\d|,\d)"
    r"(?P<range>\s*(?:-|–|—|to|…|\.\.)\s*~?(?P<high>\d+(?:\.\d+)?))?"
    r"\s*(?P<unit>[^\d\s(+,;|*][^\s(,;]*)?"
)

NARROW = 1.25
"""A range whose ends are no further apart is as good as its middle, if it states its unit."""

LARGEST = 1e15
"""No quantity of a benchmark comes near it; arithmetic stays finite below it."""

LONGEST_CELL = 400
"""A longer text is no cell; its marks are left in."""


class Quantity(NamedTuple):
    """A number and the unit behind it, in lower case; `` where there is none."""

    value: float
    unit: str


def bare(text: str) -> str:
    """A cell without the marks of Markdown and HTML."""
    if len(text) <= LONGEST_CELL and not set(text).isdisjoint("*_`~<[\\"):
        text = _MARKUP.sub("", _TAG.sub(" ", _LINK.sub(r"\1", text)))
    return text.strip()


def quantity(text: str | None) -> Quantity | None:
    """The number that a cell begins with, and its unit; None for words or nothing.

    `1,234.5 tok/s`, `~62%`, `1.6x`, `94 ms`, `58.8 / 54.3 %` (the first). A comma with three digits
    behind it separates thousands, with one or two it is a decimal comma. Of a narrow range with a
    unit (`10-11 tok/s`) it is the middle, of any other range nothing. No size is stated exactly
    by `2K`, whose unit is left to the caller.
    """
    if not text:
        return None
    match = _QUANTITY.match(text)
    if match is None or (match.group("range") and not _is_narrow(match)):
        return None
    number = match.group("number")
    grouped = re.fullmatch(rf"-?{_GROUPED}", number)
    value = float(number.translate(_SEPARATORS) if grouped else number.replace(",", "."))
    if match.group("range"):
        value = (value + float(match.group("high"))) / 2
    if not abs(value) < LARGEST:  # nor infinity
        return None
    unit = (match.group("unit") or "").strip("*±/|.").lower()
    return Quantity(value, "" if unit[:1].isdigit() else unit)


def _is_narrow(match: re.Match[str]) -> bool:
    try:
        low, high = float(match.group("number")), float(match.group("high"))
    except ValueError:
        return False
    return bool(match.group("unit")) and 0 < low <= high <= NARROW * low
