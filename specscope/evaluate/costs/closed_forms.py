"""The arithmetic of one round: tokens out against milliseconds in.

Symbols: k proposed tokens a round; p chance that a position is kept, given that it was
tested; E tokens out of a round (kept proposals and the correction or bonus token); T_T time
of a target-only step; T_D, T_V, T_X time of a round's draft, verify and everything else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def expected_accepted(k: int, p: float) -> float:
    """Mean accepted prefix of k proposals kept independently with chance p. [tokens, 0..k]

    k = 8, p = 0.7 gives 2.1988213100. Real positions are not independent: mixtures of easy
    and hard text accept more than their mean rate says (see `mixture_accepted`), so this
    explains and never predicts. ValueError for k < 0 or p outside 0..1.
    Source: Leviathan, Kalman & Matias 2023, equation 1, less its bonus token.
    """
    _check_k(k)
    _check_share("p", p)
    return math.fsum(p**j for j in range(1, k + 1))


def tokens_per_round(k: int, p: float) -> float:
    """Mean tokens out of a round, before text ends inside one. [tokens, 1..k + 1]

    The accepted prefix and the correction or bonus token: (1 - p**(k + 1)) / (1 - p).
    """
    return 1.0 + expected_accepted(k, p)


def tokens_per_round_from_survival(survival: Sequence[float]) -> float:
    """Mean tokens out of a round whose position j is kept with chance survival[j - 1]. [tokens]

    survival: unconditional, P(accepted >= j) for j = 1..k, in 0..1 and not rising. An engine's
    "acceptance at position" counter is this when k is constant. ValueError otherwise.
    """
    previous = 1.0
    for value in survival:
        if not 0.0 <= value <= previous + 1e-12:
            raise ValueError(f"survival must fall within 0..1, got {value} after {previous}")
        previous = value
    return 1.0 + math.fsum(survival)


def tokens_per_draft(drafts: int, accepted: int) -> float:
    """Mean length of a round that proposed, from an engine's counters: 1 + accepted / drafts.

    Text that ended inside a round makes it read high. ValueError for drafts <= 0.
    """
    if drafts <= 0:
        raise ValueError(f"drafts must be positive, got {drafts}")
    return 1.0 + accepted / drafts


def mixture_survival(k: int, a: float, b: float) -> list[float]:
    """P(accepted >= j), j = 1..k, where each request's own rate is drawn from Beta(a, b).

    The j-th moment of the beta distribution, prod_{i<j} (a + i) / (a + b + i). Hazards rise
    with j here although no request's does: the survivors are the easy ones.
    """
    _check_k(k)
    if a <= 0 or b <= 0:
        raise ValueError(f"a beta distribution needs positive parameters, got {a} and {b}")
    survival, product = [], 1.0
    for i in range(k):
        product *= (a + i) / (a + b + i)
        survival.append(product)
    return survival


def mixture_accepted(k: int, a: float, b: float) -> float:
    """Mean accepted prefix where each request's rate is drawn from Beta(a, b). [tokens, 0..k]"""
    return math.fsum(mixture_survival(k, a, b))


def tokens_per_ms(tokens: float, draft_ms: float, verify_ms: float, other_ms: float = 0.0) -> float:
    """Speculative throughput of one sequence: tokens of a round over its whole time. [tokens/ms]

    ValueError where the parts of the round do not add to a positive time.
    """
    return tokens / _round_ms(draft_ms, verify_ms, other_ms)


def speedup(
    tokens: float, draft_ms: float, verify_ms: float, target_ms: float, other_ms: float = 0.0
) -> float:
    """Throughput of speculative rounds over target-only steps of target_ms. [ratio, > 1 wins]

    All times must be taken the same way (wall or device) at the same batch and context.
    """
    _check_time("target_ms", target_ms)
    return target_ms * tokens_per_ms(tokens, draft_ms, verify_ms, other_ms)


def break_even_tokens(
    draft_ms: float, verify_ms: float, target_ms: float, other_ms: float = 0.0
) -> float:
    """Tokens a round must yield for speculation to cost nothing. [tokens]

    (T_D + T_V + T_X) / T_T: the round's price in target-only steps.
    """
    _check_time("target_ms", target_ms)
    return _round_ms(draft_ms, verify_ms, other_ms) / target_ms


def unexplained_ms(tokens: float, ms_per_token: float, draft_ms: float, verify_ms: float) -> float:
    """Time of a round that is neither draft nor verify, from its measured rate. [ms]

    tokens * ms_per_token - (T_D + T_V): sampling, synchronisation and gaps. Below zero where
    the inputs contradict each other.
    """
    return tokens * ms_per_token - (draft_ms + verify_ms)


def round_ms(tokens: float, tokens_per_s: float) -> float:
    """Wall time of a round of one sequence, from tokens per round and a measured rate. [ms]"""
    _check_time("tokens_per_s", tokens_per_s)
    return 1000.0 * tokens / tokens_per_s


def round_cost(tokens: float, measured_speedup: float) -> float:
    """What a round cost, in target-only steps: tokens per round / speedup. [ratio]

    Tokens per round are not a speedup: published pairs of 6.13 tokens and 4.40x mean rounds
    of 1.39 steps.
    """
    _check_time("measured_speedup", measured_speedup)
    return tokens / measured_speedup


def marginal_pays(
    batch: int, survival_next: float, tokens: float, round_time_ms: float, added_ms: float
) -> bool:
    """Whether one more position raises the batch's throughput.

    True where batch * survival_next / added_ms exceeds batch * tokens / round_time_ms (the
    mediant inequality): marginal tokens per marginal ms above the present average. Times are
    of the same rounds; added_ms <= 0 always pays. It judges one step only: costs are a
    staircase, so a search must not stop at the first False.
    """
    _check_time("round_time_ms", round_time_ms)
    if added_ms <= 0:
        return True
    return batch * survival_next / added_ms > batch * tokens / round_time_ms


def cost_per_million_tokens(price_per_hour: float, tokens_per_s: float) -> float:
    """Money for a million tokens at a steady rate, in the price's currency.

    Means something only for a fleet that is saturated or scaled to its load.
    """
    _check_time("tokens_per_s", tokens_per_s)
    return price_per_hour / (3600.0 * tokens_per_s) * 1e6


def break_even_output(
    extra_start_ms: float, target_ms_per_token: float, speculative_ms_per_token: float
) -> float:
    """Output length from which a faster token pays for a slower start. [tokens]

    inf where speculation is not faster per token; 0 where the start is not slower.
    """
    gain = target_ms_per_token - speculative_ms_per_token
    if gain <= 0:
        return math.inf
    return max(0.0, extra_start_ms / gain)


def _round_ms(draft_ms: float, verify_ms: float, other_ms: float) -> float:
    total = draft_ms + verify_ms + other_ms
    _check_time("the round's time", total)
    return total


def _check_k(k: int) -> None:
    if k < 0:
        raise ValueError(f"draft length must not be negative, got {k}")


def _check_share(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} must be within 0..1, got {value}")


def _check_time(name: str, value: float) -> None:
    if not value > 0 or math.isinf(value):
        raise ValueError(f"{name} must be positive and finite, got {value}")
