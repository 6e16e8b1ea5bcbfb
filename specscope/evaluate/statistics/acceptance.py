"""Acceptance by position, from counts of tested and accepted draft tokens.

A round tests position j (j is "at risk") if it drafted at least j tokens and accepted the first j -
1. If a text ends inside a round, its later positions are censored, because nothing rejected them.
Dividing by all rounds instead gives too low rates as soon as the draft length varies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]


class UntriedDraftLength(ValueError):
    """The draft length exceeds all that ran, so its acceptance and cost are unknown."""


@dataclass(frozen=True, slots=True)
class Survival:
    """Product-limit estimate of P(accepted >= j), j = 1..k.

    at_risk, kept: pooled counts by position. hazard: kept / at_risk, None if at_risk is 0.
    survival: running product of the hazards; it ends before the first position never at risk.
    se_log: cluster-robust error of log survival; None with one cluster or if survival is 0.
    """

    at_risk: tuple[int, ...]
    kept: tuple[int, ...]
    hazard: tuple[float | None, ...]
    survival: tuple[float, ...]
    se_log: tuple[float | None, ...]
    clusters: int

    @property
    def k_tried(self) -> int:
        """Longest position that was ever tested."""
        return len(self.survival)

    def accepted(self, k: int) -> float:
        """Mean accepted prefix at draft length k. [tokens, 0..k]

        UntriedDraftLength for k > k_tried; see `at_most` for an upper limit.
        """
        if k < 0:
            raise ValueError(f"draft length must not be negative, got {k}")
        if k > self.k_tried:
            raise UntriedDraftLength(f"k {k} > k_max_tried {self.k_tried}")
        return math.fsum(self.survival[:k])

    def tokens_per_round(self, k: int) -> float:
        """1 + accepted(k), ignoring texts that end inside a round. [tokens]"""
        return 1.0 + self.accepted(k)

    def at_most(self, k: int, level: float = 0.95) -> float:
        """One-sided upper confidence limit of tokens per round at any k. [tokens, 1..k + 1]

        It may schedule a trial and never recommend a length. It adds the upper limits of all
        positions' survival, as if their errors were fully correlated. Positions beyond k_tried get
        the limit of k_tried.
        """
        highest = self._highest(level)
        last = highest[-1] if highest else 1.0
        return 1.0 + math.fsum(highest[:k]) + max(0, k - len(highest)) * last

    def _highest(self, level: float) -> list[float]:
        """Upper limit of survival at each tested position. [0..1]"""
        # `specscope top` counts acceptance in the sidecar, whose image has no scipy.
        from specscope.evaluate.statistics.ratio import t_quantile

        highest, before = list[float](), 1.0
        for j, (value, error) in enumerate(zip(self.survival, self.se_log, strict=True)):
            if value == 0.0:
                # Kept nowhere: a chance that this many clusters would have missed so often.
                seen = min(self.clusters, self.at_risk[j])
                before *= 1.0 - math.pow(1.0 - level, 1.0 / seen)
            elif error is not None:
                reach = t_quantile(2.0 * level - 1.0, self.clusters - 1) * error
                before = min(before, value * math.exp(min(reach, 700.0)))
            highest.append(before)
        return highest


def positions_at_risk(k: int, accepted: int, censored: bool) -> int:
    """Number of tested positions in one round. [0..k]

    It is accepted + 1 if a token was rejected, k if all were accepted, and accepted if the text
    ended inside the round (censored).
    """
    if not 0 <= accepted <= k:
        raise ValueError(f"accepted must be within 0..{k}, got {accepted}")
    return accepted if censored else min(k, accepted + 1)


def count_positions(
    rounds: Sequence[tuple[int, int, bool]], k_max: int
) -> tuple[list[int], list[int]]:
    """At-risk and kept counts by position from rounds (k, accepted, censored)."""
    at_risk, kept = [0] * k_max, [0] * k_max
    for k, accepted, censored in rounds:
        for j in range(positions_at_risk(k, accepted, censored)):
            at_risk[j] += 1
        for j in range(accepted):
            kept[j] += 1
    return at_risk, kept


def hazard(at_risk: Counts, kept: Counts) -> NDArray[np.float64]:
    """Probability of acceptance at each position, given that it was tested.

    at_risk, kept: [k]. Returns [k] in 0..1; nan if at_risk is 0 (`survival` leaves such positions
    out). Source: Kaplan & Meier 1958.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(at_risk > 0, kept / at_risk, np.nan)


def survival(at_risk: Sequence[Sequence[int]], kept: Sequence[Sequence[int]]) -> Survival:
    """Survival by position over clusters (requests or blocks).

    at_risk, kept: one sequence of counts per cluster, position 1 first; missing ends count as 0.
    Only rounds whose k did not depend on recent acceptance may enter. A controller that drafts
    longer in easy text biases the result upwards. Var(log S(k)) = G / (G - 1) * sum_i(sum_j<=k
    phi_i(j))^2, phi_i(j) = (kept_ij - h_j at_risk_ij) / (at_risk_j h_j). ValueError if a cluster
    kept more than was at risk.
    """
    risk, won = _rectangle(at_risk), _rectangle(kept)
    width = max(risk.shape[1], won.shape[1])
    risk, won = _widen(risk, width), _widen(won, width)
    if risk.shape != won.shape:
        raise ValueError(f"clusters differ: {len(risk)} at risk, {len(won)} kept")
    if (won > risk).any() or (won < 0).any():
        raise ValueError("more kept than at risk")
    total_risk, total_won = risk.sum(axis=0), won.sum(axis=0)
    hazards = hazard(total_risk, total_won)
    tried = int(np.argmax(total_risk == 0)) if (total_risk == 0).any() else width
    curve = np.cumprod(hazards[:tried])
    return Survival(
        at_risk=tuple(int(n) for n in total_risk),
        kept=tuple(int(n) for n in total_won),
        hazard=tuple(None if math.isnan(h) else float(h) for h in hazards),
        survival=tuple(float(s) for s in curve),
        se_log=_log_errors(risk, won, hazards, tried),
        clusters=len(risk),
    )


def _log_errors(
    risk: Counts, won: Counts, hazards: NDArray[np.float64], tried: int
) -> tuple[float | None, ...]:
    clusters = len(risk)
    errors: list[float | None] = []
    influence = np.zeros(clusters)
    for j in range(tried):
        if clusters < 2 or hazards[j] <= 0:
            errors.extend([None] * (tried - j))
            break
        influence += (won[:, j] - hazards[j] * risk[:, j]) / (risk[:, j].sum() * hazards[j])
        errors.append(math.sqrt(clusters / (clusters - 1) * float(influence @ influence)))
    return tuple(errors)


def _rectangle(rows: Sequence[Sequence[int]]) -> Counts:
    width = max((len(row) for row in rows), default=0)
    filled = np.zeros((len(rows), width), dtype=np.int64)
    for i, row in enumerate(rows):
        filled[i, : len(row)] = row
    return filled


def _widen(counts: Counts, width: int) -> Counts:
    return np.pad(counts, ((0, 0), (0, width - counts.shape[1])))
