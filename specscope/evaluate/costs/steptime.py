"""Fit the time of a step: T = a + b n_q + c n_kv, with coefficients of at least 0.

Three coefficients predict measured steps to 3..5 % on contexts outside the fit. That is enough to
explain a loss and to order trials, and never enough to change a gate. Batch is no term: beside n_q,
unconstrained fits give it a negative coefficient.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls

from specscope.evaluate.experiment.blocks import BlockTime

NAMES = ("step", "per_query", "per_context")


@dataclass(frozen=True, slots=True)
class StepModel:
    """Fitted time of a step. [us]

    step: fixed part. per_query: time per query token. per_context: time per cached token. errors:
    standard errors of the three, clustered by block; None if a coefficient is zero or blocks are
    too few. residual: root mean square of relative errors over blocks.
    """

    step: float
    per_query: float
    per_context: float
    errors: tuple[float | None, float | None, float | None]
    blocks: int
    residual: float

    def time_us(self, n_q: float, n_kv: float) -> float:
        """Time of a step of n_q query tokens over n_kv cached tokens. [us]"""
        return self.step + self.per_query * n_q + self.per_context * n_kv

    @property
    def critical_context(self) -> float | None:
        """Context whose read costs as much as a query token; None if reads cost nothing. [tokens]

        It is about three times the limit from peaks (`roofline.critical_context`).
        """
        return self.per_query / self.per_context if self.per_context > 0 else None

    def verify_ratio(self, batch: float, context: float, k: int) -> float:
        """Time of a verify pass over that of a target-only step at the same state. [ratio]"""
        n_kv = batch * context
        return self.time_us(batch * (k + 1), n_kv) / self.time_us(batch, n_kv)


def fit(rounds: ArrayLike, n_q: ArrayLike, n_kv: ArrayLike, time_us: ArrayLike) -> StepModel:
    """Fit to sums over blocks, one row per block: time_us = a rounds + b n_q + c n_kv. [blocks]

    Rows are divided by sqrt(rounds), so each block has the weight of its rounds. Errors of non-zero
    coefficients come from a sandwich estimator over blocks. ValueError for fewer blocks than
    coefficients, or rows without rounds.
    """
    design = np.column_stack([np.asarray(c, dtype=np.float64) for c in (rounds, n_q, n_kv)])
    time = np.asarray(time_us, dtype=np.float64)
    if len(time) < len(NAMES) or (design[:, 0] <= 0).any() or not np.isfinite(design).all():
        raise ValueError(f"need at least {len(NAMES)} blocks with rounds, got {len(time)}")
    weight = 1.0 / np.sqrt(design[:, 0])
    x, y = design * weight[:, None], time * weight
    scale = np.linalg.norm(x, axis=0)
    scale[scale == 0] = 1.0
    solved, _ = nnls(x / scale, y)
    beta = solved / scale
    predicted = design @ beta
    with np.errstate(over="ignore"):  # of times that are none; the residual then says so
        residual = np.sqrt(np.mean(((time - predicted) / time) ** 2))
    return StepModel(
        step=float(beta[0]),
        per_query=float(beta[1]),
        per_context=float(beta[2]),
        errors=_errors(x, y - x @ beta, beta),
        blocks=len(time),
        residual=float(residual),
    )


def fit_blocks(blocks: Iterable[BlockTime], part: str = "verify_us") -> StepModel | None:
    """Fit one part of the rounds of blocks; None if too few of them know it."""
    rows = [
        (block.rounds, block.n_q, block.n_kv, getattr(block, part))
        for block in blocks
        if block.rounds > 0 and getattr(block, part)
    ]
    if len(rows) < len(NAMES) + 1:
        return None
    return fit(*np.array(rows, dtype=np.float64).T)


def optimistic_speedup(
    model: StepModel,
    *,
    tokens_high: float,
    draft_us: float,
    other_us: float,
    target_us: float,
    batch: float,
    context: float,
    k: int,
) -> float:
    """Upper limit of an untried k's speedup, to schedule a trial. Grade: modelled. [ratio]

    tokens_high: upper bound of tokens per round at k (`untried.most_tokens`); draft_us: modelled
    draft time of k steps; target_us: measured target-only step at this batch and context.
    """
    round_us = draft_us + model.time_us(batch * (k + 1), batch * context) + other_us
    return tokens_high * target_us / round_us


def _errors(
    x: NDArray[np.float64], residual: NDArray[np.float64], beta: NDArray[np.float64]
) -> tuple[float | None, float | None, float | None]:
    free = [i for i in range(len(beta)) if beta[i] > 0]
    errors: list[float | None] = [None, None, None]
    blocks = len(residual)
    if free and blocks > len(free):
        bread = np.linalg.pinv(x[:, free].T @ x[:, free])
        scores = x[:, free] * residual[:, None]
        meat = scores.T @ scores * blocks / (blocks - len(free))
        variances = np.diag(bread @ meat @ bread)
        for place, variance in zip(free, variances, strict=True):
            errors[place] = math.sqrt(max(0.0, float(variance)))
    return errors[0], errors[1], errors[2]
