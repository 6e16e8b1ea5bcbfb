"""Choosing tokens: temperature, top-k, top-p, then the largest score, with noise or without."""

import torch
from torch import Tensor

from specscope.engine.noise import COUPLED, gumbel, key
from specscope.engine.state import BatchState, Needs


def shape_scores(logits: Tensor, rows: Tensor, state: BatchState, needs: Needs) -> Tensor:
    """logits [n, vocab] under the settings of their rows [n]: log-probabilities up to a constant.

    Filtered tokens get -inf. Top-k acts before top-p, and ties with the last token kept stay, so
    that the same logits always keep the same tokens.
    """
    if not needs.noise:
        return logits
    scores = logits / state.temperature[rows, None].to(logits.dtype)
    return _filter(scores, state.top_k[rows], state.top_p[rows]) if needs.filters else scores


def draw_noise(
    rows: Tensor, positions: Tensor, state: BatchState, needs: Needs, stream: int, vocab: int
) -> Tensor | None:
    """What is added to the scores of tokens at `positions` [n] of `rows` [n]: [n, vocab] or None.

    Nothing for greedy rows; for coupled rows the noise that all models share; for rejection rows
    that of `stream`.
    """
    if not needs.noise:
        return None
    streams = torch.where(state.rejection[rows], stream, COUPLED)
    noise = gumbel(key(state.seed[rows], positions, streams), vocab)
    return noise.masked_fill_(state.greedy[rows, None], 0.0) if needs.greedy else noise


def choose(scores: Tensor, noise: Tensor | None) -> Tensor:
    """One token [n] for each of scores [n, vocab]: the largest, after noise where there is some."""
    return scores.argmax(-1) if noise is None else (scores + noise).argmax(-1)


def _filter(scores: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    vocab = scores.shape[-1]
    descending = scores.sort(-1, descending=True).values
    last = torch.where(top_k > 0, top_k.clamp(max=vocab), vocab)[:, None] - 1
    descending = descending.masked_fill(
        torch.arange(vocab, device=scores.device) > last, -torch.inf
    )
    mass = descending.softmax(-1)
    before = mass.cumsum(-1) - mass
    # The first token is always kept; one whose predecessors already reach top_p is not. With
    # top_p 1 rounding must not cut the tail.
    cut = (before >= top_p[:, None]) & (top_p < 1)[:, None]
    cut[:, 0] = False
    floor = descending.masked_fill(cut, torch.inf)
    floor = torch.where(floor == -torch.inf, torch.inf, floor).amin(-1, keepdim=True)
    return scores.masked_fill(scores < floor, -torch.inf)
