"""Rollbacks: restore an earlier table, or end an experiment early."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specscope.errors import UsageError
from specscope.policy.stored import StoredPolicy, next_table, with_table
from specscope.policy.table import read_table


def rolled_back(
    policies: Sequence[StoredPolicy], *, now: int, to: int | None = None, author: str = ""
) -> dict[str, Any]:
    """A new policy with an earlier table and without blocks.

    to: number of the policy to restore. None ends the running experiment, or else restores the
    table before the present one. now: ns since 1970.

    Raises UsageError without an earlier table, or if policy `to` put no table in force.
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
    """A policy that ends an experiment early, with the table for after its end."""
    table = read_table(experiment.body.get("fallback") or experiment.body)
    return next_table(policies, table, now=now, author=author, stops=experiment.number)


def standing(policies: Sequence[StoredPolicy]) -> list[StoredPolicy]:
    """The policies that no rollback revoked, oldest first.

    A rollback revokes all policies after the restored one, so a second rollback continues from
    there.
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
    """The policy one step back."""
    *earlier, newest = standing(policies)
    for policy in reversed(earlier):
        if policy.table_at(now) != newest.table_at(now):
            return policy
    raise UsageError("there is no earlier table")


def _with_number(tables: Sequence[StoredPolicy], number: int) -> StoredPolicy:
    for policy in tables:
        if policy.number == number:
            return policy
    raise UsageError(f"policy {number} put no table in force: see `specscope gate history`")
