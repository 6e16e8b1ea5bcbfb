"""`specscope gate show`, `recommend`, `diff` and `export`: the table in force and the recommended
one."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import asdict

from specscope.errors import ExitCode, UsageError
from specscope.gate import show as views
from specscope.gate.console import (
    advise,
    in_force,
    open_store,
    read_store,
    say,
    wanted_table,
    write_json,
)
from specscope.gate.export import export as export_table
from specscope.gate.recommend import Recommendation
from specscope.policy.stored import newest_with_table, read_policies, unread


def show(args: Namespace) -> int:
    """Print the table in force."""
    with open_store(args) as store:
        policies = read_policies(store)
    found, notes = newest_with_table(policies), unread(policies)
    if found is None:
        return say(args, ["no table is in force: the engine uses its own draft length", *notes], {})
    header = f"policy {found.number} ({found.kind}): {found.note or 'no note'}"
    return say(args, [header, *views.table_lines(found.table), *notes], dict(found.body))


def recommend(args: Namespace) -> int:
    """Print the recommended table. Unsettled if no verdict decides."""
    with open_store(args) as store:
        found = advise(args, read_store(store, args))
    plain = views.recommendation_json(found)
    if args.out:
        write_json(args.out, plain)
    say(args, views.recommendation_lines(found), plain)
    return ExitCode.of_answer(_settled(found))


def diff(args: Namespace) -> int:
    """Print the difference between both tables. Exits as unsettled (3) if they differ."""
    with open_store(args) as store:
        evidence = read_store(store, args)
        table = wanted_table(args, evidence)
    old = in_force(args, evidence)
    lines = views.diff_lines(old, table)
    plain = {"old": old.as_json(), "new": table.as_json(), "changes": bool(lines)}
    say(args, lines or ["no difference"], plain)
    return ExitCode.of_answer(not lines)


def export(args: Namespace) -> int:
    """Print the table as settings of an engine. Exits as unsettled (3) without any decision."""
    with open_store(args) as store:
        evidence = read_store(store, args)
    if evidence.table is None and args.default_k is None:
        raise UsageError(
            "no table is in force: give the engine's present draft length as --default-k, which "
            "undecided traffic keeps"
        )
    found = advise(args, evidence)
    out = export_table(args.engine, found.new, found.moves, args.largest_batch, routed=found.routes)
    lines = [json.dumps(out.settings)]
    lines.append(f"loss against the full table: {_percent(out.regret)}")
    lines += [f"    {reason}" for reason in out.unknown]
    if out.router:
        lines.append(f"with a router and these rules: {_percent(out.routed_regret)}")
        lines += [f"    {rule['class']} -> {rule['pool']}" for rule in out.router]
    say(args, [*lines, *out.limits], asdict(out))
    return ExitCode.of_answer(_settled(found))


def _settled(found: Recommendation) -> bool:
    """Whether any verdict behind it is decided."""
    judged = [*found.verdicts, *found.assessment.crossovers]
    judged += [move.place.verdict for move in found.moves]  # replays among them
    return bool(found.routes) or any(verdict.action.settles for verdict in judged)


def _percent(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1%} of throughput"
