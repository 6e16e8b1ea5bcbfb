"""Detect verify passes that read the KV cache once per query token.

verify = a + b positions + c n_kv + d k n_kv. If attention serves all query tokens of a sequence
from one read, d is 0. A prefill kernel reads once per token.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from specscope.evaluate.experiment.blocks import BlockTime

# Contexts must differ by half, or a cost of context looks like one of positions.
_SPREAD = 1.5
_LEAST_BLOCKS = 8


@dataclass(frozen=True, slots=True)
class Reread:
    """us: verify time per draft token and cached token. gain: share of the squared error that this
    term removes from a fit without it, 0..1."""

    us: float
    gain: float


def fit_reread(blocks: Iterable[BlockTime]) -> Reread | None:
    """Fit over blocks; None if their contexts or draft lengths do not differ."""
    rows = [
        (b.rounds, b.n_q + b.padded_tokens, b.n_kv, b.n_kv * b.proposed / b.request_rounds,
         b.verify_us, b.n_kv / b.request_rounds)
        for b in blocks
        if b.rounds > 0 and b.request_rounds > 0 and b.n_kv > 0 and b.verify_us
    ]  # fmt: skip
    if len(rows) < _LEAST_BLOCKS:
        return None
    table = np.array(rows, dtype=np.float64)
    drafts = table[:, 3] > 0
    context = table[:, 5]
    for kind in (drafts, ~drafts):
        if not kind.any() or context[kind].max() < _SPREAD * context[kind].min():
            return None
    weight = 1.0 / np.sqrt(table[:, :1])
    x, y = table[:, :4] * weight, table[:, 4] * weight[:, 0]
    scale = np.linalg.norm(x, axis=0)
    scale[scale == 0] = 1.0
    try:
        solved, error = nnls(x / scale, y)
        _, plain = nnls(x[:, :3] / scale[:3], y)
    except RuntimeError:  # it did not converge
        return None
    gain = 1.0 - (error / plain) ** 2 if plain > 0 else 0.0
    return Reread(us=float(solved[3] / scale[3]), gain=float(max(0.0, gain)))
