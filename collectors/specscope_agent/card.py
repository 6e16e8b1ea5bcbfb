"""Bytes that a round had to move, from the model card of its boot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ModelCard:
    """The models of a boot; unknown values are None."""

    parameters: float | None = None
    active_parameters: float | None = None
    bytes_per_weight: float | None = None
    kv_bytes_per_token: float | None = None
    has_draft: bool = False
    draft_parameters: float | None = None
    draft_bytes_per_weight: float | None = None
    draft_kv_bytes_per_token: float | None = None

    @classmethod
    def of(cls, boot: Mapping[str, Any]) -> Self:
        names = [f for f in cls.__dataclass_fields__ if f != "has_draft"]
        return cls(has_draft=bool(boot.get("draft")), **{name: boot.get(name) for name in names})

    def model_bytes(self, *, k: Array, n_q: Array, n_kv: Array, draft_kv: Array) -> Array:
        """Bytes by round, [R]; nan if the card lacks a term of the sum.

        k:        [R] longest draft; the draft model's weights are read once for each position
        n_q:      [R] query tokens of the target's pass, prefill within the round included
        n_kv:     [R] sum of contexts
        draft_kv: [R] sum over sequences of k times context

        A pass reads the weights once and the cache once, and writes new entries once. For a mixture
        of experts it reads the share 1 - (1 - active / all) ** n_q of the weights. That is exact
        for a dense model and for one token. Otherwise it is an upper bound, because experts are not
        drawn independently.
        """
        weights, per_token = self.parameters, self.kv_bytes_per_token
        if weights is None or per_token is None or self.bytes_per_weight is None:
            return np.full(len(k), np.nan)
        active = min((self.active_parameters or weights) / weights, 1.0)
        share = 1.0 - (1.0 - active) ** np.maximum(n_q, 1.0)
        target = weights * self.bytes_per_weight * share + (n_kv + n_q) * per_token
        return target + np.where(k > 0, self._draft_bytes(k, draft_kv), 0.0)

    def _draft_bytes(self, k: Array, draft_kv: Array) -> Array:
        if not self.has_draft:
            return np.zeros(len(k))  # such as n-gram lookup: no weights, no cache
        weights, per_token = self.draft_parameters, self.draft_kv_bytes_per_token
        if weights is None or per_token is None or self.draft_bytes_per_weight is None:
            return np.full(len(k), np.nan)
        return k * (weights * self.draft_bytes_per_weight) + draft_kv * per_token
