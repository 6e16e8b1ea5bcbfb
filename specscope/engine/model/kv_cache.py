"""The KV cache: keys and values of all rows, each at its token's position."""

import torch
from torch import Tensor

from specscope.engine.model.config import ModelConfig
from specscope.engine.model.layout import Layout


def rounded(capacity: int) -> int:
    """The next multiple of 16: the kernels of a GPU want aligned rows of keys and masks."""
    return -(-capacity // 16) * 16


class KVCache:
    """Keys and values of `rows` sequences, each up to `capacity` positions.

    keys, values: [layers, rows, kv heads, capacity, head_dim], see `rounded`
    """

    def __init__(
        self, config: ModelConfig, rows: int, capacity: int, device: str, dtype: torch.dtype
    ) -> None:
        capacity = rounded(capacity)
        shape = (config.layers, rows, config.kv_heads, capacity, config.head_dim)
        self.keys = torch.zeros(shape, device=device, dtype=dtype)
        self.values = torch.zeros(shape, device=device, dtype=dtype)
        self.layers = list(zip(self.keys.unbind(), self.values.unbind(), strict=True))
        self.positions = torch.arange(capacity, device=device)
        heads = torch.arange(config.kv_heads, device=device) * capacity
        self._row_places = self.positions[:, None] + heads

    @property
    def capacity(self) -> int:
        """Positions per row."""
        return self.keys.shape[3]

    def move(self, source: int, target: int, positions: int) -> None:
        """Copy the first `positions` of row `source` over row `target`."""
        for cache in (self.keys, self.values):
            cache[:, target, :, :positions] = cache[:, source, :, :positions]

    def places(self, plan: Layout) -> Tensor:
        """[N, kv heads] the place of each of `plan`'s tokens in a layer, seen as [-1, head_dim]."""
        heads, capacity = self.keys.shape[2:4]
        if plan.start is not None:
            places = self._row_places[plan.start : plan.extent]
            return places + plan.first * heads * capacity if plan.first else places
        rows = plan.packing.token_rows * (heads * capacity)
        return rows[:, None] + self._row_places.index_select(0, plan.positions)
