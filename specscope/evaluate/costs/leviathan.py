"""The closed forms of Leviathan, Kalman & Matias 2023 (arXiv 2211.17192).

They assume a constant chance alpha of keeping a token, a verify pass that costs one
target-only step whatever it verifies, long outputs, and a batch of one. Against the authors'
own measurements they are off by -32 % to +29 %: they explain, and order what to try.
c is the time of a draft step in target-only steps, ops the same in arithmetic operations.
"""

from __future__ import annotations

from specscope.evaluate.costs.closed_forms import tokens_per_round


def walltime_factor(k: int, alpha: float, c: float) -> float:
    """Speedup of k proposals: tokens per round / (k * c + 1). [ratio]

    ValueError for c < 0, k < 0 or alpha outside 0..1.
    """
    if c < 0:
        raise ValueError(f"a draft step cannot take negative time, got {c}")
    return tokens_per_round(k, alpha) / (k * c + 1.0)


def operations_factor(k: int, alpha: float, ops: float) -> float:
    """Arithmetic operations per token, against target-only decoding. [ratio, >= 1 costs more]"""
    if ops < 0:
        raise ValueError(f"a draft step cannot take negative operations, got {ops}")
    return (k * ops + k + 1.0) / tokens_per_round(k, alpha)


def optimal_draft_length(alpha: float, c: float, k_max: int = 64) -> int:
    """The k in 0..k_max with the highest walltime factor, the smaller of equals."""
    return max(range(k_max + 1), key=lambda k: (walltime_factor(k, alpha, c), -k))


def improves(alpha: float, c: float) -> bool:
    """Whether some k > 0 gains under these assumptions: alpha > c."""
    return alpha > c


def least_improvement(alpha: float, c: float) -> float:
    """A gain that some k reaches where alpha > c: (1 + alpha) / (1 + c), that of k = 1. [ratio]"""
    return (1.0 + alpha) / (1.0 + c)


def oracle_factor(alpha: float, c: float) -> float:
    """Speedup of a drafter that stops exactly before the first token to be refused. [ratio]

    1 / ((1 - alpha) + c * alpha). ValueError for alpha = 1 with c = 0, where it is unbounded.
    """
    cost = (1.0 - alpha) + c * alpha
    if cost <= 0:
        raise ValueError("an oracle without draft cost and without refusals has no bound")
    return 1.0 / cost
