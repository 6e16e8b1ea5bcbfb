"""Sampling: random numbers, temperature, top-k and top-p, and the choice of a token.

A token's random number is a function of (seed, position, stream, token). It is the same in every
row and batch and after every draft, so coupled sampling gives the same text for every k. Streams
are independent: one stream for both draft and acceptance would distort the distribution.
"""

import torch
from torch import Tensor

from specscope.engine.decode.batch import BatchState, SamplingNeeds
from specscope.engine.model.layout import Packing

COUPLED, DRAFT, ACCEPT, RESIDUAL, SYNTHETIC = range(5)

_ODD = -7046029254386353131  # 2**64 / golden ratio, as a signed word
_SPREAD = (0xBF58476D1CE4E5B9 - (1 << 64), 0x94D049BB133111EB - (1 << 64))

SORTED_VOCAB = 8192
"""Up to this vocabulary sorting is the quicker way to find the last token that a filter keeps."""
_DIGIT = 1 << 16  # values of each of the two digits of a 32-bit key
_UNIT = 1 << 40  # probabilities are summed as integers, exactly and in any order


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


def draw_noise(packing: Packing, state: BatchState, needs: SamplingNeeds, vocab: int) -> None:
    """Fill state.noise for all tokens that this round may emit: place j of a row is the j-th.

    packing: k + 1 tokens of each row. Draft and verification of coupled rows read the same noise.
    For rejection rows the first k places are the draft's, and the last is for the token that the
    target adds if it accepts all of them. Nothing is done for greedy batches.
    """
    if not needs.noise:
        return
    rows, offsets, noise = packing.token_rows, packing.offsets, state.noise(vocab)
    stream: Tensor | int = COUPLED
    if needs.rejection:
        last = packing.last[(rows - packing.shape.first).clamp(max=packing.shape.rows - 1)]
        own = torch.where(offsets < last, DRAFT, RESIDUAL)
        stream = torch.where(state.rejection[rows], own, COUPLED)
    drawn = gumbel(key(state.seed[rows], state.lengths[rows] + offsets, stream), vocab)
    if needs.greedy:
        drawn.masked_fill_(state.greedy[rows, None], 0.0)
    whole = packing.whole
    if whole is None:
        noise.index_put_((rows, offsets), drawn)
    else:
        noise[whole, : packing.shape.width] = drawn.view(-1, packing.shape.width, vocab)


def noise_of(
    packing: Packing, state: BatchState, needs: SamplingNeeds, vocab: int
) -> Tensor | None:
    """[N, vocab] the noise of every packed token, None for greedy batches."""
    if not needs.noise:
        return None
    whole, noise = packing.whole, state.noise(vocab)
    if whole is None:
        return noise[packing.token_rows, packing.offsets]
    return noise[whole, : packing.shape.width].reshape(-1, vocab)


def sampling_scores(
    logits: Tensor, rows: Tensor | slice, state: BatchState, needs: SamplingNeeds
) -> Tensor:
    """logits [n, vocab] under the settings of their rows: log-probabilities up to a constant.

    rows: [n], or a slice of n rows. Filtered tokens get -inf. Top-k acts before top-p, and ties
    with the last token kept stay, so that the same logits always keep the same tokens.
    """
    if not needs.noise:
        return logits
    scores = logits / state.temperature[rows, None].to(logits.dtype)
    if not (needs.top_k or needs.top_p):
        return scores
    top_k = state.top_k[rows] if needs.top_k else None
    return filtered(scores, top_k, state.top_p[rows] if needs.top_p else None)


def sample(scores: Tensor, noise: Tensor | None) -> Tensor:
    """One token [n] for each of scores [n, vocab]: the largest score plus noise, if any."""
    return scores.argmax(-1) if noise is None else (scores + noise).argmax(-1)


def filtered(scores: Tensor, top_k: Tensor | None, top_p: Tensor | None) -> Tensor:
    """scores [n, vocab] with -inf for tokens outside top-k [n] (0: off), then top-p [n] (1: off).

    None if no row has that filter. The same tokens are kept whatever the order of summation:
    probabilities are added as integers.
    """
    keys = _rank(scores)
    select = _select_by_sorting if keys.shape[1] <= SORTED_VOCAB else _select_by_digits
    last = torch.full_like(keys[:, 0], _DIGIT**2)
    if top_k is not None:
        last = torch.where(top_k > 0, select(keys, torch.ones_like(keys), top_k), last)
    if top_p is not None:
        kept = scores if top_k is None else scores.masked_fill(keys > last[:, None], -torch.inf)
        mass = kept.softmax(-1).mul_(_UNIT).long()
        wanted = (mass.sum(-1) * top_p.double()).ceil().long()
        nucleus = torch.where(top_p < 1, select(keys, mass, wanted), last)
        last = torch.minimum(last, nucleus)
    return scores.masked_fill(keys > last[:, None], -torch.inf)


def _rank(scores: Tensor) -> Tensor:
    """int64 keys in 0 .. 2**32 - 1, smaller for larger `scores`, which are rounded to float32."""
    bits = (scores.float() + 0.0).view(torch.int32).long()  # + 0.0 makes -0 a 0
    # A negative float's bits rise with its size: -1 is the smallest int32 and the largest size.
    return torch.where(bits < 0, bits + (1 << 32), (1 << 31) - 1 - bits)


def _select_by_sorting(keys: Tensor, weights: Tensor, wanted: Tensor) -> Tensor:
    """[n] the smallest key t with sum(weights[keys <= t]) >= wanted, or the largest key."""
    ascending, index = keys.sort(-1)
    before = weights.gather(1, index).cumsum(1) < wanted[:, None]
    place = before.sum(1).clamp(max=keys.shape[1] - 1)
    return ascending.gather(1, place[:, None]).squeeze(1)


def _select_by_digits(keys: Tensor, weights: Tensor, wanted: Tensor) -> Tensor:
    """The same from two histograms, one digit each: far cheaper than a sort of 128k tokens."""
    rest, chosen = wanted.clamp(min=1), torch.zeros_like(wanted)
    for shift in (16, 0):
        digits = (keys >> shift) & (_DIGIT - 1)
        histogram = torch.zeros((keys.shape[0], _DIGIT), dtype=torch.int64, device=keys.device)
        until = histogram.scatter_add_(1, digits, weights).cumsum(1)
        digit = (until < rest[:, None]).sum(1, keepdim=True).clamp(max=_DIGIT - 1)
        before = until.gather(1, digit) - histogram.gather(1, digit)
        chosen, rest = (chosen << 16) + digit.squeeze(1), rest - before.squeeze(1)
        weights = weights.masked_fill(digits != digit, 0)
    return chosen


def _fold(x: Tensor, bits: int) -> Tensor:
    """x ^ (x >> bits) in place, the shift without sign."""
    return x.bitwise_xor_((x >> bits).bitwise_and_((1 << 32 - bits) - 1))


def _mix(x: Tensor) -> Tensor:
    x = x + _ODD
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * _SPREAD[0]
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * _SPREAD[1]
    return x ^ ((x >> 31) & ((1 << 33) - 1))
