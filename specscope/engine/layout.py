"""Which rows of a batch put how many tokens through a forward pass, and where.

The matrix work runs over the packed tokens, so a row that brings fewer tokens costs less; only
attention sees a rectangle, padded to the widest row.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from specscope.engine.config import ModelConfig
from specscope.engine.transfer import send


@dataclass(frozen=True, slots=True)
class Packing:
    """The host's half of a Layout: depends on widths alone, not on positions.

    Rows first .. first + rows - 1 bring `widths[i]` tokens each, in order; N is their sum.
    """

    first: int
    rows: int
    width: int
    token_rows: Tensor  # [N] the row of the cache
    offsets: Tensor  # [N] 0 .. width - 1 within the row's tokens
    grid: Tensor | None  # [rows * width] packed index, 0 where padded; None if nothing is padded
    places: Tensor | None  # [N] where a packed token lies in the grid; None as above

    @property
    def tokens(self) -> int:
        """N, the packed tokens."""
        return self.token_rows.shape[0]

    @property
    def padded(self) -> int:
        """Query positions that attention computes for nothing."""
        return self.rows * self.width - self.tokens


@lru_cache(maxsize=512)
def pack(widths: tuple[int, ...], device: str, first: int = 0) -> Packing:
    """The packing of rows that bring `widths` tokens each (0 allowed, not all of them)."""
    rows, width = len(widths), max(widths)
    if min(widths) == width:
        index = send(list(range(rows * width)), device)
        return Packing(first, rows, width, index // width + first, index % width, None, None)
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
    n = len(token_rows)
    sent = send(token_rows + offsets + grid + places, device)
    return Packing(first, rows, width, *sent.split((n, n, rows * width, n)))  # type: ignore[no-untyped-call]


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
        return self.packing.first

    @property
    def rows(self) -> int:
        """Rows that take part in attention."""
        return self.packing.rows

    @property
    def width(self) -> int:
        """Tokens of the widest row."""
        return self.packing.width

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
    query = grid.view(packing.rows, 1, 1, packing.width).expand(-1, heads, group, -1)
    seen = torch.arange(extent, device=positions.device) <= query.reshape(
        packing.rows * heads, group * packing.width, 1
    )
    # Added to the scores as it is: a boolean mask would be converted again in every layer.
    mask = torch.where(seen, 0.0, -torch.inf).to(dtype)
    return Layout(packing, positions, extent, mask)
