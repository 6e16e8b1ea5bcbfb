"""Counterfactuals and untried draft lengths from raw rows in numpy, by the evaluator's page.

Part of `golden_numpy`, by the same rule: no code is shared with the product.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from golden_numpy import Block, tested_and_kept
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import nnls

Pair = Mapping[str, Block]
EASIER = 0.21  # what a shorter draft may gain in acceptance, as docs/evaluator.md's code says


def without(pairs: Sequence[Pair], arm: str, part: str) -> float:
    """Speedup of an arm over k0 if a part took no longer than in a target-only step."""

    def sums(name: str, column: str) -> float:
        return sum(pair[name].total(column) for pair in pairs)

    ms = {(name, column): 1e-3 * sums(name, f"{column}_us") / sums(name, "emitted")
          for name in (arm, "k0") for column in ("wall", part)}  # fmt: skip
    tokens = {name: sums(name, "emitted") / sums(name, "batch") for name in (arm, "k0")}
    excess = max(0.0, ms[arm, part] - ms["k0", part] * tokens["k0"] / tokens[arm])
    return ms["k0", "wall"] / (ms[arm, "wall"] - excess)


def verify_fit(blocks: Iterable[Block]) -> NDArray[np.float64]:
    """Time of a verify pass: fixed, per query token, per cached token, none negative. [us]
    A long block weighs by its rounds."""
    rows = [(len(b.rounds), b.total("n_q"), b.total("n_kv"), b.total("verify_us"))
            for b in blocks if b.rounds and b.total("verify_us")]  # fmt: skip
    table = np.array(rows) / np.sqrt([[row[0]] for row in rows])
    scale = np.linalg.norm(table[:, :3], axis=0)
    solved, _ = nnls(table[:, :3] / scale, table[:, 3])
    return np.asarray(solved / scale)


def most_tokens(arms: Sequence[Sequence[Block]], k: int) -> float:
    """Tokens per round at a length that nobody ran, at most. arms: blocks of each that drafted."""
    accepted = []
    for blocks in arms:
        high, longest, coverage = _survival_at_most(blocks, 0.05 / len(arms))
        beyond = [high[-1]] * max(0, k - longest)
        kept = sum(high[:k]) + sum(beyond)
        accepted.append(coverage * min(float(k), kept / (1 - EASIER if k < longest else 1)))
    return 1.0 + min(accepted)


def _survival_at_most(blocks: Sequence[Block], error: float) -> tuple[list[float], int, float]:
    counts = [tested_and_kept(block.parts) for block in blocks if block.parts]
    width = max(len(tested) for tested, _ in counts)
    tested, kept = (
        np.array([np.pad(c[i], (0, width - len(c[i]))) for c in counts]) for i in (0, 1)
    )
    hazard = kept.sum(axis=0) / tested.sum(axis=0)
    influence = np.cumsum((kept - hazard * tested) / (tested.sum(axis=0) * hazard), axis=1)
    n = len(counts)
    reach = stats.t.ppf(1 - error, n - 1) * np.sqrt(n / (n - 1) * (influence**2).sum(axis=0))
    high = np.minimum.accumulate(np.minimum(1.0, np.cumprod(hazard) * np.exp(reach)))
    drafted, rounds = tested.sum(axis=0)[0], sum(len(p["k"]) for b in blocks for p in b.parts)
    return list(high), width, _wilson_high(int(drafted), rounds) if drafted < rounds else 1.0


def _wilson_high(hits: int, of: int) -> float:
    z, share = stats.norm.ppf(0.975), hits / of
    root = math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return float(min(1.0, (share + z * z / (2 * of) + z * root) / (1 + z * z / of)))


def at_best(pairs: Sequence[Pair], fit: NDArray[np.float64], tokens: float, k: int) -> float:
    """Throughput over target-only at an untried k, with so many tokens per round."""

    def each(arm: str, column: str) -> float:
        blocks = [pair[arm] for pair in pairs]
        return sum(b.total(column) for b in blocks) / sum(len(b.rounds) for b in blocks)

    batch, cached = each("k0", "batch"), each("k0", "n_kv")
    drafts = {arm: each(arm, "draft_us") for arm in ("k2", "k4")}
    step = max(0.0, (drafts["k4"] - drafts["k2"]) / 2)
    fixed = drafts["k2"] - 2 * step
    if fixed < 0:  # no draft is free of its steps: the best line through nothing
        fixed, step = 0.0, (2 * drafts["k2"] + 4 * drafts["k4"]) / (2**2 + 4**2)
    draft = fixed + step * k
    other = min(max(0.0, each(a, "wall_us") - each(a, "draft_us") - each(a, "verify_us"))
                for a in ("k2", "k4"))  # fmt: skip
    verify = float(fit @ [1.0, batch * (k + 1), cached])
    return tokens * each("k0", "wall_us") / (draft + verify + other)
