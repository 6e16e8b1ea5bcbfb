"""Describe each arm of a segment: tokens per round, acceptance by position, time by part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from specscope.evaluate.experiment import objectives
from specscope.evaluate.experiment.blocks import BASELINE, BlockTime, arm_k
from specscope.evaluate.experiment.pairs import Pair
from specscope.evaluate.statistics import acceptance
from specscope.evaluate.statistics.acceptance import Survival
from specscope.evaluate.statistics.quantiles import QuantileEstimate
from specscope.evaluate.statistics.ratio import Ratio, ratio_of_sums

PARTS = ("draft", "verify", "sample", "idle", "catchup", "prefill")


@dataclass(frozen=True, slots=True)
class ArmSummary:
    """One arm of a segment over its blocks; descriptive, never a contrast.

    tokens_per_round: emitted over request-rounds, clustered by block. tokens_per_s: output of the
    whole batch. shares: share of wall time by part, 0..1, for known parts; `unseen` is the rest.
    ms_per_token: the same parts in milliseconds per emitted token. survival: None at k = 0. queue:
    mean number of waiting requests; queue_delay_ms: mean time from arrival to the first token; both
    None if unknown. batch: mean sequences per round. slots: computed query positions, padding
    included. bandwidth: bytes that the rounds had to move, per second of their verify passes.
    dram_active: share of time in which the device's memory was busy, 0..1. Both are None if a block
    does not know them.
    """

    arm: str
    k: int | None
    blocks: int
    requests: int
    rounds: int
    request_rounds: int
    proposed: int
    accepted: int
    emitted: int
    slots: int
    batch: float
    tokens_per_round: Ratio
    tokens_per_s: float
    shares: Mapping[str, float]
    ms_per_token: Mapping[str, float]
    survival: Survival | None
    padded_share: float
    gap_p95_ms: QuantileEstimate | None
    tpot_p95_ms: QuantileEstimate | None
    queue: float | None = None
    queue_delay_ms: float | None = None
    bandwidth: float | None = None
    dram_active: float | None = None


def summarise(
    pairs: Sequence[Pair], arm: str, level: float = 0.95, looked_at_often: bool = False
) -> ArmSummary | None:
    """Sum an arm's blocks; None if no block has rounds.

    level, looked_at_often: for the intervals of its percentiles.
    """
    blocks = [pair.blocks[arm] for pair in pairs if arm in pair.blocks]
    blocks = [block for block in blocks if block.request_rounds > 0]
    if not blocks:
        return None
    wall = float(sum(block.wall_us for block in blocks))
    emitted = sum(block.emitted for block in blocks)
    rounds = sum(block.rounds for block in blocks)
    request_rounds = sum(block.request_rounds for block in blocks)
    n_q = sum(block.n_q for block in blocks)
    padded = sum(block.padded_tokens for block in blocks)
    shares: dict[str, float] = {}
    for part in PARTS:
        times = [getattr(block, f"{part}_us") for block in blocks]
        if all(time is not None for time in times):
            shares[part] = float(sum(times)) / wall
    shares["unseen"] = max(0.0, 1.0 - sum(shares.values()))
    return ArmSummary(
        arm=arm,
        k=arm_k(arm),
        blocks=len(blocks),
        requests=sum(block.requests for block in blocks),
        rounds=rounds,
        request_rounds=request_rounds,
        proposed=sum(block.proposed for block in blocks),
        accepted=sum(block.accepted for block in blocks),
        emitted=emitted,
        slots=n_q + padded,
        batch=request_rounds / rounds if rounds else 0.0,
        tokens_per_round=ratio_of_sums(
            [block.emitted for block in blocks], [block.request_rounds for block in blocks]
        ),
        tokens_per_s=1e6 * emitted / wall,
        shares=shares,
        ms_per_token={part: 1e-3 * share * wall / emitted for part, share in shares.items()},
        survival=_survival(pairs, arm),
        padded_share=padded / (n_q + padded) if n_q + padded else 0.0,
        gap_p95_ms=objectives.gap_p95(pairs, arm, level, looked_at_often),
        tpot_p95_ms=objectives.tpot_p95(pairs, arm, level, looked_at_often),
        queue=_mean(blocks, "waiting", "rounds", 1.0),
        queue_delay_ms=_mean(blocks, "ttft_us", "first_tokens", 1e-3),
        bandwidth=_mean(blocks, "model_bytes", "verify_us", 1e6),
        dram_active=_mean(blocks, "dram_busy_us", "dram_seen_us", 1.0),
    )


def base_batch(arms: Sequence[ArmSummary]) -> float:
    """Mean sequences per round at k = 0, or in the first arm that ran; at least 1."""
    first = min(arms, key=lambda arm: arm.arm != BASELINE, default=None)
    return 1.0 if first is None else max(1.0, first.batch)


def _mean(blocks: Sequence[BlockTime], quantity: str, per: str, unit: float) -> float | None:
    """Ratio of the sums of two columns; None if a block does not know both."""
    rows = [(getattr(block, quantity), getattr(block, per)) for block in blocks]
    if any(amount is None or count is None for amount, count in rows):
        return None
    total = sum(count for _, count in rows)
    return unit * sum(amount for amount, _ in rows) / total if total else None


def _survival(pairs: Sequence[Pair], arm: str) -> Survival | None:
    """Acceptance of an arm, one cluster per block; None if a block's counts are impossible."""
    risk, kept = [], []
    for pair in pairs:
        parts = pair.parts.get(arm, ())
        if parts:
            width = max(len(counts) for part in parts for counts in (part.tested, part.kept))
            risk.append(_added([part.tested for part in parts], width))
            kept.append(_added([part.kept for part in parts], width))
    counts = zip(chain.from_iterable(risk), chain.from_iterable(kept), strict=True)
    if not any(any(row) for row in risk) or any(won > tested for tested, won in counts):
        return None
    return acceptance.survival(risk, kept)


def _added(rows: Sequence[Sequence[int]], width: int) -> list[int]:
    return [sum(row[j] for row in rows if j < len(row)) for j in range(width)]
