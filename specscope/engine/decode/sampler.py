"""Sampling: random numbers, temperature, top-k and top-p, and the choice of a token.

A token's random number is a function of (seed, position, stream, token). It is the same in every
row and batch and after every draft, so coupled sampling gives the same text for every k. Streams
are independent: one stream for both draft and acceptance would distort the distribution."""

import torch
from torch import Tensor

from specscope.engine.decode.batch import BatchState, SamplingNeeds

COUPLED, DRAFT, ACCEPT, RESIDUAL, SYNTHETIC = range(5)

_ODD = -7046029254386353131  # 2**64 / golden ratio, as a signed word
_SPREAD = (0xBF58476D1CE4E5B9 - (1 << 64), 0x94D049BB133111EB - (1 << 64))


def key(seed: Tensor, position: Tensor, stream: Tensor | int) -> Tensor:
    """A well mixed 64-bit word for each (seed, position, stream), int64, any one shape.

    Mixed with the finaliser of SplitMix64 (Steele et al. 2014) after each of the three.
    """
    if isinstance(stream, int):
        stream = torch.full((), stream, device=position.device)
    return _mix(_mix(_mix(seed) + position * _ODD) + (stream + 1) * _ODD)


def uniform(keys: Tensor) -> Tensor:
    """One number in the open interval (0, 1) for each key, float64: never 0, never 1."""
    return (((keys >> 12) & ((1 << 52) - 1)).double() + 0.5) * 2.0**-52


def gumbel(keys: Tensor, vocab: int) -> Tensor:
    """Standard Gumbel noise [n, vocab] float32 for keys [n]; argmax(log p + noise) draws from p.

    Each element is a 32-bit hash of its token (lowbias32 of C. Wellons, with a word of the key
    before and between its rounds), in 32-bit words that wrap, since this is the costliest part
    of sampling.
    """
    keys = keys[:, None]
    x = torch.arange(1, vocab + 1, dtype=torch.int32, device=keys.device) * 0x1E3779B9
    x = x ^ keys.to(torch.int32)
    x = _fold(x, 16).mul_(0x7FEB352D).bitwise_xor_((keys >> 32).to(torch.int32))
    x = _fold(_fold(x, 15).mul_(0x846CA68B - (1 << 32)), 16)
    # -log(1 - u) keeps its precision where it is small, which is where races are won.
    u = x.float().add_(2.0**31 + 0.5).mul_(2.0**-32).clamp_(2.0**-33, 1 - 2.0**-24)
    return u.neg_().log1p_().neg_().log_().neg_()


def _fold(x: Tensor, bits: int) -> Tensor:
    """x ^ (x >> bits) in place, the shift without sign."""
    return x.bitwise_xor_((x >> bits).bitwise_and_((1 << 32 - bits) - 1))


def _mix(x: Tensor) -> Tensor:
    x = x + _ODD
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * _SPREAD[0]
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * _SPREAD[1]
    return x ^ ((x >> 31) & ((1 << 33) - 1))


def sampling_scores(
    logits: Tensor, rows: Tensor, state: BatchState, needs: SamplingNeeds
) -> Tensor:
    """logits [n, vocab] under the settings of their rows [n]: log-probabilities up to a constant.

    Filtered tokens get -inf. Top-k acts before top-p, and ties with the last token kept stay, so
    that the same logits always keep the same tokens.
    """
    if not needs.noise:
        return logits
    scores = logits / state.temperature[rows, None].to(logits.dtype)
    return _filter(scores, state.top_k[rows], state.top_p[rows]) if needs.filters else scores


def sampling_noise(
    rows: Tensor,
    positions: Tensor,
    state: BatchState,
    needs: SamplingNeeds,
    stream: int,
    vocab: int,
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
