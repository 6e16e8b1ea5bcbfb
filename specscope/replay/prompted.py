"""Generate a trace from prompts, with random arrivals."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from specscope.prompts import Prompt


def prompted(
    prompts: Sequence[Prompt], rate: float, max_tokens: int, seed: int
) -> Iterator[dict[str, Any]]:
    """Lines of a trace: each prompt once, in random order, with Poisson arrivals and greedy
    sampling.

    rate: requests per second. The label becomes the class.
    """
    drawn = random.Random(seed)
    offset_s = 0.0
    for prompt in drawn.sample(prompts, len(prompts)):
        yield {
            "offset_s": round(offset_s, 6),
            "class": prompt.label,
            **prompt.body,
            "max_tokens": max_tokens,
            "sampling": {"temperature": 0},
        }
        offset_s += drawn.expovariate(rate)
