"""Which rows of a batch put how many tokens through a forward pass, and where.

The matrix work runs over the packed tokens, so a row that brings fewer tokens costs less; only
attention sees a rectangle, padded to the widest row.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from specscope.engine.buckets import Buckets
from specscope.engine.config import ModelConfig
from specscope.engine.device import send


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a Packing decides the shapes of everything that is computed over it.

    Rows first .. first + rows - 1 take part in attention, the widest with `width` tokens; `tokens`
    are packed. ragged: attention's rectangle is not the packed tokens as they lie. filled: rows
    and tokens of nobody may have been added, see Buckets.
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
