"""Lengths of time as people give them, and the condition on rows that follows."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError

UNITS_NS = {"h": 3600 * 10**9, "d": 24 * 3600 * 10**9, "w": 7 * 24 * 3600 * 10**9}
DEFAULT = "7d"


def period(text: str) -> int:
    """A length of time such as 24h, 7d or 4w. [ns] Raises ArgumentTypeError for another text."""
    match = re.fullmatch(r"([1-9]\d*)([hdw])", text)
    if not match:
        raise ArgumentTypeError(f"{text!r} is not a period such as 24h, 7d or 4w")
    return int(match[1]) * UNITS_NS[match[2]]


def since_condition(column: str, since: int) -> str:
    """SQL condition that a time column lies at or after a time, ns since 1970."""
    return f"{column} >= fromUnixTimestamp64Nano(toInt64({since}))"


def evidence_condition(since: int) -> str:
    """SQL condition on blocks: what verdicts on the time since then rest on. since: ns since 1970.

    A cohort's blocks count where they began since then: it runs once and is looked at once. Blocks
    of open traffic are looked at while they grow, under intervals that hold at all looks of one
    growing set. A window that slides would start that set anew each time, so all blocks count of
    each epoch that ran since then, and of each crossover, whose sides are epochs of their own.
    """
    recent = since_condition("first_at", since)
    return f"""({recent}
        OR (epoch IN (SELECT epoch FROM block_time WHERE {recent})
            AND policy IN (SELECT policy FROM policy WHERE kind != 'cohort'))
        OR (policy IN (SELECT policy FROM block_time WHERE {recent})
            AND policy IN (SELECT policy FROM policy WHERE JSONHas(`table`, 'crossover'))))"""
