"""The gate's commands: read, call, write lines or JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from specscope.errors import InputError, StoreError, UsageError
from specscope.evaluate.untried import untried
from specscope.gate import calibration
from specscope.gate import plan as planning
from specscope.gate import show as views
from specscope.gate import swap as swaps
from specscope.gate.export import export as export_table
from specscope.gate.policies import (
    HoldOut,
    newest_with_table,
    next_table,
    read_policies,
    rolled_back,
    write_policy,
)
from specscope.gate.recommend import Recommendation
from specscope.gate.remote import Remote
from specscope.gate.replayed import read_replays, replayed_cells
from specscope.gate.residence import ProposedBlocks, proposed_blocks
from specscope.gate.session import Reading, read, recommendation
from specscope.gate.table import GateTable, read_table
from specscope.period import DEFAULT, period
from specscope.settings import store_dsn
from specscope.store import Store


def show(args: Namespace) -> int:
    """The table in force."""
    with _store(args) as store:
        policies = read_policies(store)
    found = newest_with_table(policies)
    if found is None:
        return _say(args, ["no table is in force: the engine's own draft length runs"], {})
    header = f"policy {found.number} ({found.kind}): {found.note or 'no note'}"
    return _say(args, [header, *views.table_lines(found.table)], dict(found.body))


def recommend(args: Namespace) -> int:
    """What should be in force."""
    with _store(args) as store:
        found = _advice(args, _read(store, args))
    plain = views.recommendation_json(found)
    if args.out:
        _write(args.out, plain)
    return _say(args, views.recommendation_lines(found), plain)


def plan(args: Namespace) -> int:
    """How long verdicts will take; of a crossover, what its router must do and when."""
    if args.crossover:
        return _plan_crossover(args)
    with _store(args) as store:
        reading = _read(store, args)
        proposed = proposed_blocks(store, time.time_ns() - args.since)
    blocks = reading.evidence.blocks
    verdicts = _advice(args, reading).verdicts  # by the rules by which the gate will decide
    design = "closed_loop" if args.closed_loop else reading.design
    others = untried(blocks, reading.evidence.parts, verdicts, design)
    steps = planning.plan(
        verdicts,
        replicas=args.replicas or planning.replica_count(blocks),
        block_s=args.block_s or planning.block_seconds(blocks),
        share=args.share,
    )
    plain = {
        "steps": [asdict(step) for step in steps],
        "untried": [asdict(one) for one in others],
        "blocks": proposed.as_json() if proposed else None,
    }
    lines = [*planning.plan_lines(steps), *planning.untried_lines(others)]
    return _say(args, lines + ([str(proposed)] if proposed else []), plain)


def _plan_crossover(args: Namespace) -> int:
    swap = _swap(args, args.block_s or 240.0)
    slots = swaps.schedule(swap, swap.first_block(time.time_ns()), args.hours)
    addresses = dict(args.address)
    text = (
        swaps.haproxy(swap, addresses) if args.router == "haproxy" else swaps.nginx(swap, addresses)
    )
    names = {"haproxy": "specscope-crossover.cfg", "nginx": "specscope-crossover.conf"}
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / names[args.router]).write_text(text)
        (args.out / swaps.MAP).write_text(swaps.swap_map(slots))
    lines = [
        f"block {slot.block} from {slot.begins}: stream 0 {slot.stream_0}, stream 1 {slot.stream_1}"
        for slot in slots
    ]
    lines += [
        f"{len(slots) // 2} pairs in {args.hours:g} hours; a verdict takes 20 of each deploy",
        "swap the configurations of the sides half-way: only then does their hardware cancel",
        "", text,
    ]  # fmt: skip
    plain = {"slots": [asdict(slot) for slot in slots], "router": text, **asdict(swap)}
    return _say(args, lines, plain)


def _swap(args: Namespace, block_s: float) -> swaps.Swap:
    left, right = args.crossover
    return swaps.Swap(left, right, max(1, round(block_s)), args.seed)


def diff(args: Namespace) -> int:
    """What would change."""
    with _store(args) as store:
        reading = _read(store, args)
        table = _wanted(args, reading)
    lines = views.diff_lines(reading.table, table)
    plain = {"old": reading.table.as_json(), "new": table.as_json(), "changes": bool(lines)}
    return _say(args, lines or ["no difference"], plain)


def apply(args: Namespace) -> int:
    """Put a table in force."""
    now = time.time_ns()
    with _store(args) as store:
        reading = _read(store, args)
        table = _wanted(args, reading)
        lines = views.diff_lines(reading.table, table)
        in_force = newest_with_table(reading.policies)
        # Blocks of a hold-out, or of a calibration that was cut off, end with a policy without.
        if not lines and in_force and in_force.kind == "table" and not args.hold_out:
            return _say(args, ["no difference: nothing is applied"], {"policy": None})
        hold_out = None
        if args.hold_out:
            _within_budget(args, reading)
            hold_out = HoldOut(args.hold_out, args.block_s, args.block_s / 4)
        body = next_table(reading.policies, table, now=now, hold_out=hold_out)
        if args.dry_run:
            return _say(args, [*lines, "nothing is written (--dry-run)"], body)
        number = write_policy(store, body, args.note, now, _service(args, store))
    return _say(args, [*lines, f"policy {number} is in force within seconds"], body)


def _within_budget(args: Namespace, reading: Reading) -> None:
    """Raises UsageError for a hold-out that may cost more than exploration is allowed."""
    allowed = planning.affordable(_advice(args, reading).verdicts)
    if args.hold_out > allowed and not args.over_budget:
        raise UsageError(
            f"a hold-out of {args.hold_out:.1%} may cost over {planning.CAPACITY_BUDGET:.0%} of "
            f"capacity, {allowed:.1%} may not: take that, or say --over-budget"
        )


def rollback(args: Namespace) -> int:
    """Put the table before in force again."""
    with _store(args) as store:
        policies = read_policies(store)
        body = rolled_back(policies)
        lines = views.diff_lines(policies[-1].table, read_table(body))
        note, service = args.note or "rollback", _service(args, store)
        number = write_policy(store, body, note, time.time_ns(), service)
    return _say(args, [*lines, f"policy {number} is in force within seconds"], body)


def calibrate(args: Namespace) -> int:
    """Run every block as an experiment for a while, then put the table back."""
    if bool(args.k) == bool(args.crossover):
        raise UsageError("either draft lengths (--k) or two sides (--crossover) are compared")
    # The router of a crossover has its own schedule, whose length nothing here may change.
    proposed = None if args.block_s or args.crossover else _proposed(args)
    block_s = args.block_s or (proposed.length_s if proposed else planning.DEFAULT_BLOCK_S)
    swap = _swap(args, block_s) if args.crossover else None
    window = calibration.Window(tuple(args.k or ()), args.minutes, block_s, swap)
    lines = calibration.describe(window) + ([str(proposed)] if proposed else [])
    if not args.approve:
        return _say(args, [*lines, "nothing is started (--approve)"], asdict(window))
    with _store(args) as store:
        service = _service(args, store)
        number = calibration.run(
            store, window, say=_aside, default_k=args.default_k, service=service
        )
    return _say(args, [f"policy {number} has put the table back"], {"policy": number})


def _proposed(args: Namespace) -> ProposedBlocks | None:
    """Blocks for the residence of the last week's requests; None without a store to ask."""
    if not args.store and not os.environ.get("SPECSCOPE_STORE"):
        return None
    try:
        with _store(args) as store:
            return proposed_blocks(store, time.time_ns() - period(DEFAULT))
    except StoreError:
        if args.approve:
            raise
        return None  # what would run can be said without a store


def export(args: Namespace) -> int:
    """The table in an engine's own words."""
    with _store(args) as store:
        found = _advice(args, _read(store, args))
    if not found.moves and args.engine != "specscope":
        raise InputError("no experiment has run: there is nothing to export for this engine")
    out = export_table(args.engine, found.new, found.moves, args.largest_batch, routed=found.routes)
    lines = [json.dumps(out.settings)]
    lines.append(f"regret against the full table: {_percent(out.regret)}")
    if out.router:
        lines.append(f"behind a router with these rules: {_percent(out.routed_regret)}")
        lines += [f"    {rule['class']} -> {rule['pool']}" for rule in out.router]
    return _say(args, [*lines, *out.limits], asdict(out))


def _percent(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1%} of throughput"


def _read(store: Store, args: Namespace) -> Reading:
    since = time.time_ns() - args.since
    return read(
        store,
        default_k=args.default_k,
        epoch=args.epoch,
        since=since,
        by_class=bool(args.tpot_ms),
    )


def _advice(args: Namespace, reading: Reading) -> Recommendation:
    return recommendation(
        reading,
        closed_loop=args.closed_loop,
        allowances=dict(args.tpot_ms) or None,
        replays=read_replays(args.accept_replayed),
    )


def _wanted(args: Namespace, reading: Reading) -> GateTable:
    if args.table is None:
        return _advice(args, reading).new
    try:
        table = read_table(json.loads(args.table.read_text()))
    except (OSError, ValueError) as error:
        raise InputError(f"{args.table} is not a table: {error}") from error
    resting = replayed_cells(table, reading.table)
    if resting and not args.accept_replayed:
        raise UsageError(
            f"{args.table}: {len(resting)} of its cells rest on a replay ({resting[0]}); accept "
            "it with --accept-replayed FILE, the result that they rest on"
        )
    read_replays(args.accept_replayed)
    return table


@contextmanager
def _store(args: Namespace) -> Iterator[Store]:
    with Store.open(store_dsn(os.environ, args.store), create=False) as store:
        yield store


def _service(args: Namespace, store: Store) -> Remote | None:
    return Remote.chosen(os.environ, args.service, store.dsn)


def _say(args: Namespace, lines: Sequence[str], plain: Mapping[str, Any]) -> int:
    text = json.dumps(plain, indent=1, allow_nan=False) if args.json else "\n".join(lines)
    sys.stdout.write(text + "\n")
    return 0


def _aside(line: str) -> None:
    sys.stderr.write(line + "\n")


def _write(path: Path, plain: Mapping[str, Any]) -> None:
    try:
        path.write_text(json.dumps(plain, indent=1, allow_nan=False) + "\n")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error}") from error
