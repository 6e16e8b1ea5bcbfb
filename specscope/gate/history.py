"""`specscope gate history`: author, time and reason of each change, and the replicas that follow
it."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from specscope.gate.console import open_store, say
from specscope.gate.show import diff_lines
from specscope.policy.events import kind_of
from specscope.policy.following import replicas_by_policy
from specscope.policy.stored import StoredPolicy, newest_with_table, read_policies
from specscope.policy.table import GateTable

SHOWN = 20


@dataclass(frozen=True, slots=True)
class GateChange:
    """A policy in the history. at: ns since 1970; kind: see EVENT_KINDS.

    changes: lines of the difference to the table before. followed_by: replicas whose newest round
    ran under it. in_force: whether it is the policy that hooks should follow.
    """

    policy: int
    at: int
    kind: str
    author: str
    note: str
    restores: int | None
    stops: int | None
    changes: tuple[str, ...]
    followed_by: tuple[str, ...]
    in_force: bool
    fault: str


def history(args: Namespace) -> int:
    """Print the changes, newest first."""
    with open_store(args) as store:
        policies = read_policies(store)
        followed = replicas_by_policy(store, time.time_ns())
    entries = entries_of(policies, followed)
    running = sum(map(len, followed.values()))
    shown = entries if args.all else entries[:SHOWN]
    lines = [line for entry in shown for line in _lines(entry, running)]
    if len(shown) < len(entries):
        lines.append(f"{len(entries) - len(shown)} older ones are not shown: --all")
    plain = {"policies": [asdict(one) for one in entries], "replicas": running}
    return say(args, lines or ["there is no policy yet"], plain)


def entries_of(
    policies: Sequence[StoredPolicy], followed: dict[int | None, list[str]]
) -> list[GateChange]:
    """Every policy with its changes, newest first."""
    newest = newest_with_table(policies)
    table: GateTable | None = None
    entries = []
    for policy in policies:
        fault = policy.fault
        changes: list[str] = []
        if not fault:
            changes = diff_lines(table or GateTable(), policy.table)
            table = policy.table
        entries.append(
            GateChange(
                policy=policy.number,
                at=policy.created_at,
                kind=kind_of(policy.body),
                author=policy.author,
                note=policy.note,
                restores=policy.restores,
                stops=policy.stops,
                changes=tuple(changes),
                followed_by=tuple(followed.get(policy.number, ())),
                in_force=newest is not None and policy.number == newest.number,
                fault=fault,
            )
        )
    return entries[::-1]


def _lines(entry: GateChange, running: int) -> list[str]:
    at = datetime.fromtimestamp(entry.at / 1e9, UTC).strftime("%Y-%m-%d %H:%M")
    what = entry.kind
    if entry.restores is not None:
        what = f"rollback to {entry.restores}"
    elif entry.stops is not None:
        what = f"experiment {entry.stops} stopped"
    marks = []
    if entry.in_force or entry.followed_by:
        marks.append(f"followed by {len(entry.followed_by)} of {running} replicas")
    if entry.fault:
        marks.append(f"never in force: {entry.fault}")
    by = f" by {entry.author}" if entry.author else ""
    note = f": {entry.note}" if entry.note else ""
    mark = f" [{'; '.join(marks)}]" if marks else ""
    return [f"{entry.policy:>4}  {at}  {what}{by}{note}{mark}", *_indented(entry.changes)]


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"      {line}" for line in lines]
