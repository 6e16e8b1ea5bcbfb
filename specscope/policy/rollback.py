"""Ways back: to an earlier table, and out of an experiment before its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specscope.errors import UsageError
from specscope.policy.stored import StoredPolicy, next_table, with_table
from specscope.policy.table import read_table


def rolled_back(
    policies: Sequence[StoredPolicy], *, now: int, to: int | None = None, author: str = ""
) -> dict[str, Any]:
    """An earlier table, under a new number and without blocks.

    to: the policy whose table it is. None ends the experiment that runs, or else goes back to the
    table that was in force before the present one. now: ns since 1970.

    Raises UsageError if there is none to go back to, or `to` put no table in force.
    """
    tables = with_table(policies)
    if not tables:
        raise UsageError("no table was ever applied")
    if to is None and tables[-1].runs(now):
        return stopped(policies, tables[-1], now=now, author=author)
    chosen = _before(policies, now) if to is None else _with_number(tables, to)
    table = chosen.table_at(now)
    return next_table(policies, table, now=now, author=author, restores=chosen.number)


def stopped(
    policies: Sequence[StoredPolicy], experiment: StoredPolicy, *, now: int, author: str = ""
) -> dict[str, Any]:
    """A policy that ends an experiment early: the table that would have held after it."""
    table = read_table(experiment.body.get("fallback") or experiment.body)
    return next_table(policies, table, now=now, author=author, stops=experiment.number)


def standing(policies: Sequence[StoredPolicy]) -> list[StoredPolicy]:
    """The policies that nobody took back, oldest first.

    A rollback removes those that followed the policy that it restores, so that a second rollback
    goes on from there.
    """
    kept: list[StoredPolicy] = []
    for policy in with_table(policies):
        numbers = [one.number for one in kept]
        if policy.restores in numbers:
            del kept[numbers.index(policy.restores) + 1 :]
            continue
        if policy.stops in numbers:
            del kept[numbers.index(policy.stops) :]
        kept.append(policy)
    return kept


def _before(policies: Sequence[StoredPolicy], now: int) -> StoredPolicy:
    """The policy to which one step back leads."""
    *earlier, newest = standing(policies)
    for policy in reversed(earlier):
        if policy.table_at(now) != newest.table_at(now):
            return policy
    raise UsageError("no table came before the one in force")


def _with_number(tables: Sequence[StoredPolicy], number: int) -> StoredPolicy:
    for policy in tables:
        if policy.number == number:
            return policy
    raise UsageError(f"policy {number} put no table in force: see `specscope gate history`")
