"""Estimate the time to each verdict and the cost of the experiment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specscope.evaluate.experiment.blocks import BlockTime
from specscope.evaluate.statistics.planning import affordable_share, hours_to_verdict
from specscope.evaluate.verdict.untried import Untried, worth_trying
from specscope.evaluate.verdict.verdict import Verdict

CAPACITY_BUDGET = 0.01
DEFAULT_BLOCK_S = 120.0
MOST_UNTRIED = 6  # draft lengths in one line


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One segment's remaining pairs to a verdict. needed: missing pairs; hours: None if none are
    missing."""

    segment: str
    action: str
    pairs: int
    needed: int
    share: float
    hours: float | None


def plan(
    verdicts: Sequence[Verdict],
    *,
    replicas: int,
    block_s: float,
    share: float | None = None,
    least_pairs: int = 20,
) -> list[PlanStep]:
    """Steps to enough pairs for every segment, the longest first.

    share: experimental share of pairs; None for the share that costs under 1 % of capacity at the
    segment's largest plausible speedup. Each arm of a pair takes one block, so a pair of n arms
    takes n blocks.
    """
    steps = []
    for verdict in verdicts:
        wanted = verdict.pairs_needed or least_pairs
        needed = max(0, wanted - verdict.pairs)
        gain = max([1.0, *(e.high or e.value for e in verdict.speedups)])
        allowed = affordable_share(gain, CAPACITY_BUDGET) if share is None else share
        arms = max(2, len(verdict.arms))
        hours = (
            hours_to_verdict(needed, replicas, block_s, allowed) * arms / 2.0 if needed else None
        )
        steps.append(
            PlanStep(str(verdict.segment), verdict.action, verdict.pairs, needed, allowed, hours)
        )
    return sorted(steps, key=lambda step: -(step.hours or 0.0))


def crossover_steps(
    verdicts: Sequence[Verdict], block_s: float, least_pairs: int = 20
) -> list[PlanStep]:
    """Steps of crossovers by router, whose sides run at the same time, all the time."""
    steps = []
    for verdict in verdicts:
        needed = max(0, (verdict.pairs_needed or least_pairs) - verdict.pairs)
        hours = needed * 2 * block_s / 3600.0 if needed else None
        name = f"crossover of {verdict.segment}"
        steps.append(PlanStep(name, verdict.action, verdict.pairs, needed, 1.0, hours))
    return steps


def affordable(verdicts: Sequence[Verdict]) -> float:
    """Share of pairs that may keep comparing at a cost of at most 1 % of capacity. [0..1]

    It uses the largest plausible speedup of any segment. Without measurements, a block at k = 0
    counts as lost in full.
    """
    gains = [e.high or e.value for verdict in verdicts for e in verdict.speedups]
    return affordable_share(max([1.0, *gains]), CAPACITY_BUDGET) if gains else CAPACITY_BUDGET


def block_seconds(blocks: Sequence[BlockTime]) -> float:
    """Mean length of the blocks that ran; 120 without blocks. [s]"""
    spans = [(b.last_at - b.first_at) / 1e9 for b in blocks if b.last_at > b.first_at]
    return sum(spans) / len(spans) if spans else DEFAULT_BLOCK_S


def replica_count(blocks: Sequence[BlockTime]) -> int:
    """Number of replicas that ran blocks; at least 1."""
    return max(1, len({block.replica for block in blocks}))


def plan_lines(steps: Sequence[PlanStep]) -> list[str]:
    """One line per segment."""
    lines = []
    for step in steps:
        if step.hours is None:
            lines.append(f"{step.segment}: {step.action}, {_pairs(step.pairs)}: enough")
        else:
            lines.append(
                f"{step.segment}: {step.action}, {_pairs(step.pairs)}, {step.needed} more: "
                f"about {_span(step.hours)} at {step.share:.1%} of the pairs"
            )
    return lines or ["no experiment has run: there is no data for a plan"]


def untried_lines(found: Sequence[Untried]) -> list[str]:
    """One line of draft lengths worth a trial, the most promising first; --json lists each
    segment."""
    at_best: dict[int, list[float]] = {}
    for lengths in worth_trying(found).values():
        for one in lengths:
            at_best.setdefault(one.k, []).append(one.at_best)
    if not at_best:
        return []
    ranked = sorted(at_best, key=lambda k: (-max(at_best[k]), k))
    words = [
        f"k = {k} {max(at_best[k]):.2f}x"
        + (f" (in {len(at_best[k])} segments)" if len(at_best[k]) > 1 else "")
        for k in ranked[:MOST_UNTRIED]
    ]
    more = len(ranked) - len(words)
    rest = f", and {more} more" if more else ""
    return [f"untried, with upper limits: {', '.join(words)}{rest} of target-only"]


def _pairs(count: int) -> str:
    return "1 pair" if count == 1 else f"{count} pairs"


def _span(hours: float) -> str:
    if hours < 1.0:
        return f"{60 * hours:.0f} minutes"
    return f"{hours:.1f} hours" if hours < 48 else f"{hours / 24:.1f} days"
