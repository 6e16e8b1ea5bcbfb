"""`specscope gate apply` and `rollback`: a table is put in force, as a new policy."""

from __future__ import annotations

import time
from argparse import Namespace

from specscope.errors import UsageError
from specscope.evidence.read import Evidence
from specscope.gate import plan as planning
from specscope.gate import show as views
from specscope.gate.console import (
    advise,
    chosen_service,
    in_force,
    open_store,
    read_store,
    say,
    wanted_table,
)
from specscope.policy.stored import (
    HoldOut,
    newest_with_table,
    next_table,
    read_policies,
    rolled_back,
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
            return say(args, ["no difference: nothing is applied"], {"policy": None})
        hold_out = None
        if args.hold_out:
            _within_budget(args, evidence)
            hold_out = HoldOut(args.hold_out, args.block_s, args.block_s / 4)
        body = next_table(evidence.policies, table, now=now, hold_out=hold_out)
        if args.dry_run:
            return say(args, [*lines, "nothing is written (--dry-run)"], body)
        number = write_policy(store, body, args.note, now, chosen_service(args, store))
    return say(args, [*lines, f"policy {number} is in force within seconds"], body)


def _within_budget(args: Namespace, evidence: Evidence) -> None:
    """Raises UsageError for a hold-out that may cost more than exploration is allowed."""
    allowed = planning.affordable(advise(args, evidence).verdicts)
    if args.hold_out > allowed and not args.over_budget:
        raise UsageError(
            f"a hold-out of {args.hold_out:.1%} may cost over {planning.CAPACITY_BUDGET:.0%} of "
            f"capacity, {allowed:.1%} may not: take that, or say --over-budget"
        )


def rollback(args: Namespace) -> int:
    """Put the table before in force again."""
    with open_store(args) as store:
        policies = read_policies(store)
        body = rolled_back(policies)
        before = newest_with_table(policies)
        lines = views.diff_lines(before.table, read_table(body)) if before else []
        service = chosen_service(args, store)
        number = write_policy(store, body, args.note or "rollback", time.time_ns(), service)
    return say(args, [*lines, f"policy {number} is in force within seconds"], body)
