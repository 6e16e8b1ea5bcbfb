"""`specscope gate watch`: follow an experiment until it ends."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from specscope.assess import assess_in_force
from specscope.errors import ExitCode, StoreError, UsageError
from specscope.evidence.read import read
from specscope.gate.console import aside, open_store, say
from specscope.gate.progress import (
    ExperimentCost,
    ExperimentProgress,
    SegmentProgress,
    Stage,
    experiments,
    progress,
)
from specscope.gate.show import class_line
from specscope.policy.stored import StoredPolicy, read_policies
from specscope.store.connection import Store

WORDS = {
    Stage.WAITING: "has not begun",
    Stage.RUNNING: "runs",
    Stage.STOPPED: "was stopped",
    Stage.ENDED: "is over",
}


def watch(args: Namespace) -> int:
    """Show an experiment until it ends; with --once or --json, show it once.

    The exit code says unsettled if a segment has no answer yet.
    """
    with open_store(args) as store:
        if args.once or args.json:
            seen = look(store, args.policy)
        else:
            seen = follow(store, args.policy, args.every_s, say=aside)
    say(args, progress_lines(seen), progress_json(seen))
    return ExitCode.of_answer(seen.decided)


def look(store: Store, number: int | None = None, now: int | None = None) -> ExperimentProgress:
    """The progress of an experiment. number: number of its policy; None for the newest experiment.

    now: ns since 1970. Raises UsageError if there is none.
    """
    now = time.time_ns() if now is None else now
    policies = read_policies(store)
    experiment = _chosen(policies, number)
    assert experiment.span is not None
    begun = now >= experiment.span[0]
    judged = assess_in_force(read(store, experiment.span[0])) if begun else None
    return progress(store, policies, experiment, judged, now)


def follow(
    store: Store,
    number: int | None,
    every_s: float,
    *,
    say: Callable[[str], object],
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], int] = time.time_ns,
) -> ExperimentProgress:
    """Print the progress repeatedly until the experiment ends; returns the last one."""
    while True:
        try:
            seen = look(store, number, clock())
        except StoreError as error:  # a service that restarts; the experiment goes on meanwhile
            say(f"{error}; looking again in {every_s:.0f} s")
            sleep(every_s)
            continue
        if seen.stage in (Stage.STOPPED, Stage.ENDED):
            return seen
        for line in (status_line(seen), *trouble_lines(seen)):
            say(line)
        sleep(every_s if seen.left_s is None else min(every_s, seen.left_s + 1.0))


def progress_lines(seen: ExperimentProgress) -> list[str]:
    """All lines of a progress: stage, cost, one line per segment, and problems."""
    return [
        status_line(seen),
        *([cost_line(seen.cost)] if seen.cost else []),
        *(_segment_line(one) for one in seen.segments),
        *map(class_line, seen.classes),
        *trouble_lines(seen),
    ]


def status_line(seen: ExperimentProgress) -> str:
    """The stage, in one line."""
    of = f" of {seen.planned}" if seen.planned else ""
    where = f" on {_counted(seen.replicas, 'replica')}" if seen.replicas else ""
    left = f", {_span(seen.left_s)} left" if seen.left_s else ""
    settled = sum(one.settled for one in seen.segments)
    answers = f", {settled} of {len(seen.segments)} segments decided" if seen.segments else ""
    arms = ", ".join(seen.arms)
    return (
        f"experiment {seen.policy} ({arms}) {WORDS[seen.stage]}: "
        f"{_counted(seen.pairs, 'pair', of)}{where}{answers}{left}"
    )


def cost_line(cost: ExperimentCost) -> str:
    """The cost so far."""
    what = "cost" if cost.share >= 0 else "gained"
    spent = (
        "" if cost.spent is None else f", {abs(cost.spent):.1%} of the capacity of the whole window"
    )
    return f"its arms {what} {abs(cost.share):.1%} of capacity against {cost.against}{spent}"


def trouble_lines(seen: ExperimentProgress) -> list[str]:
    """Problems that delay the answer."""
    lines = [f"no rounds for one block length from {', '.join(seen.silent)}"] if seen.silent else []
    if seen.stage is Stage.RUNNING and not seen.replicas and not seen.silent:
        lines.append("no replica has run one of its blocks yet: check traffic and sidecar")
    return [*lines, *seen.disobeyed]


def progress_json(seen: ExperimentProgress) -> dict[str, Any]:
    """A progress as plain values."""
    return {
        **asdict(seen),
        "decided": seen.decided,
        "exhausted": seen.exhausted,
        "left_s": seen.left_s,
    }


def _chosen(policies: Sequence[StoredPolicy], number: int | None) -> StoredPolicy:
    known = experiments(policies)
    for policy in reversed(known):
        if number is None or policy.number == number:
            return policy
    if number is None:
        raise UsageError("there is no experiment: `specscope gate calibrate` starts one")
    raise UsageError(f"policy {number} is no experiment: see `specscope gate history`")


def _segment_line(one: SegmentProgress) -> str:
    name = f"{one.label}, context {one.context}, output {one.output}, load {one.load}"
    ratio = ""
    if one.speedup is not None:
        interval = "" if one.low is None else f" ({one.low:.2f} to {one.high:.2f})"
        ratio = f", {one.arm} {one.speedup:.2f}x{interval}"
    needed = f" of {one.pairs_needed}" if one.pairs_needed else ""
    still = "".join(f"; {line}" for line in one.in_question)
    return f"{name}: {one.action}{ratio}, {_counted(one.pairs, 'pair', needed)}{still}"


def _counted(count: int, noun: str, of: str = "") -> str:
    return f"{count}{of} {noun}" if count == 1 and not of else f"{count}{of} {noun}s"


def _span(seconds: float | None) -> str:
    if seconds is None:
        return "no end"
    minutes = seconds / 60
    if minutes < 2:
        return f"{seconds:.0f} s"
    return f"{minutes:.0f} minutes" if minutes < 120 else f"{minutes / 60:.1f} hours"
