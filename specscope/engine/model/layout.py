"""The layout of a ragged batch: which rows bring how many tokens, and at which positions.

Matrix products run over packed tokens, so a row with fewer tokens costs less. Attention sees a
rectangle, padded to the widest row. For CUDA graphs, Buckets rounds all sizes up to a few values;
the padding belongs to a spare row behind the last, whose cache may be overwritten at will."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from specscope.engine.model.config import ModelConfig
from specscope.engine.model.device import send

DRAFTS = (0, 1, 2, 3, 4, 6, 8)
SHORTEST_EXTENT = 64


@dataclass(frozen=True, slots=True)
class Buckets:
    """Sizes for an engine of so many slots, of drafts up to k_max, of caches of that capacity."""

    slots: int
    k_max: int
    capacity: int

    @property
    def spare(self) -> int:
        """The padding row."""
        return self.slots

    def rows(self, count: int) -> int:
        """The next power of two, at most all slots."""
        return min(1 << (count - 1).bit_length(), self.slots)

    @property
    def extents(self) -> list[int]:
        """All that `extent` may answer, the largest first."""
        sizes = [self.extent(1)]
        while sizes[0] < self.capacity:
            sizes.insert(0, self.extent(sizes[0] + 1))
        return sizes

    def width(self, count: int) -> int:
        """Tokens of the widest row: drafts as above, then in steps of four, at most k_max."""
        k = count - 1
        wider = next((draft for draft in DRAFTS if draft >= k), -(-k // 4) * 4)
        return max(count, min(wider, self.k_max) + 1)

    def tokens(self, widths: Sequence[int]) -> int:
        """Packed tokens: four sizes an octave, so at most a quarter is padding.

        Where all rows bring the same number, or nothing, whole rows are filled up.
        """
        unit = max(widths) if len({*widths} - {0}) == 1 else 1
        count = sum(widths) // unit
        return unit * _up(count, 1 << max(0, (count - 1).bit_length() - 3))

    def extent(self, count: int) -> int:
        """Positions that attention reads: two sizes an octave from 64, at most the cache's."""
        rounded = _up(count, 1 << max(0, (count - 1).bit_length() - 2))
        return min(max(rounded, SHORTEST_EXTENT), self.capacity)


def _up(count: int, step: int) -> int:
    return -(-count // step) * step


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a Packing decides the shapes of everything that is computed over it.

    Rows first .. first + rows - 1 take part in attention, the widest with `width` tokens; `tokens`
    are packed. ragged: attention's rectangle is not the packed tokens as they lie. filled: rows
    and padding tokens may have been added, see Buckets.
    """

    first: int
    rows: int
    width: int
    tokens: int
    ragged: bool
    filled: bool


@dataclass(frozen=True, slots=True)
class Packing:
    """The host's half of a Layout: depends on widths alone, not on positions.

    The tokens of row first + i are last[i] + 1, and lie behind those of the rows before it.
    """

    shape: Shape
    index: Tensor  # all that follows, one behind the other, as it was sent to the device
    token_rows: Tensor  # [N] the row of the cache
    offsets: Tensor  # [N] 0 .. width - 1 within the row's tokens
    last: Tensor  # [rows] the offset of each row's last token, -1 where it brings none
    grid: Tensor | None  # [rows * width] packed index, 0 where padded; None if not ragged
    places: Tensor | None  # [N] where a packed token lies in the grid; None as above
    padded: int  # query positions that attention computes for nothing

    @classmethod
    def over(cls, shape: Shape, index: Tensor, padded: int = 0) -> "Packing":
        """A packing of that shape whose numbers are those in `index`."""
        n, grid = shape.tokens, shape.rows * shape.width
        sizes = (n, n, shape.rows, *((grid, n) if shape.ragged else ()))
        views: Any = index.split(sizes)  # type: ignore[no-untyped-call]
        token_rows, offsets, last = views[:3]
        around = views[3:] if shape.ragged else (None, None)
        return cls(shape, index, token_rows, offsets, last, around[0], around[1], padded)


@lru_cache(maxsize=512)
def pack(
    widths: tuple[int, ...], device: str, first: int = 0, buckets: Buckets | None = None
) -> Packing:
    """The packing of rows that bring `widths` tokens each (0 allowed, not all of them).

    With `buckets`, for rows from 0 on, it is filled up to one of few shapes.
    """
    rows, width, tokens = len(widths), max(widths), sum(widths)
    if buckets is not None:
        rows, width = buckets.rows(rows), buckets.width(width)
        ragged = min(widths) < width
        tokens = min(buckets.tokens(widths) if ragged else rows * width, rows * width)
    shape = Shape(first, rows, width, tokens, min(widths) < width, buckets is not None)
    token_rows: list[int] = []
    offsets: list[int] = []
    places: list[int] = []
    grid: list[int] = []
    for row, count in enumerate(widths):
        start = len(token_rows)
        token_rows += [first + row] * count
        offsets += range(count)
        places += range(row * width, row * width + count)
        grid += [*range(start, start + count), *([0] * (width - count))]
    spare = tokens - len(token_rows)
    token_rows += [buckets.spare if buckets else 0] * spare
    offsets += [0 if shape.ragged else place % width for place in range(spare)]
    last = [*(count - 1 for count in widths), *[-1] * (rows - len(widths))]
    index = token_rows + offsets + last
    if shape.ragged:
        grid += [0] * (rows * width - len(grid))
        index += grid + places + [0] * spare
    return Packing.over(shape, send(index, device), rows * width - sum(widths))


@dataclass(frozen=True, slots=True)
class Layout:
    """A packing with its positions: all that a forward pass needs to know."""

    packing: Packing
    positions: Tensor  # [N]
    extent: int  # cache positions that attention reads
    mask: Tensor  # [rows * kv heads, group * width, extent]: 0 up to the query's place, -inf after

    @property
    def first(self) -> int:
        """First row of the cache that takes part."""
        return self.packing.shape.first

    @property
    def rows(self) -> int:
        """Rows that take part in attention."""
        return self.packing.shape.rows

    @property
    def width(self) -> int:
        """Tokens of the widest row."""
        return self.packing.shape.width

    @property
    def token_rows(self) -> Tensor:
        """[N] the cache row of every packed token."""
        return self.packing.token_rows

    def pad(self, x: Tensor) -> Tensor:
        """x [N, ...] as [rows * width, ...]; padding repeats some token, its result is unused."""
        return x if self.packing.grid is None else x.index_select(0, self.packing.grid)

    def unpad(self, x: Tensor) -> Tensor:
        """x [rows * width, ...] back as [N, ...]."""
        return x if self.packing.places is None else x.index_select(0, self.packing.places)


def lay_out(
    packing: Packing, positions: Tensor, extent: int, config: ModelConfig, dtype: torch.dtype
) -> Layout:
    """Place `packing`'s tokens at `positions` [N] for a model of `config` and `dtype`.

    Every position must be below `extent`, which is the caller's bound on all lengths.
    """
    grid = positions if packing.grid is None else positions.index_select(0, packing.grid)
    heads, group = config.kv_heads, config.heads // config.kv_heads
    shape = packing.shape
    query = grid.view(shape.rows, 1, 1, shape.width).expand(-1, heads, group, -1)
    seen = torch.arange(extent, device=positions.device) <= query.reshape(
        shape.rows * heads, group * shape.width, 1
    )
    # Added to the scores as it is: a boolean mask would be converted again in every layer.
    mask = torch.where(seen, 0.0, -torch.inf).to(dtype)
    return Layout(packing, positions, extent, mask)
