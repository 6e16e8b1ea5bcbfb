"""Numbers, intervals and times for a person."""

from __future__ import annotations

import math
from datetime import datetime

from specscope.report.model import (
    Interval,
)

WHOLE = 20.0  # percentages from here on need no decimals


def number(value: float | None, digits: int = 2) -> str:
    """A number for a person; a dash if it is not known."""
    return "–" if value is None else f"{value:.{digits}f}"


def times(value: float | None) -> str:
    """A ratio for a person; a dash if it is not known."""
    return "–" if value is None else f"{value:.2f}×"


def interval(low: float | None, high: float | None) -> str:
    """An interval for a person; a dash if it is not known."""
    return "–" if low is None or high is None else f"{low:.2f} – {high:.2f}"


def milliseconds(value: float | None) -> str:
    """A time for a person, in whole milliseconds; a dash if it is not known."""
    return "–" if value is None else f"{value:.0f} ms"


def percent(value: float | None) -> str:
    """A share for a person; a dash if it is not known."""
    return "–" if value is None else f"{value:.0%}".replace("%", " %")


def odds(value: float | None) -> str:
    """Odds of a cause, in words."""
    return "not ruled out" if value is None else f"{value:.0%}"


def moment(value: datetime) -> str:
    """A time for a person."""
    return value.strftime("%Y-%m-%d %H:%M UTC")


def percent_more(ratio: Interval) -> str:
    """A ratio as a percentage above 1, with its interval."""
    value, low, high = (
        None if one is None else 100.0 * (one - 1.0) for one in (ratio.value, ratio.low, ratio.high)
    )
    assert value is not None
    digits = 0 if abs(value) >= WHOLE else 1
    span = "" if low is None or high is None else f" ({low:+.{digits}f} to {high:+.{digits}f})"
    return f"{value:+.{digits}f} %{span}"


def short(value: float | None) -> str:
    """Three digits and no exponent; a dash if it is not known."""
    if value is None or not math.isfinite(value):
        return "–"
    if abs(value) >= 1000:
        rounded = round(value, 2 - math.floor(math.log10(abs(value))))
        return f"{rounded:,.0f}"
    return "0" if abs(value) < 1e-4 else f"{value:.3g}"


def quantity(one: Interval, unit: str) -> str:
    """A quantity with its unit and its interval."""
    known = None not in (one.low, one.high)
    limits = f" ({short(one.low)} to {short(one.high)})" if known else ""
    return f"{short(one.value)} {unit}{limits}"


def scaled(value: float | None, scale: float) -> str:
    """A number in the unit of the page; a dash if it is not known."""
    return short(None if value is None else scale * value)
