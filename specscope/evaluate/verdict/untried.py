"""Upper limits of untried draft lengths, to schedule trials.

They never recommend a length, because its cost and acceptance come from a model. The model is
optimistic, so a length that cannot pay under it needs no trial. Tokens per round are an upper
confidence limit. Times of the draft and of the rest are the shortest that the measured times allow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import nnls

from specscope.evaluate.costs.steptime import StepModel, fit_blocks, optimistic_speedup
from specscope.evaluate.experiment.blocks import (
    BASELINE,
    BlockTime,
    arm_k,
    merge_blocks,
)
from specscope.evaluate.experiment.objectives import METRICS
from specscope.evaluate.experiment.paired import Paired
from specscope.evaluate.experiment.pairs import Pair
from specscope.evaluate.experiment.summary import ArmSummary
from specscope.evaluate.outputs.copies import wilson
from specscope.evaluate.statistics.acceptance import Survival
from specscope.evaluate.statistics.multiplicity import bonferroni
from specscope.evaluate.verdict.verdict import Action, Verdict

BEYOND = 2  # lengths past the longest that ran: further out the bound says nothing
LEVEL = 0.95  # of the bound on tokens per round
# A shorter draft starts its rounds in easier text, so what a longer one kept reads low for it, by
# this share of the accepted tokens at most (simulated under autocorrelated difficulty).
EASIER = 0.21
_UNBELIEVED = (Action.NOT_COMPARABLE, Action.ENGINE_FAULT)

Worth = Literal["worth_exploring", "below_best", "cannot_pay"]


@dataclass(frozen=True, slots=True)
class Untried:
    """A draft length that a segment never ran. Grade: modelled.

    tokens_high: upper 95 % limit of tokens per round. at_best: throughput over target-only at that
    limit, at target-only's batch. worth: cannot_pay if that is no gain, below_best if a length that
    ran is better with confidence, else worth_exploring.
    """

    epoch: str
    segment: str
    k: int
    tokens_high: float
    at_best: float
    worth: Worth


def worth_trying(candidates: Iterable[Untried]) -> dict[str, list[Untried]]:
    """By segment, the lengths worth a trial, the most promising first."""
    ranked: dict[str, list[Untried]] = {}
    for one in sorted(candidates, key=lambda one: (-one.at_best, one.k)):
        if one.worth == "worth_exploring":
            ranked.setdefault(str(one.segment), []).append(one)
    return dict(sorted(ranked.items()))


def untried(experiment: Paired, verdicts: Sequence[Verdict]) -> list[Untried]:
    """Gaps between the lengths that ran, and the next two lengths, for every segment with a
    verdict.

    A segment has none if too few blocks have draft and verify times, if no position was tested, or
    if target-only did not run.
    """
    lengths = []
    for epoch in sorted({verdict.epoch for verdict in verdicts}):
        model = fit_blocks(
            block
            for (of, _), pairs in experiment.segments.items()
            for pair in pairs
            for block in pair.blocks.values()
            if of == epoch and not block.void
        )
        for verdict in verdicts:
            usable = experiment.usable.get((epoch, verdict.segment))
            if verdict.epoch == epoch and model and usable and verdict.action not in _UNBELIEVED:
                lengths += _of_segment(verdict, usable.pairs, model)
    return lengths


def _of_segment(verdict: Verdict, pairs: Sequence[Pair], model: StepModel) -> list[Untried]:
    rounds = _rounds(pairs)
    tried = {k for arm in rounds if (k := arm_k(arm)) is not None}
    curves = [(arm.survival, _coverage(arm)) for arm in verdict.arms if arm.survival is not None]
    drafted = {
        k: block
        for arm, block in rounds.items()
        if (k := arm_k(arm)) and block.draft_us is not None and block.verify_us is not None
    }
    if BASELINE not in rounds or not drafted or not curves:
        return []
    base = rounds[BASELINE]
    other = min(
        max(0.0, b.wall_us - (b.draft_us or 0.0) - (b.verify_us or 0.0)) / b.rounds
        for b in drafted.values()
    )
    drafts = {k: (block.draft_us or 0.0) / block.rounds for k, block in drafted.items()}
    surely = _surely(verdict)
    lengths = []
    batch = base.request_rounds / base.rounds
    context = base.n_kv / base.request_rounds
    for k in sorted(set(range(1, max(tried) + BEYOND + 1)) - tried):
        if model.time_us(batch * (k + 1), batch * context) <= 0:
            continue  # the fit knows nothing of this state
        high = most_tokens(curves, k)
        at_best = optimistic_speedup(
            model,
            tokens_high=high,
            draft_us=draft_time(drafts, k),
            other_us=other,
            target_us=base.wall_us / base.rounds,
            batch=batch,
            context=context,
            k=k,
        )
        if math.isfinite(at_best):
            worth: Worth = "worth_exploring" if at_best > surely else "below_best"
            lengths.append(
                Untried(
                    verdict.epoch,
                    str(verdict.segment),
                    k,
                    high,
                    at_best,
                    worth if at_best > 1.0 else "cannot_pay",
                )
            )
    return lengths


def _surely(verdict: Verdict) -> float:
    """Lower limit of the throughput gain of the lengths that ran; at least 1. [ratio]

    It is 1 if the metric is latency: a faster arm then runs smaller batches, so its gain exceeds
    the gain at target-only's batch.
    """
    if verdict.metric != METRICS["throughput"]:
        return 1.0
    return max([1.0, *(e.low for e in verdict.speedups if e.low is not None)])


def most_tokens(curves: Sequence[tuple[Survival, float]], k: int, level: float = LEVEL) -> float:
    """Upper limit of tokens per round at an untried draft length. [tokens, 1..k + 1]

    It is the smallest of the limits that each curve allows, at a joint level. curves: survival at
    each length that ran, for drafting rounds, with the share of rounds that drafted.
    """
    each = bonferroni(level, len(curves))
    accepted = [
        drafting
        * min(float(k), (one.at_most(k, each) - 1.0) / (1.0 - EASIER if k < one.k_tried else 1.0))
        for one, drafting in curves
    ]
    return 1.0 + min(accepted)


def _coverage(arm: ArmSummary) -> float:
    """Upper limit of the share of request-rounds that draft. [0..1] A lookup drafter drafts only if
    it finds a match, and a shorter draft finds no more of them."""
    tested = arm.survival.at_risk[0] if arm.survival and arm.survival.at_risk else 0
    if not 0 < tested < arm.request_rounds:
        return 1.0
    return wilson(tested, arm.request_rounds, LEVEL)[1]


def draft_time(drafts: Mapping[int, float], k: int) -> float:
    """Shortest plausible time of a draft of k tokens, from the times of the lengths that ran.

    It is a line with a fixed part and a step of at least 0. With one length alone, a shorter draft
    takes proportional time and a longer one the same time.
    """
    if len(drafts) == 1:
        ((ran, time),) = drafts.items()
        return time * min(1.0, k / ran)
    lengths = np.array(sorted(drafts), dtype=np.float64)
    design = np.column_stack([np.ones_like(lengths), lengths])
    (fixed, step), _ = nnls(design, np.array([drafts[int(n)] for n in lengths]))
    return float(fixed + step * k)


def _rounds(pairs: Sequence[Pair]) -> dict[str, BlockTime]:
    """Sum each arm's blocks that have rounds."""
    rows: dict[str, list[BlockTime]] = {}
    for pair in pairs:
        for arm, block in pair.blocks.items():
            if block.rounds > 0 and block.request_rounds > 0:
                rows.setdefault(arm, []).append(block)
    return {arm: merge_blocks(blocks) for arm, blocks in rows.items()}
