"""The KV cache: keys and values of all rows, each at its token's position."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specscope.engine.model.config import ModelConfig
from specscope.engine.model.layout import Layout, Packing, row_mask


def rounded(capacity: int) -> int:
    """Positions to reserve: the kernels of a GPU want aligned rows of keys and masks.

    The next multiple of 16, or of 256 from 1,024 on, so that the keys of a long row can be split.
    """
    unit = 16 if capacity <= 1024 else 256
    return -(-capacity // unit) * unit


def move_rows(
    contents: Callable[[int], Tensor], sources: Sequence[int], targets: Sequence[int]
) -> None:
    """Copy rows over others, all at once: what is copied is what they held before.

    contents: a row's part of a tensor, as a view
    """
    held = [contents(row).clone() if row in targets else contents(row) for row in sources]
    for row, value in zip(targets, held, strict=True):
        contents(row).copy_(value)


@dataclass(slots=True)
class LayerCache:
    """One layer's part of the cache in one pass."""

    flat: Tensor  # all of it, [places, head_dim], see KVCache.places
    parts: list[tuple[Tensor, Tensor]]
    """Keys and values that each part of the packing reads, [rows * kv heads, extent, head_dim]."""


class KVCache:
    """Keys and values of `rows` sequences, each up to `capacity` positions.

    entries: [layers, 2, rows, kv heads, capacity, head_dim], keys before values, see `rounded`
    """

    def __init__(
        self, config: ModelConfig, rows: int, capacity: int, device: str, dtype: torch.dtype
    ) -> None:
        capacity = rounded(capacity)
        heads, width = config.kv_heads, config.head_dim
        shape = (config.layers, 2, rows, heads, capacity, width)
        self.rows, self.heads, self.capacity = rows, heads, capacity
        self.entries = torch.zeros(shape, device=device, dtype=dtype)
        self.keys, self.values = self.entries.unbind(1)
        self._flat = self.entries.view(config.layers, -1, width).unbind()
        self._joined = self.entries.flatten(2, 3)
        self.positions = torch.arange(capacity, device=device)
        # Where row 0 keeps the token of each position: heads of keys, then heads of values.
        sides = torch.arange(2, device=device)[:, None] * rows * heads
        blocks = (sides + torch.arange(heads, device=device)).flatten()
        self._row_places = self.positions[:, None] + blocks * capacity
        self._mask = row_mask(config, capacity, dtype, device)
        self._group = config.heads // heads

    def move(self, sources: Sequence[int], targets: Sequence[int], positions: int) -> None:
        """Copy the first `positions` of rows over others; see move_rows."""
        move_rows(lambda row: self.entries[:, :, row, :, :positions], sources, targets)

    def places(self, plan: Layout) -> Tensor:
        """[N, 2 * kv heads] Where each token of `plan` lies: the places of its keys, then those of
        its values."""
        size = self.heads * self.capacity
        if plan.start is not None:
            places = self._row_places[plan.start : plan.extent]
            return places + plan.first * size if plan.first else places
        rows = plan.packing.token_rows * size
        return rows[:, None] + self._row_places.index_select(0, plan.positions)

    def parts(self, plan: Layout) -> list[LayerCache]:
        """What each layer writes and reads in the pass of `plan`."""
        parts, first = [], plan.first * self.heads
        for part, extent in zip(plan.packing.parts, plan.extents, strict=True):
            last = first + part.rows * self.heads
            keys, values = self._joined[:, :, first:last, :extent].unbind(1)
            parts.append(zip(keys.unbind(), values.unbind(), strict=True))
            first = last
        return [*map(LayerCache, self._flat, map(list, zip(*parts, strict=True)))]

    def lay_out_row(self, packing: Packing, start: int) -> Layout:
        """Place a single row's tokens at start, start + 1, ..., where the host knows the position.

        At most ROW_TOKENS tokens. Everything is a view, so the layout costs almost nothing.
        """
        width = packing.shape.width
        stop, last = start + width, self.capacity + width
        mask = self._mask[:, : width * self._group, self.capacity - start : last]
        return Layout(packing, self.positions[start:stop], (stop,), (mask,), start)
