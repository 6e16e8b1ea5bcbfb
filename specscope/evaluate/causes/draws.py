"""Sums over pairs of blocks, original and resampled: the bootstrap that all causes share.

Whole pairs are drawn, because the pair is the unit of randomisation. All causes see the same draws,
so common noise cancels when two causes are compared. Source: Efron & Tibshirani 1993, chapter 8:
resample the units that are independent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from specscope.evaluate.experiment.blocks import BlockTime

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

DRAWS = 400  # an odds of 0.9 is then known to 0.015
# Consecutive pairs are drawn together beyond so many: the work does not grow with the evidence.
MOST_UNITS = 200
_SEED = 2211


class Draws:
    """Weights of pairs: 1 for each pair in draw 0; in other draws, the number of times it was
    drawn."""

    def __init__(self, pairs: int, draws: int = DRAWS) -> None:
        units = min(pairs, MOST_UNITS)
        self._starts = (np.arange(units) * pairs) // max(1, units)
        random = np.random.default_rng(_SEED)
        drawn = random.multinomial(units, np.full(units, 1.0 / units), size=draws)
        self._weights: Array = np.vstack([np.ones(units), drawn])

    def __len__(self) -> int:
        return len(self._weights)

    def sums(self, rows: Array) -> Array:
        """[draws, columns] weighted sums of [pairs, columns]."""
        return np.asarray(self._weights @ np.add.reduceat(rows, self._starts, axis=0))


@dataclass(frozen=True, slots=True)
class RoundTotals:
    """Sums over an arm's blocks, each [draws]. A sum is None if a block lacks the column."""

    wall_us: Array
    rounds: Array
    request_rounds: Array
    emitted: Array
    proposed: Array
    accepted: Array
    requests: Array
    n_q: Array
    n_kv: Array
    padded_tokens: Array
    full_tokens: Array | None
    draft_us: Array | None
    verify_us: Array | None
    sample_us: Array | None
    idle_us: Array | None
    catchup_us: Array | None
    prefill_us: Array | None
    invalid: Array | None
    preempted: Array | None
    model_bytes: Array | None
    dram_busy_us: Array | None
    dram_seen_us: Array | None
    prompt_tokens: Array | None
    cached_tokens: Array | None
    ended_requests: Array | None
    output_tokens: Array | None
    ttft_us: Array | None
    first_tokens: Array | None

    @property
    def batch(self) -> Array:
        """Mean number of sequences per round."""
        return self.request_rounds / self.rounds


_COLUMNS = tuple(field.name for field in fields(RoundTotals))


def totals(draws: Draws, blocks: Sequence[BlockTime | None]) -> RoundTotals:
    """Sums over one block per pair; None marks a pair that did not run the arm."""
    rows = np.zeros((len(blocks), len(_COLUMNS)))
    unknown: set[str] = set()
    for place, block in enumerate(blocks):
        if block is None:
            continue
        for column, name in enumerate(_COLUMNS):
            value = getattr(block, name)
            if value is None:
                unknown.add(name)
            else:
                rows[place, column] = value
    sums = draws.sums(rows)
    columns: Mapping[str, Array | None] = {
        name: None if name in unknown else sums[:, column] for column, name in enumerate(_COLUMNS)
    }
    return RoundTotals(**columns)  # type: ignore[arg-type]  # the first ten are always known
