"""The KV cache: keys and values of all rows, each at its token's position."""

import torch
from torch import Tensor

from specscope.engine.model.config import ModelConfig
from specscope.engine.model.layout import Layout


class KVCache:
    """Keys and values of `rows` sequences, each up to `capacity` positions.

    keys, values: [layers, rows, kv heads, capacity, head_dim]
    """

    def __init__(
        self, config: ModelConfig, rows: int, capacity: int, device: str, dtype: torch.dtype
    ) -> None:
        shape = (config.layers, rows, config.kv_heads, capacity, config.head_dim)
        self.keys = torch.zeros(shape, device=device, dtype=dtype)
        self.values = torch.zeros(shape, device=device, dtype=dtype)

    @property
    def capacity(self) -> int:
        """Positions per row."""
        return self.keys.shape[3]

    def move(self, source: int, target: int, positions: int) -> None:
        """Copy the first `positions` of row `source` over row `target`."""
        for cache in (self.keys, self.values):
            cache[:, target, :, :positions] = cache[:, source, :, :positions]

    def places(self, plan: Layout) -> Tensor:
        """[N, kv heads] where each of `plan`'s tokens lies in a layer, seen as [-1, head_dim]."""
        heads, capacity = self.keys.shape[2:4]
        first = torch.arange(heads, device=self.keys.device) * capacity
        return (plan.token_rows * (heads * capacity) + plan.positions)[:, None] + first
