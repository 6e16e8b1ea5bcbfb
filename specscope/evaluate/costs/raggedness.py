"""What is lost to uneven acceptance in a batch and to text that ends inside a round."""

from __future__ import annotations

import numpy as np

from specscope.evaluate.costs.closed_forms import expected_accepted, tokens_per_round


def expected_longest(batch: int, k: int, p: float) -> float:
    """Mean of the longest accepted prefix in a batch of independent sequences. [tokens, 0..k]"""
    if batch < 1:
        raise ValueError(f"batch must be at least 1, got {batch}")
    return float(sum(1.0 - (1.0 - p**j) ** batch for j in range(1, k + 1)))


def raggedness(batch: int, k: int, p: float) -> float:
    """Longest accepted prefix of a batch over its mean, under independence. [ratio, >= 1]

    A high value is normal (3.3 at batch 16, k = 8, p = 0.7) and costs only where the engine
    pads or waits for the longest. ValueError where nothing is ever accepted.
    """
    mean = expected_accepted(k, p)
    if mean == 0:
        raise ValueError("no proposal is ever accepted")
    return expected_longest(batch, k, p) / mean


def truncation_loss(output_tokens: int, k: int, p: float) -> float:
    """Share of tokens computed past the end of a text of output_tokens. [0..1]

    1 - N / E[tokens of all rounds until N are out], exactly, by recursion over the rounds.
    64 % at one token, 0.6 % at 256 (k = 4, p = 0.7).
    """
    if output_tokens < 1:
        raise ValueError(f"output must have at least 1 token, got {output_tokens}")
    out = _output_distribution(k, p)
    rounds = np.zeros(output_tokens + 1)
    for left in range(1, output_tokens + 1):
        reach = min(left - 1, k + 1)
        after = rounds[left - reach : left][::-1] if reach else np.zeros(0)
        rounds[left] = 1.0 + float(after @ out[1 : reach + 1])
    return 1.0 - output_tokens / (float(rounds[output_tokens]) * tokens_per_round(k, p))


def _output_distribution(k: int, p: float) -> np.ndarray:
    """P(a round yields i tokens), i = 0..k + 1."""
    out = np.zeros(k + 2)
    out[1 : k + 1] = [(1.0 - p) * p**j for j in range(k)]
    out[k + 1] = p**k
    return out
