"""The arithmetic of one round: output tokens against milliseconds.

Symbols: k proposed tokens per round; p chance that a position is kept, given that it was
tested; E tokens out of a round (kept proposals and the correction or bonus token); T_T time
of a target-only step; T_D, T_V, T_X time of a round's draft, verify and everything else.
"""

from __future__ import annotations

import math


def tokens_per_ms(tokens: float, draft_ms: float, verify_ms: float, other_ms: float = 0.0) -> float:
    """Speculative throughput of one sequence: tokens of a round over its whole time. [tokens/ms]

    ValueError if the parts of the round do not add to a positive time.
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
    """Tokens per round at which speculation equals target-only decoding. [tokens]

    (T_D + T_V + T_X) / T_T: the cost of a round in target-only steps.
    """
    _check_time("target_ms", target_ms)
    return _round_ms(draft_ms, verify_ms, other_ms) / target_ms


def cost_per_million_tokens(price_per_hour: float, tokens_per_s: float) -> float:
    """Cost of a million tokens at a steady rate, in the price's currency.

    It is meaningful only if the fleet is saturated or scaled to its load.
    """
    _check_time("tokens_per_s", tokens_per_s)
    return price_per_hour / (3600.0 * tokens_per_s) * 1e6


def _round_ms(draft_ms: float, verify_ms: float, other_ms: float) -> float:
    total = draft_ms + verify_ms + other_ms
    _check_time("the round's time", total)
    return total


def _check_time(name: str, value: float) -> None:
    if not value > 0 or math.isinf(value):
        raise ValueError(f"{name} must be positive and finite, got {value}")
