"""An engine under open arrivals, in numpy: many replicas of one experiment at once.

Requests come by a Poisson process whose rate wanders, ask for 20 + Exp(180) tokens, and run at
once. A step takes 6.94 + 0.0184 n (k + 1) + 0.0486 n ms for n requests at contexts of 1000, and
k (0.35 + 0.001 n) + 0.2 more where it drafts, so whoever comes slows all others down; each block
has a noise of its own beside.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specscope.evaluate.experiment.blocks import BlockTime
from specscope.evaluate.statistics.quantiles import bin_of, value_of

TOKENS = {0: 1.0, 3: 1.46}  # a round
STEP_S, SLOTS = 0.25, 120
BLOCK_S, BURN_IN_S = 16.0, 4.0


@dataclass
class Recorded:
    """By block and replica: requests admitted, output tokens of these, and of those that are timed
    how many ended and the sum of their times per token."""

    requests: np.ndarray
    tokens: np.ndarray
    ended: np.ndarray
    ms: np.ndarray


def simulate(
    lengths: np.ndarray, *, rate: float = 20.0, noise: float = 0.005, seed: int = 0
) -> Recorded:
    """Run blocks one after the other. lengths: [blocks, replicas] draft length of each."""
    random = np.random.default_rng(seed)
    blocks, replicas = lengths.shape
    shape = (replicas, SLOTS)
    left, size, ran = np.zeros(shape), np.ones(shape), np.zeros(shape)
    born = np.zeros(shape, int)
    wander = np.zeros(replicas)
    # The last row is for requests whose time per token is not used.
    requests, ended = np.zeros((blocks + 1, replicas), int), np.zeros((blocks + 1, replicas), int)
    tokens, total = np.zeros((blocks + 1, replicas)), np.zeros((blocks + 1, replicas))
    for number in range(blocks):
        k = lengths[number]
        yields = np.where(k > 0, TOKENS[3], TOKENS[0])
        own = np.exp(random.normal(0, noise, replicas))
        for step in range(round(BLOCK_S / STEP_S)):
            n = (left > 0).sum(axis=1)
            round_ms = 6.94 + 0.0184 * n * (k + 1) + 0.0486 * n
            round_ms = (round_ms + np.where(k > 0, k * (0.35 + 0.001 * n) + 0.2, 0.0)) * own
            done = (1e3 * STEP_S * yields / round_ms)[:, None]
            ran += STEP_S * np.minimum(1.0, left / done)
            over = (left > 0) & (left <= done)
            left = np.maximum(0.0, left - done)
            replica, slot = np.nonzero(over)
            into = born[replica, slot], replica
            np.add.at(ended, into, 1)
            np.add.at(total, into, 1e3 * ran[replica, slot] / size[replica, slot])
            wander = 0.98 * wander + random.normal(0, 0.02, replicas)
            arrived = random.poisson(rate * STEP_S * np.exp(wander))
            free = left == 0
            admitted = free & (np.cumsum(free, axis=1) <= arrived[:, None])
            replica, slot = np.nonzero(admitted)
            asked = 20 + random.exponential(180, len(slot))
            left[replica, slot] = size[replica, slot] = asked
            ran[replica, slot] = 0.0
            age_s = step * STEP_S
            timed = BURN_IN_S <= age_s <= BLOCK_S - BURN_IN_S  # as the rollup of blocks does
            born[replica, slot] = number if timed else blocks
            np.add.at(requests[number], replica, 1)
            np.add.at(tokens[number], replica, asked)
    return Recorded(requests[:-1], tokens[:-1], ended[:-1], total[:-1])


def experiment(
    pairs: int, replicas: int, arms: tuple[int, int] = (0, 3), *, seed: int = 0, **traffic: float
) -> list[list[BlockTime]]:
    """A switchback on each replica: pairs of both arms in random order. Rows by replica.

    The arms are named k0 and k3, whatever they run.
    """
    order = np.random.default_rng(seed + 1).integers(0, 2, (pairs, replicas))
    first = np.stack([order, 1 - order], axis=1).reshape(2 * pairs, replicas)
    lengths = np.where(first == 0, arms[0], arms[1])
    # A block more, so that all requests of the last pair end.
    found = simulate(np.vstack([lengths, lengths[:1]]), seed=seed, **traffic)
    return [
        [
            as_block(found, replica, number, ("k0", "k3")[first[number, replica]])
            for number in range(2 * pairs)
        ]
        for replica in range(replicas)
    ]


def as_block(found: Recorded, replica: int, number: int, arm: str) -> BlockTime:
    """A row of the store's; its engine is always busy and hardly anybody waits."""
    requests, ended = int(found.requests[number, replica]), int(found.ended[number, replica])
    tokens = int(found.tokens[number, replica])
    # Two bins that hold as many requests with the same mean.
    mean = found.ms[number, replica] / ended
    above = bin_of(mean)
    bins = (above - 1, above) if value_of(above) > mean else (above, above + 1)
    low, high = (value_of(b) for b in bins)
    fast = round(ended * (high - mean) / (high - low))
    begun = int(1e9 * (number * BLOCK_S + BURN_IN_S))
    return BlockTime(
        epoch="e", policy=1, replica="r", boot="b", pair=1 + number // 2, arm=arm,
        requests=requests, rounds=1000, request_rounds=40_000, classes=("chat",), k=int(arm[1:]),
        proposed=40_000 * int(arm[1:]),
        wall_us=1e6 * (BLOCK_S - BURN_IN_S), emitted=tokens, waiting=300,
        first_at=begun, last_at=begun + int(1e9 * (BLOCK_S - BURN_IN_S)),
        ended_requests=requests, output_tokens=tokens,
        tpot_bins=bins, tpot_counts=(fast, ended - fast),
    )  # fmt: skip


def true_gain(seed: int = 99, **traffic: float) -> float:
    """Mean time per token of everybody at k = 0 over that at k = 3, in the long run."""
    means = []
    for k in (0, 3):
        found = simulate(np.full((12, 200), k), seed=seed, **traffic)
        means.append(found.ms[2:-1].sum() / found.ended[2:-1].sum())
    return float(means[0] / means[1])
