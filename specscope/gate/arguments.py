"""Types of the gate's command-line arguments. Each raises ArgumentTypeError for invalid text."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError

NAME = r"[\w.:-]+"  # what a router calls a server
ADDRESS = r"([\w.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}"


def share(text: str) -> float:
    """A share in 0..1, given as 0.05 or as 5%."""
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a share such as 0.05 or 5%") from None
    if not 0 < value <= 1:
        raise ArgumentTypeError(f"{text!r} is not within 0 and 1")
    return value


def lengths(text: str) -> list[int]:
    """Draft lengths, such as 0,2,4: at least two, with 0 among them."""
    try:
        found = sorted({int(word) for word in text.split(",")})
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no list of draft lengths such as 0,2,4") from None
    if len(found) < 2 or found[0] != 0 or found[-1] > 255:
        raise ArgumentTypeError(f"{text!r}: name 0 and at least one other draft length")
    return found


def words(text: str) -> list[str]:
    """Words with commas between, none of them empty."""
    found = [word.strip() for word in text.split(",")]
    if not all(found):
        raise ArgumentTypeError(f"{text!r} has an empty word between its commas")
    return found


def replicas(text: str) -> tuple[str, ...]:
    """Names of replicas, such as r0,r1, that are valid in a router's configuration."""
    found = tuple(dict.fromkeys(name for name in text.split(",") if name))
    if not found:
        raise ArgumentTypeError(f"{text!r} names no replica")
    for name in found:
        if not re.fullmatch(NAME, name):
            raise ArgumentTypeError(f"{name!r} is not a replica's name: letters, digits, . _ : -")
    return found


def address(text: str) -> tuple[str, str]:
    """A replica and its address, such as r0=10.0.0.1:8000."""
    name, _, where = text.partition("=")
    if not name or not re.fullmatch(ADDRESS, where):
        raise ArgumentTypeError(f"{text!r} is not an address such as r0=10.0.0.1:8000")
    return name, where
