"""`specscope gate autopilot`: start an autopilot, which then runs in the service."""

from __future__ import annotations

import time
from argparse import Namespace

from specscope.errors import UsageError
from specscope.evaluate.experiment.blocks import BASELINE
from specscope.gate.arms import arm_words, check_distinct, read_arms
from specscope.gate.autopilot import first_step
from specscope.gate.console import author, chosen_service, open_store, say
from specscope.gate.experiments import proposed_of_store
from specscope.gate.plan import DEFAULT_BLOCK_S
from specscope.gate.sight import serving
from specscope.policy.arms import PolicyArm
from specscope.policy.autopilot import AutopilotState
from specscope.policy.stored import read_policies, table_in_force, write_policy
from specscope.policy.table import GateTable
from specscope_hook.gate import CURRENT


def autopilot(args: Namespace) -> int:
    """Start an autopilot, or describe its first window."""
    arms = read_arms([BASELINE, *(word for word in args.arms if word not in ("0", BASELINE))])
    proposed = None if args.block_s else proposed_of_store(args)
    block_s = args.block_s or (proposed.length_s if proposed else DEFAULT_BLOCK_S)
    if 3600.0 * args.window_h < 4 * (len(arms) + 1) * block_s:
        raise UsageError(f"{args.window_h:g} h are too short for blocks of {block_s:g} s")
    with open_store(args) as store:
        now = time.time_ns()
        policies = read_policies(store)
        table = table_in_force(policies, now, args.default_k)
        if table is None:
            raise UsageError(
                "no table is in force: give the engine's present draft length as --default-k"
            )
        tried = candidates(arms, table)
        state = AutopilotState(
            arms=tried,
            budget=args.budget,
            worst=args.worst,
            applies=args.apply,
            block_s=block_s,
            window_h=args.window_h,
            began=now,
            since=now,
            first=max((policy.number for policy in policies), default=0) + 1,
            closed_loop=args.closed_loop,
        )
        replicas, _ = serving(store, now)
        step = first_step(state, policies, table, max(1, replicas), now)
        does = "applies" if args.apply else "proposes"
        lines = [
            f"tries {', '.join(map(arm_words, tried))} together with k0 and the table in force, "
            "and "
            f"{does} a table that is better with 95 % confidence",
            f"{step.why} ({max(1, replicas)} replicas serve)",
        ]
        if not args.approve:
            return say(args, [*lines, "nothing is started (--approve)"], step.body)
        body = {**step.body, "author": author(args)}
        note = args.note or step.why
        number = write_policy(store, body, note, now, chosen_service(args, store))
    lines.append(
        f"policy {number} starts the autopilot, which runs in the service. `specscope gate "
        "history` shows its steps, and `gate rollback` ends it"
    )
    return say(args, lines, body)


def candidates(arms: tuple[PolicyArm, ...], table: GateTable) -> tuple[PolicyArm, ...]:
    """The candidate arms of a trial.

    Raises UsageError if two of them run the same table, or if none differs from the table in force.
    """
    chosen = tuple(
        arm for arm in arms if arm.name not in (BASELINE, CURRENT) and arm.runs(table) != table
    )
    check_distinct((PolicyArm(BASELINE), *chosen), table)
    if not chosen:
        raise UsageError("no arm differs from the table in force: name others with --arms")
    return chosen
