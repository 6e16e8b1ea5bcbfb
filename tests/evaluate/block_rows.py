"""Block rows with a known truth, for tests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specscope.evaluate.experiment.blocks import BlockPart, BlockTime


@dataclass(frozen=True)
class Kind:
    """A class of traffic: what an arm yields a round, and what its round costs."""

    tokens: dict[int, float]  # by k; 1.0 at k = 0
    cost_ms: dict[int, float]  # wall time of a round, by k


def rows(
    kinds: dict[str, Kind],
    *,
    pairs: int = 20,
    requests: int = 8,
    noise: float = 0.03,
    drift: float = 0.2,
    seed: int = 0,
    tokens_each: int = 1000,
) -> tuple[list[BlockTime], list[BlockPart]]:
    """Cohort blocks: a fixed number of requests, from empty to empty, arms in random order.

    A pair's blocks share a drift; each block has its own noise (lognormal).
    """
    random = np.random.default_rng(seed)
    times, parts = [], []
    number = 0
    for name, kind in kinds.items():
        for _ in range(pairs):
            number += 1
            shared = np.exp(random.normal(0, drift))
            for k in random.permutation(sorted(kind.tokens)):
                own = shared * np.exp(random.normal(0, noise))
                times.append(block(name, int(k), kind, number, own, requests, tokens_each))
                parts.append(part(times[-1], name))
    return times, parts


def block(
    class_: str, k: int, kind: Kind, pair: int, slow: float, requests: int, tokens_each: int
) -> BlockTime:
    emitted = requests * tokens_each
    rounds = max(1, round(tokens_each / kind.tokens[k]))
    wall = 1e3 * rounds * kind.cost_ms[k] * slow
    base = 1e3 * rounds * kind.cost_ms[0] * slow
    return BlockTime(
        epoch="e1",
        policy=7,
        replica="r0",
        boot="b0",
        pair=pair,
        arm=f"k{k}",
        requests=requests,
        rounds=rounds,
        request_rounds=rounds * requests,
        classes=(class_,),
        k=k,
        wall_us=wall,
        draft_us=max(0.0, wall - base),
        verify_us=0.9 * base,
        sample_us=0.05 * base,
        idle_us=0.05 * base,
        n_q=rounds * requests * (k + 1),
        proposed=rounds * requests * k,
        accepted=emitted - rounds * requests if k else 0,
        emitted=emitted,
        first_at=pair * 10**9,
        last_at=(pair + 1) * 10**9,
    )


def part(block: BlockTime, class_: str) -> BlockPart:
    rate = block.accepted / block.proposed if block.proposed else 0.0
    tested = tuple(round(block.request_rounds * rate**j) for j in range(block.k))
    kept = tuple(min(n, round(n * rate)) for n in tested)
    return BlockPart(
        epoch=block.epoch,
        policy=block.policy,
        replica=block.replica,
        boot=block.boot,
        pair=block.pair,
        arm=block.arm,
        class_=class_,
        context_bucket="0-1k",
        output_bucket="65-256",
        k=block.k,
        request_rounds=block.request_rounds,
        proposed=block.proposed,
        accepted=block.accepted,
        emitted=block.emitted,
        tested=tested,
        kept=kept,
        requests=block.requests,
    )
