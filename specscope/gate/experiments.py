"""`specscope gate plan` and `calibrate`: estimate the time to a verdict, and run an experiment."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from specscope import queries
from specscope.arguments import PERIOD, period
from specscope.assess import segments_json
from specscope.errors import ExitCode, StoreError, UsageError
from specscope.evidence.residence import ProposedBlocks, proposed_blocks
from specscope.gate import calibration
from specscope.gate import plan as planning
from specscope.gate import swap as swaps
from specscope.gate.arms import arms_of_lengths, read_arms
from specscope.gate.console import (
    advise,
    aside,
    author,
    chosen_service,
    open_store,
    read_store,
    say,
)
from specscope.gate.watch import follow, progress_json, progress_lines
from specscope.policy.stored import StopRules

ROUTER_FILES = {"haproxy": "specscope-crossover.cfg", "nginx": "specscope-crossover.conf"}
MOST_BLOCKS = 100_000  # of a router's schedule
LONGEST_MIN = 60 * 24 * 366.0  # that a calibration may last


def plan(args: Namespace) -> int:
    """Print the time to each verdict; for a crossover, the schedule of its router too."""
    if args.crossover:
        return _plan_crossover(args)
    with open_store(args) as store:
        evidence = read_store(store, args)
        proposed = proposed_blocks(store, time.time_ns() - args.since)
    blocks = evidence.begun_since(evidence.since)
    found = advise(args, evidence)
    steps = planning.plan(
        found.verdicts,  # by the rules by which the gate will decide
        replicas=args.replicas or planning.replica_count(blocks),
        block_s=args.block_s or planning.block_seconds(blocks),
        share=args.share,
    )
    swapped = [block for one in evidence.crossings for block in one.blocks]
    steps += planning.crossover_steps(
        found.assessment.crossovers, args.block_s or planning.block_seconds(swapped)
    )
    plain = {
        "steps": [asdict(step) for step in steps],
        "segments": segments_json(found.assessment),
        "untried": [asdict(one) for one in found.assessment.untried],
        "blocks": proposed.as_json() if proposed else None,
    }
    lines = [*planning.plan_lines(steps), *planning.untried_lines(found.assessment.untried)]
    return say(args, lines + ([str(proposed)] if proposed else []), plain)


def _plan_crossover(args: Namespace) -> int:
    swap = _swap(args)
    if 3600 * args.hours / swap.block_s > MOST_BLOCKS:
        raise UsageError(
            f"{args.hours:g} hours in blocks of {swap.block_s} s are more than {MOST_BLOCKS} blocks"
        )
    slots = swaps.schedule(swap, swap.first_block(time.time_ns()), args.hours)
    addresses = dict(args.address)
    if stray := sorted(set(addresses) - {name for side in swap.sides for name in side}):
        raise UsageError(f"--address {stray[0]}: this replica is on no side")
    text = (
        swaps.haproxy(swap, addresses) if args.router == "haproxy" else swaps.nginx(swap, addresses)
    )
    if args.out:
        _write_router(
            args.out,
            {
                ROUTER_FILES[args.router]: text,
                swaps.MAP: swaps.swap_map(slots),
                swaps.SIDES_MAP: swaps.sides_map(swap),
            },
        )
    lines = [*map(str, slots)]
    lines += [
        f"{len(slots) // 2} pairs in {args.hours:g} hours; a verdict takes {swap.least_pairs} of "
        "each deploy",
        "swap the configurations of the sides half-way: otherwise their hardware does not cancel"
        if len(swap.sides) == 2
        else "start three deploys, each configuration on each side once: then hardware cancels",
        "", text,
    ]  # fmt: skip
    plain = {"slots": [asdict(slot) for slot in slots], "router": text, **asdict(swap)}
    return say(args, lines, plain)


def _write_router(folder: Path, files: Mapping[str, str]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text)
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error}") from error


def _swap(args: Namespace) -> swaps.Swap:
    """The crossover of `plan` and `calibrate`, equal for both, so that router and hooks number the
    same blocks."""
    if len(args.crossover) not in (2, 3):
        raise UsageError(f"{len(args.crossover)} sides; a crossover has two or three")
    left, right, *more = args.crossover
    block_s = args.block_s or swaps.BLOCK_S
    if block_s != round(block_s):
        raise UsageError(f"a router swaps at whole seconds, not every {block_s:g} s")
    differs, third = tuple(args.differs or ()), more[0] if more else ()
    return swaps.Swap(left, right, round(block_s), args.seed, differs, third)


def calibrate(args: Namespace) -> int:
    """Run a window of experimental blocks. Unsettled if a segment has no answer at its end."""
    if sum(map(bool, (args.k, args.arms, args.crossover))) != 1:
        raise UsageError(
            "name the things to compare: draft lengths (--k), arms (--arms) or sides (--crossover)"
        )
    arms = read_arms(args.arms) if args.arms else arms_of_lengths(args.k or ())
    swap = _swap(args) if args.crossover else None
    # The router of a crossover has its own schedule, whose length nothing here may change.
    proposed = None if args.block_s or swap else proposed_of_store(args)
    block_s = swap.block_s if swap else args.block_s
    block_s = block_s or (proposed.length_s if proposed else planning.DEFAULT_BLOCK_S)
    rules = StopRules(when_decided=not args.whole_window, loss_budget=args.loss_budget)
    window = calibration.Window(arms, args.minutes, block_s, swap, rules, args.closed_loop)
    lines = calibration.describe(window) + ([str(proposed)] if proposed else [])
    if args.minutes > LONGEST_MIN:
        raise UsageError(f"{args.minutes:g} minutes are longer than a year")
    if args.approve and not window.pairs:
        raise UsageError(
            f"{args.minutes:g} minutes hold no pair of {window.blocks} blocks of {block_s:g} s"
        )
    if not args.approve:
        return say(args, [*lines, "nothing is started (--approve)"], asdict(window))
    with open_store(args) as store:
        if swap is not None:
            for line in swaps.check_sides(swap, store.rows(queries.boots())):
                aside(line)
        service, who = chosen_service(args, store), author(args)
        number = calibration.start(
            store,
            window,
            now=time.time_ns(),
            default_k=args.default_k,
            service=service,
            author=who,
        )
        aside(
            f"policy {number} runs the experiment and ends it, even if you close this terminal; "
            "Ctrl-C ends it now, and `specscope gate watch` shows it elsewhere"
        )
        try:
            seen = follow(store, number, block_s, say=aside)
        except KeyboardInterrupt:
            stopped_by = calibration.stop(store, number, service=service, author=who)
            aside(f"policy {stopped_by} has ended it")
            raise
    say(args, progress_lines(seen), progress_json(seen))
    return ExitCode.of_answer(seen.decided)


def proposed_of_store(args: Namespace) -> ProposedBlocks | None:
    """Block length from the residence of last week's requests; None without a store."""
    if not args.store and not os.environ.get("SPECSCOPE_STORE"):
        return None
    try:
        with open_store(args) as store:
            return proposed_blocks(store, time.time_ns() - period(PERIOD))
    except StoreError:
        if args.approve:
            raise
        return None  # what would run can be said without a store
