"""The layout of a ragged batch: which rows bring how many tokens, and at which positions.

Matrix products run over packed tokens, so a row with fewer tokens costs less. Attention sees a
rectangle, padded to the widest row. On a CPU the last rows make a rectangle of their own if they
bring one token each. For CUDA graphs, Buckets rounds all sizes up to a few values; the padding
belongs to a spare row behind the last, whose cache may be overwritten at will.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from specscope.engine.model.config import ModelConfig
from specscope.engine.model.device import is_gpu, send

SHORTEST_EXTENT = 64
LEAST_SPARED = 16
"""Query positions that a second rectangle must spare; fewer do not pay for its kernels."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """The sizes of padded batches, for `slots` rows, drafts up to `k_max`, `capacity` positions."""

    slots: int
    k_max: int
    capacity: int

    @property
    def spare(self) -> int:
        """The padding row."""
        return self.slots

    def rows(self, count: int) -> int:
        """The next power of two, at most all slots."""
        return min(_power(count), self.slots)

    def width(self, count: int) -> int:
        """1 for rounds without a draft, else k_max + 1.

        Attention computes a few queries in the time of one, so finer sizes would only cost graphs.
        """
        return 1 if count == 1 else self.k_max + 1

    def tokens(self, count: int, rows: int, width: int) -> int:
        """Packed tokens of `rows` rows: two sizes an octave, so at most a third is padding.

        A third of padding costs little: the weights are read once for up to a few hundred tokens.
        """
        return min(max(_two_an_octave(count), rows), rows * width)

    def extent(self, count: int) -> int:
        """Positions that attention reads: a power of two from 64, at most the capacity."""
        return min(max(_power(count), SHORTEST_EXTENT), self.capacity)

    @property
    def all_rows(self) -> list[int]:
        """All values of `rows`, the largest first."""
        return sorted({self.rows(count) for count in range(1, self.slots + 1)}, reverse=True)

    @property
    def extents(self) -> list[int]:
        """All values of `extent`, the largest first."""
        return sorted({self.extent(1 << bit) for bit in range(32)}, reverse=True)

    def all_tokens(self, rows: int, width: int) -> list[int]:
        """All values of `tokens` if more than half of `rows` are in use and one drafts."""
        counts = range(rows // 2 + 2, rows * width + 1)
        return sorted({self.tokens(count, rows, width) for count in counts}, reverse=True)


def _power(count: int) -> int:
    return 1 << (count - 1).bit_length()


def _two_an_octave(count: int) -> int:
    power = _power(count)
    return 3 * power // 4 if power >= 4 and count <= 3 * power // 4 else power


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a batch; two packings of one shape can share a CUDA graph.

    Rows first .. first + rows - 1 take part in attention, the widest with `width` tokens; `tokens`
    are packed. ragged: the packed tokens are no rectangle. padded: rows and tokens may be padding,
    see Buckets. narrow: so many of the last rows bring one token and are a rectangle of their own.
    """

    first: int
    rows: int
    width: int
    tokens: int
    ragged: bool
    padded: bool
    narrow: int = 0


@dataclass(frozen=True, slots=True)
class Rectangle:
    """Consecutive rows that attention reads at once, each with `width` query positions."""

    rows: int
    width: int
    tokens: int  # packed tokens of these rows
    grid: Tensor | None  # [rows * width] packed index, 0 for padding; None if nothing is padded
    places: Tensor | None  # [tokens] the token's place in the grid; None if nothing is padded

    def pad(self, x: Tensor) -> Tensor:
        """x [tokens, ...] as [rows * width, ...]; padding repeats some token, of no use."""
        return x if self.grid is None else x.index_select(0, self.grid)

    def fold(self, q: Tensor, kv_heads: int) -> Tensor:
        """q [tokens, heads, D] as attention wants it: [rows * kv heads, width * group, D].

        The heads of a group, which share a key head, are folded into the query axis.
        """
        rows, width, depth, q = self.rows, self.width, q.shape[-1], self.pad(q)
        if width > 1:
            q = q.view(rows, width, kv_heads, -1, depth).transpose(1, 2)
        return q.reshape(rows * kv_heads, -1, depth)

    def unfold(self, out: Tensor, kv_heads: int) -> Tensor:
        """Attention's output, shaped as `fold` gave its queries, as [tokens, heads * D]."""
        rows, width = self.rows, self.width
        if width > 1:
            out = out.view(rows, kv_heads, width, -1).transpose(1, 2)
        out = out.reshape(rows * width, -1)
        return out if self.places is None else out.index_select(0, self.places)

    def mask(self, positions: Tensor, extent: int, heads: int, group: int) -> Tensor:
        """Whether a query sees a key, [rows * heads, width * group, extent]. positions: [tokens]"""
        query = self.pad(positions).view(self.rows, 1, self.width, 1).expand(-1, heads, -1, group)
        query = query.reshape(self.rows * heads, self.width * group, 1)
        return torch.arange(extent, device=positions.device) <= query


@dataclass(frozen=True, slots=True)
class Packing:
    """A batch's rows and tokens, without their positions; depends on the widths alone.

    The tokens of row first + i are last[i] + 1, and lie behind those of the rows before it.
    """

    shape: Shape
    index: Tensor  # all that follows, one behind the other, as it was sent to the device
    token_rows: Tensor  # [N] the cache row of each token
    offsets: Tensor  # [N] 0 .. width - 1 within the row's tokens
    last: Tensor  # [rows] the offset of each row's last token, -1 for a row without tokens
    rectangle: Rectangle  # all rows at the width of the widest, as verification compares them
    parts: tuple[Rectangle, ...]  # as attention reads them: one, or two if the last are narrow
    padding: int  # query positions that attention computes for nothing

    @classmethod
    def over(cls, shape: Shape, index: Tensor, padding: int = 0) -> "Packing":
        """A packing of `shape` with the numbers in `index`."""
        n, rows, width, narrow = shape.tokens, shape.rows, shape.width, shape.narrow
        sizes = (n, n, rows, *((rows * width, n) if shape.ragged else ()))
        views: Any = index.split(sizes)  # type: ignore[no-untyped-call]
        token_rows, offsets, last = views[:3]
        grid, places = views[3:] if shape.ragged else (None, None)
        whole = Rectangle(rows, width, n, grid, places)
        parts: tuple[Rectangle, ...] = (whole,)
        if narrow:
            wide, tokens = rows - narrow, n - narrow
            around: Any = (None, None)
            if tokens < wide * width:
                around = views[3][: wide * width], views[4][:tokens]
            parts = (
                Rectangle(wide, width, tokens, *around),
                Rectangle(narrow, 1, narrow, None, None),
            )
        return cls(shape, index, token_rows, offsets, last, whole, parts, padding)

    @property
    def whole(self) -> slice | None:
        """All rows as a slice if each brings `width` tokens and none is padding, else None."""
        shape = self.shape
        if shape.ragged or shape.padded:
            return None
        return slice(shape.first, shape.first + shape.rows)


@lru_cache(maxsize=512)
def pack(
    widths: tuple[int, ...], device: str, first: int = 0, buckets: Buckets | None = None
) -> Packing:
    """The packing of rows that bring `widths` tokens each (0 allowed, not all of them).

    With `buckets`, for rows from 0 on, it is padded to one of few shapes.
    """
    rows, width, tokens = len(widths), max(widths), sum(widths)
    if buckets is not None:
        rows, width = buckets.rows(rows), buckets.width(width)
        tokens = buckets.tokens(tokens, rows, width)
    narrow = 0 if buckets or is_gpu(device) else _narrow(widths)
    shape = Shape(first, rows, width, tokens, False, buckets is not None, narrow)
    return _fill(shape, widths, device, buckets.spare if buckets else 0)


def _narrow(widths: tuple[int, ...]) -> int:
    """The number of last rows with one token each, if it pays to read them apart."""
    count = len(widths) - next((r for r in range(len(widths), 0, -1) if widths[r - 1] != 1), 0)
    return count if count * (max(widths) - 1) >= LEAST_SPARED else 0


@lru_cache(maxsize=512)
def pack_rectangle(rows: int, width: int, device: str, buckets: Buckets) -> Packing:
    """The packing of `rows` rows with `width` tokens each, padded to a bucket of rows alone."""
    padded = buckets.rows(rows)
    shape = Shape(0, padded, width, padded * width, False, True)
    return _fill(shape, (width,) * rows, device, buckets.spare)


def _fill(shape: Shape, widths: tuple[int, ...], device: str, spare: int) -> Packing:
    rows, width = shape.rows, shape.width
    ragged = shape.tokens < rows * width or min(widths) < width
    shape = replace(shape, ragged=ragged)
    token_rows: list[int] = []
    offsets: list[int] = []
    places: list[int] = []
    grid: list[int] = []
    for row, count in enumerate(widths):
        start = len(token_rows)
        token_rows += [shape.first + row] * count
        offsets += range(count)
        places += range(row * width, row * width + count)
        grid += [*range(start, start + count), *([0] * (width - count))]
    padding = shape.tokens - len(token_rows)
    token_rows += [spare] * padding
    offsets += [0 if ragged else place % width for place in range(padding)]
    last = [*(count - 1 for count in widths), *[-1] * (rows - len(widths))]
    index = token_rows + offsets + last
    if ragged:
        grid += [0] * (rows * width - len(grid))
        index += grid + places + [0] * padding
    positions = rows * width - shape.narrow * (width - 1)
    return Packing.over(shape, send(index, device), positions - sum(widths))


@dataclass(frozen=True, slots=True)
class Layout:
    """A packing with positions: all that a forward pass needs to know about its batch."""

    packing: Packing
    positions: Tensor  # [N]
    extents: tuple[int, ...]  # cache positions that attention reads, of each part
    masks: tuple[Tensor, ...]  # of each part, [rows * kv heads or 1, width * group, extent]
    start: int | None = None  # position of the first token; only for a row that the host places

    @property
    def first(self) -> int:
        """First row of the cache that takes part."""
        return self.packing.shape.first

    @property
    def extent(self) -> int:
        """Of all parts."""
        return max(self.extents)


def lay_out(
    packing: Packing,
    positions: Tensor,
    extents: tuple[int, ...],
    config: ModelConfig,
    dtype: torch.dtype,
) -> Layout:
    """Place `packing`'s tokens at `positions` [N] for a model of `config` and `dtype`.

    Every position must be below the extent of its part, the caller's bound on the part's lengths.
    """
    heads, group = config.kv_heads, config.heads // config.kv_heads
    masks, start = [], 0
    for part, extent in zip(packing.parts, extents, strict=True):
        visible = part.mask(positions[start : start + part.tokens], extent, heads, group)
        # Added to the scores as it is: each layer would have to convert a boolean mask.
        masks.append(torch.where(visible, 0.0, hidden(dtype)).to(dtype))
        start += part.tokens
    return Layout(packing, positions, extents, tuple(masks))


def hidden(dtype: torch.dtype) -> float:
    """Added to the score of a key that a query must not see; makes its exponential 0.

    Finite, because a part of the keys of which a query sees none must not give NaN.
    """
    return max(torch.finfo(dtype).min, torch.finfo(torch.float32).min) / 4


ROW_TOKENS = 16
"""Tokens of a single row at a known position that are laid out by views of what the cache holds."""


def row_mask(config: ModelConfig, capacity: int, dtype: torch.dtype, device: str) -> Tensor:
    """[1, ROW_TOKENS * group, capacity + ROW_TOKENS]: the mask of one row's tokens.

    Column capacity + j belongs to the key of the j-th of these tokens, the columns before it to
    older keys, so that the mask for fewer tokens and any position is a view.
    """
    group = config.heads // config.kv_heads
    query = torch.arange(ROW_TOKENS, device=device).repeat_interleave(group)[None, :, None]
    key = torch.arange(-capacity, ROW_TOKENS, device=device)
    return torch.where(key <= query, 0.0, hidden(dtype)).to(dtype)
