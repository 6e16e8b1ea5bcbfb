"""Whether speculation left the output alone: the distribution it must keep, and tests of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

Floats = NDArray[np.float64]


def acceptance_of(target: ArrayLike, draft: ArrayLike) -> float:
    """Chance that one proposal is kept: sum(min(p, q)) = 1 - total variation. [0..1]"""
    p, q = _distributions(target, draft)
    return float(np.minimum(p, q).sum())


def residual(target: ArrayLike, draft: ArrayLike) -> Floats:
    """What to draw from after a refusal: the positive part of p - q, normalised. [vocab]

    p itself where p = q, since nothing is ever refused then.
    """
    p, q = _distributions(target, draft)
    excess = np.maximum(p - q, 0.0)
    total = excess.sum()
    result: Floats = excess / total if total > 0 else p
    return result


def output_of(target: ArrayLike, draft: ArrayLike, after_refusal: ArrayLike) -> Floats:
    """Distribution that comes out when refusals are replaced by draws from `after_refusal`.

    With `residual(target, draft)` it is the target's; with the target itself it is not.
    """
    p, q = _distributions(target, draft)
    drawn = np.asarray(after_refusal, dtype=np.float64)
    result: Floats = np.minimum(p, q) + (1.0 - acceptance_of(p, q)) * drawn
    return result


def noncentrality(wrong: ArrayLike, right: ArrayLike) -> float:
    """Chi-square non-centrality a draw: sum((wrong - right)^2 / right)."""
    w, r = _distributions(wrong, right)
    return float(((w - r) ** 2 / r).sum())


def detection_power(wrong: ArrayLike, right: ArrayLike, draws: int, alpha: float = 1e-3) -> float:
    """Chance that a chi-square test of `draws` tokens finds a wrong distribution. [0..1]"""
    freedom = np.asarray(right).size - 1
    cut = stats.chi2.isf(alpha, freedom)
    return float(stats.ncx2.sf(cut, freedom, draws * noncentrality(wrong, right)))


def goodness_p(counts: ArrayLike, expected: ArrayLike) -> float:
    """P-value of observed token counts under a distribution. [0..1]

    Cells of fewer than five expected draws are merged into one; tokens seen where none is
    possible give 0.
    """
    seen = np.asarray(counts, dtype=np.float64)
    right = np.asarray(expected, dtype=np.float64)
    if seen.shape != right.shape or seen.sum() <= 0:
        raise ValueError("need a count for every token")
    if (seen[right == 0] > 0).any():
        return 0.0
    wanted = right * seen.sum()
    big = wanted >= 5
    cells = [(float(s), float(w)) for s, w in zip(seen[big], wanted[big], strict=True)]
    if not big.all() and wanted[~big].sum() > 0:
        cells.append((float(seen[~big].sum()), float(wanted[~big].sum())))
    if len(cells) < 2:
        return 1.0
    statistic = sum((s - w) ** 2 / w for s, w in cells)
    return float(stats.chi2.sf(statistic, len(cells) - 1))


def surprise_z(target_rows: ArrayLike, tokens: Sequence[int]) -> float:
    """Whether the emitted tokens are as surprising as the target says they should be.

    target_rows: [n, vocab] the target's distribution given each prefix; tokens: [n] emitted.
    sum(-log p(x) - H(p)) / sqrt(sum Var(-log p)): standard normal if they came from it, so
    beyond 5 is an alarm. inf where an emitted token had no chance. Needs no repeats.
    """
    p = np.asarray(target_rows, dtype=np.float64)
    chosen = p[np.arange(len(tokens)), list(tokens)]
    if (chosen <= 0).any():
        return math.inf
    with np.errstate(divide="ignore"):
        log_p = np.where(p > 0, np.log(np.where(p > 0, p, 1.0)), 0.0)
    entropy = -(p * log_p).sum(axis=1)
    variance = float(((p * log_p**2).sum(axis=1) - entropy**2).sum())
    excess = float((-np.log(chosen) - entropy).sum())
    return excess / math.sqrt(variance) if variance > 1e-12 else 0.0


def ordered_z(
    target_rows: ArrayLike, draft_rows: ArrayLike, tokens: Sequence[int], seed: int = 0
) -> float:
    """Whether the emitted tokens lean towards what the draft likes.

    Randomised probability integral transform with the vocabulary ordered by q / p: uniform if
    the tokens came from the target, so its mean is standard normal after scaling. Negative
    leans away from the draft, positive towards it.
    """
    p = np.asarray(target_rows, dtype=np.float64)
    q = np.asarray(draft_rows, dtype=np.float64)
    random = np.random.default_rng(seed).random(len(tokens))
    ranks = np.empty(len(tokens))
    for i, token in enumerate(tokens):
        with np.errstate(divide="ignore", invalid="ignore"):
            liking = np.where(p[i] > 0, q[i] / p[i], np.inf)
        below = liking < liking[token]
        same = liking == liking[token]
        ranks[i] = p[i][below].sum() + random[i] * p[i][same].sum()
    return float((ranks.mean() - 0.5) * math.sqrt(12.0 * len(tokens)))


def near_tie(margin: float, logit_error: float) -> bool:
    """Whether the two best logits lie too close for greedy decoding to be defined: within twice
    the largest difference that the same prefix showed between verify widths."""
    return margin <= 2.0 * logit_error


def _distributions(*rows: ArrayLike) -> list[Floats]:
    found = [np.asarray(row, dtype=np.float64) for row in rows]
    for row in found:
        if row.shape != found[0].shape or (row < 0).any() or abs(row.sum() - 1.0) > 1e-6:
            raise ValueError("need distributions over the same tokens")
    return found
