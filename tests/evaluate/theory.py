"""Closed forms that tests hold the product against."""

import math


def expected_accepted(k: int, p: float) -> float:
    """Mean accepted prefix of k proposals kept independently with chance p. [tokens, 0..k]

    k = 8, p = 0.7 gives 2.1988213100. Real positions are not independent: mixtures of easy
    and hard text accept more than their mean rate says (see `mixture_accepted`), so this
    explains and never predicts. ValueError for k < 0 or p outside 0..1.
    Source: Leviathan, Kalman & Matias 2023, equation 1, less its bonus token.
    """
    return math.fsum(p**j for j in range(1, k + 1))


def tokens_per_round(k: int, p: float) -> float:
    """Mean tokens out of a round, before text ends inside one. [tokens, 1..k + 1]

    The accepted prefix and the correction or bonus token: (1 - p**(k + 1)) / (1 - p).
    """
    return 1.0 + expected_accepted(k, p)
