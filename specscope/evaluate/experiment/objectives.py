"""The metric of a speedup, which follows from the arrival of the traffic.

In a cohort, in a closed loop and at saturation, speculation changes the tokens per second of the
whole batch. If requests arrive independently and the engine keeps up, tokens per second equal the
arrivals in every arm. Then speculation changes the time per output token of a request. Between the
two, both metrics count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import mul
from typing import Literal

import numpy as np

from specscope.evaluate.experiment.blocks import BlockTime
from specscope.evaluate.experiment.pairs import Pair
from specscope.evaluate.statistics import quantiles, ratio
from specscope.evaluate.statistics.quantiles import QuantileEstimate
from specscope.evaluate.statistics.ratio import LogRatio

Metric = Literal["throughput", "latency"]
Objective = Metric | float
"""One of two metrics, or the weight of throughput between them, 0..1."""

METRICS: Mapping[str, str] = {
    "throughput": "output tokens per second of the whole batch, target-only = 1",
    "latency": "mean over requests of time per output token, target-only / arm",
}

# Below the first share of waiting requests the engine keeps up; beyond the second it is saturated.
# Between them both metrics count, each with its weight, so that no verdict hangs on 0.099 or 0.101.
QUEUE = (0.05, 0.2)
# The same by the share of time in which rounds run, for engines whose queues are not known.
BUSY = (0.7, 0.9)


def objective_for(design: str, blocks: Sequence[BlockTime]) -> Objective:
    """Throughput for cohorts and closed loops; for open arrivals by how saturated the engine is."""
    weight = saturation(blocks) if design == "switchback" else 1.0
    return {0.0: "latency", 1.0: "throughput"}.get(weight, weight)  # type: ignore[return-value]


def weight_of(objective: Objective) -> float:
    """Weight of throughput: 1 if it alone counts, 0 if only time per output token counts."""
    if isinstance(objective, str):
        return 1.0 if objective == "throughput" else 0.0
    return objective


def metric_of(objective: Objective) -> str:
    """The metric of a speedup, in words."""
    if isinstance(objective, str):
        return METRICS[objective]
    return "; ".join(
        f"{METRICS[name]} (weight {share:.0%})"
        for name, share in (("throughput", objective), ("latency", 1.0 - objective))
    )


def saturation(blocks: Sequence[BlockTime]) -> float:
    """Degree of saturation: 0 if requests run on arrival, 1 if they certainly queue.

    It is computed from waiting requests over running requests. Busy time would not do: an engine
    with a few dozen requests is always busy, long before it is saturated. Only blocks with an
    unknown queue use busy time.
    """
    waiting = queue_share(blocks)
    return degree(busy_share(blocks), BUSY) if waiting is None else degree(waiting, QUEUE)


def degree(value: float, edges: tuple[float, float]) -> float:
    """Linear ramp: 0 up to the first edge, 1 from the second edge on. [0..1]"""
    low, high = edges
    return min(1.0, max(0.0, (value - low) / (high - low)))


def queue_share(blocks: Sequence[BlockTime]) -> float | None:
    """Waiting over running requests; None if a block does not know them. [ratio]"""
    waiting = [block.waiting for block in blocks if block.waiting is not None]
    running = sum(block.request_rounds for block in blocks)
    return sum(waiting) / running if running and len(waiting) == len(blocks) else None


def queue_growth(block: BlockTime) -> float | None:
    """Growth of a replica's queue over a block, in requests; None if unknown."""
    if block.waiting_first is None or block.waiting_last is None:
        return None
    return (block.waiting_last - block.waiting_first) / block.merged


def busy_share(blocks: Sequence[BlockTime]) -> float:
    """Share of the blocks' spans in which rounds ran; 1 if spans are unknown. [0..1]"""
    span_us = sum(block.merged * (block.last_at - block.first_at) / 1e3 for block in blocks)
    wall_us = sum(block.wall_us or 0.0 for block in blocks)
    return min(1.0, wall_us / span_us) if span_us > 0 else 1.0


def comparable(pairs: Sequence[Pair], arm: str, baseline: str, objective: Objective) -> list[Pair]:
    """The pairs that ran both arms and know the objective's quantities."""
    return [
        pair
        for pair in pairs
        if arm in pair.blocks
        and baseline in pair.blocks
        and all(knows(pair.blocks[name], objective) for name in (arm, baseline))
    ]


def measure(
    pairs: Sequence[Pair], arm: str, baseline: str, objective: Objective
) -> LogRatio | None:
    """Log of the speedup in the objective's metric, > 0 is faster. None if no pair knows both."""
    known = comparable(pairs, arm, baseline, objective)
    return contrast_of(
        [(pair.blocks[arm], pair.blocks[baseline]) for pair in known],
        objective,
    )


def contrast_of(
    blocks: Sequence[tuple[BlockTime, BlockTime]], objective: Objective
) -> LogRatio | None:
    """Log of the speedup of each pair's first block over its second; None if there is no pair.

    Every block must know the objective. Between two metrics it is the weighted mean of their logs.
    """
    if not blocks:
        return None
    weight = weight_of(objective)
    if weight <= 0.0 or weight >= 1.0:
        return _compare(blocks, "throughput" if weight else "latency")
    return ratio.weighted(_compare(blocks, "throughput"), _compare(blocks, "latency"), weight)


def _compare(blocks: Sequence[tuple[BlockTime, BlockTime]], metric: Metric) -> LogRatio:
    rows = [(*amounts(one, metric), *amounts(base, metric)) for one, base in blocks]
    return ratio.paired_log_ratio(*np.array(rows, dtype=np.float64).T)


def effect(one: BlockTime, base: BlockTime, objective: Objective) -> float:
    """Log of the speedup of one block over another; both must know the objective."""
    weight = weight_of(objective)
    shares: tuple[tuple[Metric, float], ...] = (("throughput", weight), ("latency", 1.0 - weight))
    log_ratio = 0.0
    for metric, share in shares:
        if share > 0.0:
            (gain, price), (base_gain, base_price) = amounts(one, metric), amounts(base, metric)
            log_ratio += share * math.log(gain / price / (base_gain / base_price))
    return log_ratio


def knows(block: BlockTime, objective: Objective) -> bool:
    """Whether a block knows the objective's quantities; time per token needs a timed request."""
    return weight_of(objective) >= 1.0 or any(block.tpot_counts)


def amounts(block: BlockTime, metric: Metric) -> tuple[float, float]:
    """Numerator and denominator of the objective for a block that `knows` it; more is better.

    throughput: tokens over wall time. latency: requests over the sum of their times per output
    token.
    """
    if metric == "throughput":
        return float(block.emitted), block.wall_us
    return _requests_and_time(block)


def gap_p95(
    pairs: Sequence[Pair], arm: str, level: float = 0.95, looked_at_often: bool = False
) -> QuantileEstimate | None:
    """95th percentile of the time between two chunks of a request. [ms] None if unknown.

    Tokens of a round arrive together, so gaps between tokens are not comparable under speculation;
    gaps between chunks are.
    """
    return _p95(
        [_histogram(p.blocks[arm], "gap") for p in pairs if arm in p.blocks], level, looked_at_often
    )


def tpot_p95(
    pairs: Sequence[Pair], arm: str, level: float = 0.95, looked_at_often: bool = False
) -> QuantileEstimate | None:
    """95th percentile over requests of the time per output token. [ms] None if unknown."""
    return _p95(
        [_histogram(p.blocks[arm], "tpot") for p in pairs if arm in p.blocks],
        level,
        looked_at_often,
    )


def exceeds(quantile: QuantileEstimate | None, allowance_ms: float | None) -> bool:
    """Whether a quantile lies above a limit, by the lower end of its interval."""
    if quantile is None or quantile.low is None or allowance_ms is None:
        return False
    return quantile.low > allowance_ms


def _p95(
    histograms: Sequence[dict[int, int]], level: float, looked_at_often: bool
) -> QuantileEstimate | None:
    full = [one for one in histograms if one]
    if not full:
        return None
    return quantiles.woodruff(full, 0.95, level, looked_at_often=looked_at_often)


def _requests_and_time(block: BlockTime) -> tuple[float, float]:
    values = map(quantiles.value_of, block.tpot_bins)
    return float(sum(block.tpot_counts)), math.fsum(map(mul, block.tpot_counts, values))


def _histogram(block: BlockTime, kind: str) -> dict[int, int]:
    bins, counts = getattr(block, f"{kind}_bins"), getattr(block, f"{kind}_counts")
    return {int(i): int(n) for i, n in zip(bins, counts, strict=True) if n}
