"""`specscope gate apply`, `rollback` and `detach`: change the table in force with a new policy."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from specscope.errors import UsageError
from specscope.evidence.read import Evidence
from specscope.gate import plan as planning
from specscope.gate import show as views
from specscope.gate.console import (
    advise,
    author,
    chosen_service,
    in_force,
    open_store,
    read_store,
    say,
    wanted_table,
)
from specscope.policy.rollback import rolled_back
from specscope.policy.stored import (
    HoldOut,
    detached,
    newest_with_table,
    next_table,
    read_policies,
    write_policy,
)
from specscope.policy.table import read_table


def apply(args: Namespace) -> int:
    """Put a table in force."""
    now = time.time_ns()
    with open_store(args) as store:
        evidence = read_store(store, args)
        table = wanted_table(args, evidence)
        lines = views.diff_lines(in_force(args, evidence), table)
        newest = newest_with_table(evidence.policies)
        # Blocks of a hold-out, or of a calibration that was cut off, end with a policy without.
        if not lines and newest and newest.kind == "table" and not args.hold_out:
            return say(args, ["no difference: nothing to apply"], {"policy": None})
        hold_out = None
        if args.hold_out:
            _within_budget(args, evidence)
            hold_out = HoldOut(args.hold_out, args.block_s, args.block_s / 4)
        body = next_table(evidence.policies, table, now=now, hold_out=hold_out, author=author(args))
        if args.dry_run:
            return say(args, [*lines, "nothing is written (--dry-run)"], body)
        number = write_policy(store, body, args.note, now, chosen_service(args, store))
    return say(args, [*lines, f"policy {number} is in force within seconds"], body)


def _within_budget(args: Namespace, evidence: Evidence) -> None:
    """Raises UsageError if a hold-out may cost more than the exploration budget."""
    allowed = planning.affordable(advise(args, evidence).verdicts)
    if args.hold_out > allowed and not args.over_budget:
        raise UsageError(
            f"a hold-out of {args.hold_out:.1%} may cost over {planning.CAPACITY_BUDGET:.0%} of "
            f"capacity, {allowed:.1%} may not: take that, or say --over-budget"
        )


def rollback(args: Namespace) -> int:
    """Restore an earlier table, or end the running experiment."""
    now = time.time_ns()
    with open_store(args) as store:
        policies = read_policies(store)
        body = rolled_back(policies, now=now, to=args.to, author=author(args))
        before = newest_with_table(policies)
        lines = views.diff_lines(before.table_at(now), read_table(body)) if before else []
        number = write_policy(store, body, args.note, now, chosen_service(args, store))
    what = f"ends experiment {body['stops']}" if "stops" in body else _restored(body)
    return say(args, [*lines, f"policy {number} {what} within seconds"], body)


def _restored(body: Mapping[str, Any]) -> str:
    return f"puts the table of policy {body['restores']} in force"


def detach(args: Namespace) -> int:
    """Turn every hook off until its process restarts."""
    now = time.time_ns()
    with open_store(args) as store:
        body = detached(read_policies(store), author=author(args))
        if not args.approve:
            return say(args, ["every hook would detach; add --approve to do it"], body)
        number = write_policy(store, body, args.note, now, chosen_service(args, store))
    line = f"policy {number} detaches every hook within seconds; engines continue without records"
    return say(args, [line], body)
