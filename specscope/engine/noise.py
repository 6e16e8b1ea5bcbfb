"""Random numbers as a function of (seed, position, stream, token): no state, no order.

A token's noise is the same in every row, in every company, whatever was drafted before, and on
every device but for the last bits of a logarithm; this is what lets coupled sampling give one text
for every k. Streams keep apart what must be independent: sharing one between draft and acceptance
bends the output's law.
"""

import torch
from torch import Tensor

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
