"""A serving engine in numpy with a gate: classes share every step, each row has its own k.

A step costs 6.94 + 0.0184 n_q + 4.86e-5 n_kv ms, and k (0.35 + 0.001 rows that draft) + 0.2 ms
more for the longest draft in it: rows at k = 0 really save. Requests of a class draw their
acceptance from a beta distribution; each class holds its slots, refilled at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from specscope.evaluate.experiment.blocks import BlockPart, BlockTime

Gate = Callable[[str, int], int]
"""(class, batch now) to draft length."""


@dataclass(frozen=True)
class Traffic:
    """A class: acceptance Beta(a, b), contexts up to, output tokens 20 + Exp(mean)."""

    name: str
    a: float
    b: float
    context: float = 1000.0
    output: float = 120.0


def cohort(
    traffic: Traffic, requests: int, k: int, pair: int, slow: float, noise: float
) -> tuple[BlockTime, BlockPart]:
    """One class alone, from empty to empty; the same pair, the same requests."""
    random = np.random.default_rng(pair)
    rate = random.beta(traffic.a, traffic.b, requests)
    left = np.ceil(20 + random.exponential(traffic.output, requests))
    context = random.uniform(0.5, 1.0, requests) * traffic.context
    wall, verify, rounds, request_rounds, emitted, n_q, n_kv = 0.0, 0.0, 0, 0, 0, 0, 0.0
    accepted = 0
    while (active := left > 0).any():
        batch = int(active.sum())
        drawn = np.floor(np.log(random.random(requests)) / np.log(rate))
        out = np.where(active, np.minimum(np.minimum(drawn, k) + 1, left), 0)
        queries = batch * (k + 1)
        cached = float(context[active].sum())
        wall += step_ms(queries, cached, k, batch if k else 0)
        verify += step_ms(queries, cached, 0, 0)
        left -= out
        context += out
        rounds += 1
        request_rounds += batch
        emitted += int(out.sum())
        accepted += int(np.minimum(drawn, k)[active].sum())
        n_q += queries
        n_kv += cached
    own = slow * np.exp(np.random.default_rng((pair, k, 7)).normal(0, noise))
    shared = {"epoch": "e", "policy": 1, "replica": "r", "boot": "b", "pair": pair}
    block = BlockTime(
        **shared,
        arm=f"k{k}",
        requests=requests,
        rounds=rounds,
        request_rounds=request_rounds,
        classes=(traffic.name,),
        k=k,
        wall_us=float(1e3 * wall * own),
        verify_us=float(1e3 * verify * own),
        n_q=n_q,
        n_kv=int(n_kv),
        emitted=emitted,
        proposed=request_rounds * k,
        accepted=accepted,
        first_at=pair,
        last_at=pair,
    )
    part = BlockPart(
        **shared,
        arm=f"k{k}",
        class_=traffic.name,
        context_bucket="0-1k" if traffic.context <= 1024 else "16-64k",
        output_bucket="65-256",
        k=k,
        request_rounds=request_rounds,
        proposed=request_rounds * k,
        accepted=accepted,
        emitted=emitted,
        requests=requests,
    )
    return block, part


def step_ms(n_q: float, n_kv: float, k: int, drafting: int) -> float:
    """Cost of one step."""
    draft = k * (0.35 + 0.001 * drafting) + 0.2 if k else 0.0
    return 6.94 + 0.0184 * n_q + 4.86e-5 * n_kv + draft


def experiment(
    traffic: Traffic,
    requests: int,
    arms: tuple[int, ...],
    pairs: int,
    seed: int,
    noise: float,
    drift: float = 0.2,
) -> tuple[list[BlockTime], list[BlockPart]]:
    """Pairs of cohorts; each pair shares a drift."""
    random = np.random.default_rng(seed)
    blocks, parts = [], []
    for pair in range(pairs):
        slow = np.exp(random.normal(0, drift))
        for k in arms:
            block, part = cohort(traffic, requests, k, seed * 10_000 + pair + 1, slow, noise)
            blocks.append(block)
            parts.append(part)
    return blocks, parts


def serve(
    traffics: list[Traffic], slots: int, gate: Gate, steps: int, seed: int
) -> tuple[float, dict[str, float]]:
    """Mixed traffic under a gate: tokens per ms in all, and time per token of each class. [ms]"""
    random = np.random.default_rng(seed)
    total = slots * len(traffics)
    names = np.repeat([t.name for t in traffics], slots)
    a = np.repeat([t.a for t in traffics], slots)
    b = np.repeat([t.b for t in traffics], slots)
    mean = np.repeat([t.output for t in traffics], slots)
    longest = np.repeat([t.context for t in traffics], slots)
    lengths = np.array([gate(name, total) for name in names])
    rate, left, context = random.beta(a, b), np.zeros(total), np.zeros(total)
    wall, tokens = 0.0, np.zeros(total)
    for _ in range(steps):
        new = left <= 0
        rate[new] = random.beta(a[new], b[new])
        left[new] = np.ceil(20 + random.exponential(mean[new]))
        context[new] = random.uniform(0.5, 1.0, int(new.sum())) * longest[new]
        drawn = np.floor(np.log(random.random(total)) / np.log(rate))
        out = np.minimum(np.minimum(drawn, lengths) + 1, left)
        wall += step_ms(
            total + lengths.sum(), context.sum(), int(lengths.max()), int((lengths > 0).sum())
        )
        left -= out
        context += out
        tokens += out
    each = {t.name: slots * wall / tokens[names == t.name].sum() for t in traffics}
    return float(tokens.sum()) / wall, each
