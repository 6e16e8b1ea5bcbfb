"""The draft model: a smaller decoder that proposes tokens one by one."""

from collections.abc import Sequence

import torch
from torch import Tensor

from specscope.engine.decode.batch import Batch
from specscope.engine.decode.checks import check_pair
from specscope.engine.decode.drafters.drafter import Drafter, Proposal, move_items, pause
from specscope.engine.decode.graphs import Graphs
from specscope.engine.decode.model_runner import Model, ModelRunner
from specscope.engine.decode.sampler import sample, sampling_scores
from specscope.engine.decode.timing import Parts
from specscope.engine.errors import BadSetting
from specscope.engine.model.decoder import Decoder
from specscope.engine.model.device import send
from specscope.engine.model.kv_cache import KVCache
from specscope.engine.model.layout import Packing, pack, pack_rectangle

CATCH_UP_CHUNK = 256


class ModelDrafter(Drafter):
    """A smaller model with a KV cache of its own.

    Each round begins with the last two tokens of a text. After full acceptance the draft model has
    not processed the last proposal, and processing one token twice costs less than a branch. Drawn
    tokens are written after the text, for the next step and the verifier.
    """

    draws = True
    window = 2
    """Tokens of the text that a round feeds first."""

    def __init__(self, model: Model, delay_us: float = 0.0) -> None:
        """`delay_us` is added for each position drafted, to study a slower draft."""
        self.model, self.delay_us = model, delay_us
        self.laws: Tensor | None = None

    def check(self, target: Decoder, positions: int) -> None:
        """Raises IncompatiblePair or BadSetting."""
        check_pair(target.config, self.model.config)
        if positions > self.model.config.max_context:
            raise BadSetting(
                f"{positions} positions are needed, the draft has {self.model.config.max_context}"
            )

    def open(self, rows: int, capacity: int, k_max: int, device: str) -> None:
        """Make room."""
        positions = capacity + k_max + 1
        self.cache = KVCache(self.model.config, rows, positions, device, self.model.dtype)
        self.runner = ModelRunner(self.model, self.cache)
        # Tokens of each row that were never fed, before those that a round feeds first.
        self.unread = [0] * rows
        self.first = [self.window] * rows
        self.device = device
        # Steps as tensors [1], which a graph can take as an input.
        self.steps = torch.arange(k_max + 1, device=device)[:, None].unbind()

    def admitted(self, row: int, prompt: Sequence[int]) -> None:
        """Mark a new text as unread, except its last two tokens."""
        self.unread[row] = max(0, len(prompt) - 2)

    def behind(self, ks: Sequence[int]) -> bool:
        """See Drafter."""
        return any(k and unread for k, unread in zip(ks, self.unread, strict=False))

    def catch_up(self, batch: Batch, ks: Sequence[int]) -> None:
        """Feed the unread text of rows with k > 0, in chunks."""
        left = [self.unread[row] if k else 0 for row, k in enumerate(ks)]
        while any(left):
            low = next(row for row, count in enumerate(left) if count)
            high = max(row for row, count in enumerate(left) if count) + 1
            widths = [min(count, CATCH_UP_CHUNK) for count in left[low:high]]
            packing = pack(tuple(widths), self.device, low)
            behind = [count + first for count, first in zip(left, self.first, strict=False)]
            shift = -send(behind, self.device)[packing.token_rows]
            self.runner.feed(batch, packing, shift, batch.extent)
            for row, width in enumerate(widths, low):
                left[row] -= width
        for row, k in enumerate(ks):
            if k:
                self.unread[row] = 0

    def propose(self, batch: Batch, ks: Sequence[int]) -> Proposal:
        """Draw up to k tokens per row, one position at a time, for the rows that still want one.

        In a graph every row draws at every step. A few more rows cost a GPU nothing, and rows
        without a draft only overwrite stale positions.
        """
        padding, most = 0, max(ks)
        for step in range(most):
            width = 1 if step else self.first_width(batch, ks)
            if batch.graphs is None:
                packing = pack(_widths(ks, step, width), self.device)
                self.draw(batch, packing, step, width)
            else:
                packing = pack_rectangle(len(ks), width, self.device, batch.graphs.buckets)
                self._draw_in_graph(batch, packing, step, width, batch.graphs)
            padding += packing.padding
        pause(self.delay_us * most)
        laws = self.laws if batch.needs.rejection else None
        return Proposal(list(ks), None, laws, padding)

    def first_width(self, batch: Batch, ks: Sequence[int]) -> int:  # noqa: ARG002
        """Number of tokens at the end of each text that a round feeds first."""
        return self.window

    def draw(self, batch: Batch, packing: Packing, step: int | Tensor, width: int) -> None:
        """Draw the token at `step` of every row of `packing` and write it behind the text.

        width: tokens that are fed of each row, the last of which comes before the drawn one.
        """
        state, needs, whole = batch.state, batch.needs, packing.whole
        ahead = batch.extent if isinstance(step, Tensor) else batch.extent + step
        hidden = self.runner.feed(batch, packing, step - width, ahead)[width - 1 :: width]
        rows = packing.token_rows[width - 1 :: width] if whole is None else whole
        places = state.lengths[rows] + step
        self.keep(hidden, rows, places)
        logits = self.model.logits(hidden)
        scores = sampling_scores(logits, rows, state, needs)
        noise = None
        if needs.noise:
            noise = state.noise(logits.shape[-1])[rows, step]
        token = sample(scores, noise)
        if isinstance(rows, Tensor):
            state.tokens.index_put_((rows, places), token)
        else:
            state.tokens[rows].scatter_(1, places[:, None], token[:, None])
        if needs.rejection:
            self._laws(state.k_max, logits.shape[-1])[rows, step] = scores.softmax(-1).float()

    def keep(self, hidden: Tensor, rows: Tensor | slice, places: Tensor) -> None:
        """The hidden states [n, hidden] from which the tokens at `places` [n] are drawn."""

    def _draw_in_graph(
        self, batch: Batch, packing: Packing, step: int, width: int, graphs: Graphs
    ) -> None:
        fixed, shape = batch.for_graph(graphs, batch.state.k_max), packing.shape

        def work(inputs: Sequence[Tensor], parts: Parts) -> tuple[Tensor, ...]:
            index, position = inputs
            with parts.part("draft"):
                self.draw(fixed, Packing.over(shape, index), position, width)
            return ()

        inputs = [(packing.index, packing.index.shape), (self.steps[step], (1,))]
        graphs.run(("draft", shape, fixed.extent, fixed.needs), work, inputs)

    def _laws(self, k_max: int, vocab: int) -> Tensor:
        """[rows, k_max, vocab] float32, allocated when the first rejection request comes."""
        if self.laws is None:
            shape = (self.cache.rows, k_max, vocab)
            self.laws = torch.zeros(shape, device=self.device)
        return self.laws

    def advanced(self, ks: Sequence[int]) -> None:
        """Count the emitted token of rows at k = 0 as unread."""
        for row, k in enumerate(ks):
            self.unread[row] = 0 if k else self.unread[row] + 1

    def moved(self, sources: Sequence[int], targets: Sequence[int], positions: int) -> None:
        """Take the cache along."""
        self.cache.move(sources, targets, positions)
        move_items(self.unread, sources, targets)


def _widths(ks: Sequence[int], step: int, width: int) -> tuple[int, ...]:
    """Tokens of each row at a drafting step, up to the last row that draws one."""
    last = max(row for row, k in enumerate(ks) if k > step)
    return tuple(width * (k > step) for k in ks[: last + 1])
