"""Types of command-line arguments that several commands take."""

from __future__ import annotations

from argparse import ArgumentTypeError

MOST = 1e9


def positive(text: str) -> float:
    """A number above 0, below a thousand million. Raises ArgumentTypeError for another text."""
    try:
        value = float(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a number") from None
    if not 0 < value < MOST:
        raise ArgumentTypeError(f"{text!r} is not a number above 0 and below {MOST:g}")
    return value


def count(text: str) -> int:
    """A whole number from 1 on. Raises ArgumentTypeError for another text."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) < MOST:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def whole(text: str) -> int:
    """A whole number from 0 on. Raises ArgumentTypeError for another text."""
    return 0 if text == "0" else count(text)


def draft_length(text: str) -> int:
    """Tokens that are proposed, 0..255. Raises ArgumentTypeError for another text."""
    if not text.isascii() or not text.isdigit() or int(text) > 255:
        raise ArgumentTypeError(f"{text!r} is not a draft length, 0 to 255")
    return int(text)
