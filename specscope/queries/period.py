"""Conditions on rows that follow from a period."""

from __future__ import annotations


def since_condition(column: str, since: int) -> str:
    """SQL condition that a time column lies at or after a time, ns since 1970."""
    return f"{column} >= fromUnixTimestamp64Nano(toInt64({since}))"


def evidence_condition(since: int) -> str:
    """SQL condition on blocks: what verdicts on the time since then rest on. since: ns since 1970.

    A cohort's blocks count where they began since then: it runs once and is looked at once. Blocks
    of live traffic are looked at while they grow, under intervals that hold at all looks of one
    growing set. A window that slides would start that set anew each time, so all blocks count of
    each epoch that ran since then, and of each crossover, whose sides are epochs of their own.
    """
    recent = since_condition("first_at", since)
    return f"""({recent}
        OR (epoch IN (SELECT epoch FROM block_time WHERE {recent})
            AND policy IN (SELECT policy FROM policy WHERE kind != 'cohort'))
        OR (policy IN (SELECT policy FROM block_time WHERE {recent})
            AND policy IN (SELECT policy FROM policy WHERE JSONHas(`table`, 'crossover'))))"""
