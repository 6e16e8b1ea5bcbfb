"""Types of command-line arguments that several commands take."""

from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError

MOST = 1e9
UNITS_NS = {"h": 3600 * 10**9, "d": 24 * 3600 * 10**9, "w": 7 * 24 * 3600 * 10**9}
PERIOD = "7d"


def positive(text: str) -> float:
    """A number above 0 and below 10^9. Raises ArgumentTypeError for other text."""
    try:
        value = float(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a number") from None
    if not 0 < value < MOST:
        raise ArgumentTypeError(f"{text!r} is not a number above 0 and below {MOST:g}")
    return value


def count(text: str) -> int:
    """A whole number of at least 1. Raises ArgumentTypeError for other text."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) < MOST:
        raise ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def whole(text: str) -> int:
    """A whole number of at least 0. Raises ArgumentTypeError for other text."""
    return 0 if text == "0" else count(text)


def draft_length(text: str) -> int:
    """A draft length, 0..255. Raises ArgumentTypeError for other text."""
    if not text.isascii() or not text.isdigit() or int(text) > 255:
        raise ArgumentTypeError(f"{text!r} is not a draft length, 0 to 255")
    return int(text)


def period(text: str) -> int:
    """A length of time such as 24h, 7d or 4w. [ns] Raises ArgumentTypeError for other text."""
    match = re.fullmatch(r"([1-9]\d*)([hdw])", text)
    if not match:
        raise ArgumentTypeError(f"{text!r} is not a period such as 24h, 7d or 4w")
    return int(match[1]) * UNITS_NS[match[2]]


def allowance(text: str) -> tuple[str, float]:
    """A class and its limit of time per output token, such as chat=50. [ms]"""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ArgumentTypeError(f"{text!r} is not a latency limit such as chat=50")
    return name, positive(value)


def add_judgement(parser: ArgumentParser) -> None:
    """Add the options that affect verdicts, equal for every command that judges."""
    parser.add_argument(
        "--since",
        type=period,
        default=PERIOD,
        help="how far back evidence reaches, such as 24h, 7d or 4w (default: 7d); experiments on "
        "live traffic count whole if their epoch ran since then",
    )
    parser.add_argument(
        "--default-k",
        type=draft_length,
        help="draft length that the engines use without specscope; needed if no table is in force",
    )
    parser.add_argument(
        "--tpot-ms",
        type=allowance,
        action="append",
        default=[],
        metavar="CLASS=MS",
        help="latency limit of a class: 95th percentile of the time per output token, such as "
        "chat=50 (default: the limits of the table in force)",
    )
    parser.add_argument(
        "--closed-loop",
        action="store_true",
        help="the clients wait for their answers before they ask again",
    )
