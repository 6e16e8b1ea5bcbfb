"""Four classes that share a replica under an experiment whose arms are tables, in numpy.

It shares no code with the evaluator. All rows take every step together; row i proposes k_i tokens,
each kept with its class's chance until the first that is not. A step of n rows costs

    6 + 0.15 n_q + 0.25 longest [ms],

where n_q is n + sum k on an engine that packs rows, and n (longest + 1) on one that pads them all
to the longest draft. A row that has its tokens makes room for the next request at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from specscope.evaluate.experiment.blocks import BlockPart, BlockTime

Lengths = Mapping[str, int]
"""Draft length by class."""
Cost = Callable[[int, int, int], int]
"""(rows, proposals, longest draft) to query tokens."""

KEEPS = {"json": 0.93, "sql": 0.85, "chat": 0.35, "prose": 0.28}
SLOTS = 4  # of each class
OUTPUT = 80.0
STEPS = 150


def packed(rows: int, proposals: int, longest: int) -> int:
    """Query tokens of a step that holds no padding."""
    return rows + proposals


def padded(rows: int, proposals: int, longest: int) -> int:
    """Query tokens of a step that is as wide as its longest draft."""
    return rows * (longest + 1)


def block(lengths: Lengths, cost: Cost, random: np.random.Generator, steps: int = STEPS):
    """Time [ms], and by class its tokens, kept proposals and ended requests, of one block."""
    names = np.repeat(list(KEEPS), SLOTS)
    chance = np.array([KEEPS[name] for name in names])
    k = np.array([lengths[name] for name in names])
    left = np.ceil(random.exponential(OUTPUT, len(names)))
    tokens, kept, ended = (np.zeros(len(names)) for _ in range(3))
    n_q = cost(len(names), int(k.sum()), int(k.max()))
    for _ in range(steps):
        drawn = np.floor(np.log(random.random(len(names))) / np.log(chance))
        accepted = np.minimum(drawn, k)
        out = np.minimum(accepted + 1, left)
        left -= out
        tokens += out
        kept += accepted
        over = left <= 0
        ended += over
        left[over] = np.ceil(random.exponential(OUTPUT, int(over.sum())))
    wall = steps * (6.0 + 0.15 * n_q + 0.25 * float(k.max()))
    sums = {
        name: tuple(int(one[names == name].sum()) for one in (tokens, kept, ended))
        for name in KEEPS
    }
    return wall, n_q, sums


def truth(arms: Mapping[str, Lengths], cost: Cost) -> dict[str, float]:
    """Tokens per ms of each arm for ever, over those of k0."""
    rates = {}
    for name, lengths in arms.items():
        wall, _, sums = block(lengths, cost, np.random.default_rng(1), 20_000)
        rates[name] = sum(one[0] for one in sums.values()) / wall
    return {name: rate / rates["k0"] for name, rate in rates.items()}


def experiment(
    arms: Mapping[str, Lengths], cost: Cost, pairs: int, seed: int, noise: float = 0.03
) -> tuple[list[BlockTime], list[BlockPart]]:
    """Blocks of an experiment. Those of a pair share a drift of 10 %, each has its own noise."""
    random = np.random.default_rng(seed)
    blocks, parts = [], []
    now = 10**15
    for pair in range(1, pairs + 1):
        drift = np.exp(random.normal(0, 0.1))
        for name in random.permutation(list(arms)):
            wall, n_q, sums = block(arms[name], cost, random)
            wall *= drift * np.exp(random.normal(0, noise))
            times, rows = _rows(name, arms[name], pair, now, (wall, n_q, sums))
            blocks.append(times)
            parts += rows
            now = times.last_at
    return blocks, parts


def _rows(arm, lengths, pair, began, ran):
    wall, n_q, sums = ran
    where = {"epoch": "e", "policy": 2, "replica": "r", "boot": "b", "pair": pair, "arm": str(arm)}
    rows = [
        BlockPart(
            **where, class_=name, context_bucket="0-1k", output_bucket="65-256", k=lengths[name],
            request_rounds=STEPS * SLOTS, proposed=STEPS * SLOTS * lengths[name], accepted=kept,
            emitted=tokens, requests=ended + SLOTS,
        )
        for name, (tokens, kept, ended) in sums.items()
    ]  # fmt: skip
    times = BlockTime(
        **where, requests=sum(row.requests for row in rows), rounds=STEPS,
        request_rounds=STEPS * SLOTS * len(rows), classes=tuple(sorted(sums)),
        k=max(lengths.values()),
        wall_us=1e3 * wall, n_q=STEPS * n_q, n_kv=0, emitted=sum(row.emitted for row in rows),
        proposed=sum(row.proposed for row in rows), accepted=sum(row.accepted for row in rows),
        first_at=began, last_at=began + round(1e6 * wall), waiting=0,
    )  # fmt: skip
    return times, rows
