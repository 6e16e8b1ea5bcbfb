"""A calibration window, in which every block is experimental, for one replica or a small fleet."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from specscope.errors import ServiceError, StoreError, UsageError
from specscope.gate.arms import arm_words, check_distinct
from specscope.gate.swap import Swap, crossover_policy
from specscope.policy.arms import PolicyArm
from specscope.policy.remote import Remote
from specscope.policy.rollback import stopped
from specscope.policy.stored import (
    HoldOut,
    StopRules,
    next_table,
    read_policies,
    table_in_force,
    write_policy,
)
from specscope.store.connection import Store

TRIES, PAUSE_S = 24, 5.0  # to stop it; a service that restarts takes no longer


@dataclass(frozen=True, slots=True)
class Window:
    """A window: arms to compare, length in minutes, block length in seconds.

    swap: run a crossover by router instead, for engines that cannot change k while they run. rules:
    conditions that end it before its last pair. closed_loop: clients wait for their answers; the
    policy records it for the evaluator.
    """

    arms: tuple[PolicyArm, ...]
    minutes: float
    block_s: float
    swap: Swap | None = None
    rules: StopRules = StopRules()
    closed_loop: bool = False

    @property
    def blocks(self) -> int:
        """Blocks of a pair."""
        return 2 if self.swap else len(self.arms)

    @property
    def pairs(self) -> int:
        """Complete pairs per replica in the window, after its begin."""
        return max(0, int((60.0 * self.minutes) // (self.blocks * self.block_s)))


def describe(window: Window) -> list[str]:
    """Describe the window, and whether it is long enough."""
    arms = ", ".join(map(arm_words, window.arms))
    how = (
        f"the router swaps {len(window.swap.sides)} streams between "
        + " and ".join(", ".join(side) for side in window.swap.sides)
        if window.swap
        else f"blocks run {arms}"
    )
    least = f"{window.swap.least_pairs} of each deploy" if window.swap else "20"
    lines = [
        f"{how}, blocks of {window.block_s:.0f} s in random order",
        f"{window.minutes:.0f} minutes give {window.pairs} pairs per replica; "
        f"a verdict takes {least}",
    ]
    if window.rules.when_decided:
        lines.append("the service ends it early if every segment has its answer")
    if window.rules.loss_budget is not None:
        lines.append(
            f"or if its arms have cost {window.rules.loss_budget:.1%} of the window's capacity"
        )
    if window.swap:
        lines.append("load the router's rules first: `specscope gate plan --crossover`")
    if window.pairs == 0:
        lines.append("too short for a single pair")
    return lines


def start(
    store: Store,
    window: Window,
    *,
    now: int,
    default_k: int | None = None,
    service: Remote | None = None,
    author: str = "",
) -> int:
    """Put the window's policy in force; returns its number.

    The policy contains its end and the table for afterwards, so it ends without any running
    process. default_k: the engine's own draft length. It stays in force afterwards if there was no
    table, because a policy cannot be withdrawn. now: ns since 1970.

    Raises UsageError if there is neither a table nor a default_k, or two arms run one table.
    """
    policies = read_policies(store)
    table = table_in_force(policies, now, default_k)
    if table is None:
        raise UsageError(
            "no table is in force, so there is none to put back: --default-k says which draft "
            "length the engine runs now, and after the window"
        )
    words = {**window.rules.as_json(), "closed_loop": window.closed_loop}
    if window.swap is not None:
        body = crossover_policy(
            policies, window.swap, now=now, default_k=default_k, pairs=window.pairs, author=author,
            **words,
        )  # fmt: skip
    else:
        check_distinct(window.arms, table)
        hold_out = HoldOut(
            1.0,
            window.block_s,
            window.block_s / 4,
            tuple(arm.name for arm in window.arms),
            window.pairs,
            tuple(window.arms),
        )
        body = next_table(policies, table, now=now, hold_out=hold_out, author=author, **words)
    return write_policy(store, body, f"calibration, {window.minutes:g} minutes", now, service)


def stop(
    store: Store,
    number: int,
    *,
    service: Remote | None = None,
    author: str = "",
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], int] = time.time_ns,
) -> int:
    """End a window early with a new policy (its table without blocks); returns the policy's number.

    Raises ServiceError if all tries fail; then the window ends at its last pair.
    """
    failed: Exception | None = None
    for _ in range(TRIES):
        try:
            policies = read_policies(store)
            window = next(policy for policy in policies if policy.number == number)
            now = clock()
            back = stopped(policies, window, now=now, author=author)
            return write_policy(store, back, f"calibration {number} stopped", now, service)
        except (StoreError, ServiceError) as error:
            failed = error
        sleep(PAUSE_S)
    raise ServiceError(
        f"policy {number} could not be stopped ({failed}); it ends by itself after its last pair, "
        "or with `specscope gate rollback`"
    ) from failed
