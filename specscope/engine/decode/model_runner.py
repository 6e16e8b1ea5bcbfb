"""Feeds a model tokens of the rows: prefill, drafting steps, verification.

The host knows all values that determine shapes (rows, k, a bound on lengths) in advance. All values
that depend on tokens stay on the device, so the host never waits for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from specscope.engine.decode.batch import Batch, BatchState
from specscope.engine.model.config import ModelConfig
from specscope.engine.model.device import is_gpu, send
from specscope.engine.model.kv_cache import KVCache
from specscope.engine.model.layout import ROW_TOKENS, Layout, Packing, lay_out, pack

EXTENT_STEP = 128
"""On a GPU the extents of prefill and catch-up are multiples of this: few shapes, aligned masks."""


class Model(Protocol):
    """The interface of a decoder."""

    @property
    def config(self) -> ModelConfig:
        """Its sizes."""

    @property
    def dtype(self) -> torch.dtype:
        """Of its weights."""

    def __call__(self, tokens: Tensor, cache: KVCache, plan: Layout) -> Any:
        """Hidden states [N, hidden] of the packed tokens [N] of `plan`; see Decoder.forward."""

    def logits(self, hidden: Tensor) -> Tensor:
        """[N, vocab] of hidden states [N, hidden]."""


@dataclass(frozen=True, slots=True)
class ModelRunner:
    """A model with its KV cache: feeds it tokens of the rows.

    features: [rows, positions, hidden] where the hidden state at a position is kept, one place
    later: a draft head reads it with the next token. None if no drafter reads hidden states.
    """

    model: Model
    cache: KVCache
    features: Tensor | None = None

    def prefill(
        self, state: BatchState, first: int, done: Sequence[int], counts: Sequence[int], chunk: int
    ) -> None:
        """Read the next counts[i] tokens of row first + i, of which done[i] were read before.

        At most `chunk` tokens of a row in one pass.
        """
        done, left = list(done), list(counts)
        while any(left):
            widths = [min(count, chunk) for count in left]
            packing = pack(tuple(widths), state.device, first)
            positions = packing.offsets + send(done, state.device)[packing.token_rows - first]
            done = [start + width for start, width in zip(done, widths, strict=True)]
            left = [count - width for count, width in zip(left, widths, strict=True)]
            extents = (self._extent(max(done), state.device),) * len(packing.parts)
            plan = lay_out(packing, positions, extents, self.model.config, self.model.dtype)
            hidden = self.model(state.tokens[packing.token_rows, positions], self.cache, plan)
            self._keep(hidden, plan)

    def feed(self, batch: Batch, packing: Packing, shift: int | Tensor, extent: int) -> Tensor:
        """Hidden states [N, hidden] of the packed tokens.

        The first token of a row is at its length + shift, or at 0 if that is negative. extent:
        bound on all positions.
        """
        return self.feed_with_plan(batch, packing, shift, extent)[0]

    def feed_with_plan(
        self, batch: Batch, packing: Packing, shift: int | Tensor, extent: int
    ) -> tuple[Tensor, Layout]:
        """`feed`, and where the tokens lay."""
        state, start = batch.state, -1
        if batch.lengths is not None and len(batch.lengths) == 1 and isinstance(shift, int):
            start = batch.lengths[0] + shift
        if start >= 0 and packing.whole is not None and packing.shape.width <= ROW_TOKENS:
            plan = self.cache.lay_out_row(packing, start)
            fed = state.tokens[0, start : plan.extent]
        else:
            rows = packing.token_rows
            positions = (state.lengths[rows] + packing.offsets + shift).clamp(min=0)
            if not packing.shape.padded:
                extent = self._extent(extent, state.device)
            extents, shape = [extent] * len(packing.parts), packing.shape
            if shape.narrow and batch.lengths is not None and isinstance(shift, int):
                # Of these rows, which bring one token each, the lengths are known.
                end = shape.first + shape.rows
                extents[-1] = max(batch.lengths[end - shape.narrow : end]) + shift + 1
            plan = lay_out(packing, positions, tuple(extents), self.model.config, self.model.dtype)
            fed = state.tokens[rows, positions]
        hidden = self.model(fed, self.cache, plan)
        self._keep(hidden, plan)
        return hidden, plan

    def verify(self, batch: Batch, packing: Packing, extent: int) -> tuple[Tensor, Layout]:
        """Logits [N, vocab] of every row's pending token and its proposals behind the text."""
        hidden, plan = self.feed_with_plan(batch, packing, -1, extent)
        return self.model.logits(hidden), plan

    def _keep(self, hidden: Tensor, plan: Layout) -> None:
        if self.features is None:
            return
        if plan.start is None:
            places = plan.packing.token_rows, plan.positions + 1
            self.features.index_put_(places, hidden)
        else:
            self.features[plan.first, plan.start + 1 : plan.extent + 1] = hidden

    def _extent(self, extent: int, device: str) -> int:
        if not is_gpu(device):
            return extent
        return min(-(-extent // EXTENT_STEP) * EXTENT_STEP, self.cache.capacity)
