"""Numbers, intervals and times for a person."""

from __future__ import annotations

from datetime import datetime

from specscope.report.model import (
    Interval,
)


def number(value: float | None, digits: int = 2) -> str:
    """A number for a person; a dash where it is not known."""
    return "–" if value is None else f"{value:.{digits}f}"


def times(value: float | None) -> str:
    """A ratio for a person; a dash if it is not known."""
    return "–" if value is None else f"{value:.2f}×"


def interval(low: float | None, high: float | None) -> str:
    """An interval for a person; a dash where it is not known, as from one pair."""
    return "–" if low is None or high is None else f"{low:.2f} – {high:.2f}"


def milliseconds(value: float | None) -> str:
    """A time for a person, in whole milliseconds; a dash if it is not known."""
    return "–" if value is None else f"{value:.0f} ms"


def percent(value: float | None) -> str:
    """A share for a person; a dash if it is not known."""
    return "–" if value is None else f"{value:.0%}".replace("%", " %")


def odds(value: float | None) -> str:
    """Odds of a cause for a person."""
    return "not ruled out" if value is None else f"{value:.0%}"


def moment(value: datetime) -> str:
    """A time for a person."""
    return value.strftime("%Y-%m-%d %H:%M UTC")


def percent_more(ratio: Interval) -> str:
    """How much more a ratio is than 1, with its interval."""
    span = (
        ""
        if ratio.low is None or ratio.high is None
        else f" ({100 * (ratio.low - 1):+.1f} to {100 * (ratio.high - 1):+.1f})"
    )
    return f"{100 * (ratio.value - 1):+.1f} %{span}"


def quantity(one: Interval) -> str:
    """A quantity with its interval, three digits each."""
    span = "" if one.low is None or one.high is None else f" ({one.low:.3g} to {one.high:.3g})"
    return f"{one.value:.3g}{span}"


def scaled(value: float | None, scale: float) -> str:
    """A number in the unit of the page; a dash if it is not known."""
    return "–" if value is None else f"{scale * value:.3g}"
