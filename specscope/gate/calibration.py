"""A window in which every block is experimental: answers for one replica and small fleets."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from specscope.errors import ServiceError, StoreError, UsageError
from specscope.gate.swap import Swap, crossover_policy
from specscope.policy.remote import Remote
from specscope.policy.stored import (
    HoldOut,
    checked,
    newest_with_table,
    next_table,
    read_policies,
    until,
    write_policy,
)
from specscope.policy.table import GateTable
from specscope.store.connection import Store

TRIES, PAUSE_S = 24, 5.0  # to put the table back; a service that restarts takes no longer


@dataclass(frozen=True, slots=True)
class Window:
    """Draft lengths to compare, minutes that it may last, seconds of a block.

    swap: a crossover by router instead, of engines that cannot change k while they run.
    """

    lengths: tuple[int, ...]
    minutes: float
    block_s: float
    swap: Swap | None = None

    @property
    def blocks(self) -> int:
        """Blocks of a pair."""
        return 2 if self.swap else len(self.lengths)

    @property
    def pairs(self) -> int:
        """Whole pairs a replica in the window, once it has begun."""
        return max(0, int((60.0 * self.minutes) // (self.blocks * self.block_s)))


def describe(window: Window) -> list[str]:
    """What would run, and whether it is enough."""
    arms = ", ".join(f"k = {k}" for k in window.lengths)
    how = (
        f"the router swaps two streams between {', '.join(window.swap.left)} and "
        f"{', '.join(window.swap.right)}"
        if window.swap
        else f"every request runs at {arms} by turns"
    )
    lines = [
        f"{how}, blocks of {window.block_s:.0f} s in random order",
        f"{window.minutes:.0f} minutes give {window.pairs} pairs a replica; a verdict takes 20",
    ]
    if window.swap:
        lines.append("give the router its rules first: `specscope gate plan --crossover`")
    if window.pairs == 0:
        lines.append("too short for a single pair")
    return lines


def run(
    store: Store,
    window: Window,
    *,
    say: Callable[[str], object],
    default_k: int | None = None,
    service: Remote | None = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], int] = time.time_ns,
) -> int:
    """Start the window, wait, and put the table back, whatever happens in between.

    default_k: what the engine runs by itself. A policy cannot be taken back, so where no table
    was ever in force this one stays.

    Returns the number of the policy that did so. Raises UsageError where there is neither.
    """
    policies = read_policies(store)
    before = newest_with_table(policies)
    if before is None and default_k is None:
        raise UsageError(
            "no table is in force, so there is none to put back: --default-k says which draft "
            "length the engine runs now, and after the window"
        )
    table = GateTable((), default_k or 0) if before is None else before.table
    if window.swap is not None:
        started = crossover_policy(policies, window.swap, now=clock(), default_k=default_k)
        last = until(started["first_pair"], 2 * window.pairs, table)
        started = checked({**started, **last})
    else:
        arms = tuple(f"k{k}" for k in window.lengths)
        hold_out = HoldOut(1.0, window.block_s, window.block_s / 4, arms, window.pairs)
        started = next_table(policies, table, now=clock(), hold_out=hold_out)
    note = f"calibration, {window.minutes:.0f} minutes"
    number = write_policy(store, started, note, clock(), service)
    say(f"policy {number} calibrates; Ctrl-C ends it early and puts the table back")
    try:
        # It takes effect two blocks from now, at the boundary of a pair.
        sleep(60.0 * window.minutes + (2 + window.blocks) * window.block_s)
    finally:
        ended = _put_back(store, table, number, service, sleep, clock)
    return ended


def _put_back(
    store: Store,
    table: GateTable,
    number: int,
    service: Remote | None,
    sleep: Callable[[float], None],
    clock: Callable[[], int],
) -> int:
    """The table without blocks, as a new policy; returns its number.

    Raises ServiceError, which says that the window is still open, where all tries fail.
    """
    failed: Exception | None = None
    for _ in range(TRIES):
        try:
            back = next_table(read_policies(store), table, now=clock())
            return write_policy(store, back, f"calibration {number} ended", clock(), service)
        except (StoreError, ServiceError) as error:
            failed = error
        sleep(PAUSE_S)
    raise ServiceError(
        f"policy {number} still calibrates ({failed}): end it with "
        "`specscope gate show --json > table.json` and `specscope gate apply table.json`"
    ) from failed
