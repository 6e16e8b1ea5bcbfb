"""The draft model: a smaller decoder that proposes tokens one by one."""

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from specscope.engine.decode.batch import Batch
from specscope.engine.decode.checks import check_pair
from specscope.engine.decode.drafters.drafter import Drafter, Proposal, pause
from specscope.engine.decode.sampler import DRAFT, choose, sampling_noise, sampling_scores
from specscope.engine.decode.timing import Parts
from specscope.engine.errors import BadSetting
from specscope.engine.model.decoder import Decoder
from specscope.engine.model.device import send
from specscope.engine.model.kv_cache import KVCache
from specscope.engine.model.layout import Packing, lay_out, pack

CATCH_UP_CHUNK = 256


class ModelDrafter(Drafter):
    """A smaller model with a KV cache of its own.

    Each round begins by feeding the last two tokens of a text: after full acceptance the last
    proposal was drawn but never read, and reading one token twice costs less than a branch.
    """

    draws = True
    window = 2
    """Tokens of the text that a round feeds first."""

    def __init__(self, model: Decoder, delay_us: float = 0.0) -> None:
        """`delay_us` is added for each position drafted, to study a slower draft."""
        self.model, self.delay_us = model, delay_us

    def check(self, target: Decoder, positions: int) -> None:
        """Raises IncompatiblePair or BadSetting."""
        check_pair(target, self.model)
        if positions > self.model.config.max_context:
            raise BadSetting(
                f"{positions} positions are needed, the draft has {self.model.config.max_context}"
            )

    def open(self, rows: int, capacity: int, k_max: int, device: str) -> None:
        """Make room."""
        self.cache = KVCache(
            self.model.config, rows, capacity + k_max + 1, device, self.model.dtype
        )
        self.unread = [0] * rows  # tokens of each row before its last two that were never fed
        self.device = device

    def admitted(self, row: int, prompt: Sequence[int]) -> None:
        """A new text is wholly unread, its last two tokens aside."""
        self.unread[row] = max(0, len(prompt) - 2)

    def behind(self, ks: Sequence[int]) -> bool:
        """See Drafter."""
        return any(k and unread for k, unread in zip(ks, self.unread, strict=False))

    def catch_up(self, batch: Batch, ks: Sequence[int]) -> None:
        """Feed what rows with k > 0 have not read, in chunks."""
        left = [self.unread[row] if k else 0 for row, k in enumerate(ks)]
        while any(left):
            low = next(row for row, count in enumerate(left) if count)
            high = max(row for row, count in enumerate(left) if count) + 1
            widths = [min(count, CATCH_UP_CHUNK) for count in left[low:high]]
            packing = pack(tuple(widths), self.device, low)
            behind = send(left, self.device)[packing.token_rows]
            positions = batch.state.lengths[packing.token_rows] - 2 - behind + packing.offsets
            positions = positions.clamp(min=0)
            plan = lay_out(packing, positions, batch.extent, self.model.config, self.model.dtype)
            self.model(batch.state.tokens[packing.token_rows, positions], self.cache, plan)
            for row, width in enumerate(widths, low):
                left[row] -= width
        for row, k in enumerate(ks):
            if k:
                self.unread[row] = 0

    def propose(self, batch: Batch, ks: Sequence[int]) -> Proposal:
        """Draw up to k tokens a row, one position at a time, for the rows that still want one."""
        graphs, most = batch.graphs, max(ks)
        buckets = None if graphs is None else graphs.buckets
        packings = []
        for step in range(most):
            width = 1 if step else self.window
            widths = tuple(width * (k > step) for k in ks)
            packings.append(pack(widths, self.device, 0, buckets))
        if graphs is None:
            starts = send([0, *accumulate(k + 1 for k in ks)], self.device)
            tokens, *probable = self.draw(batch, packings, most, starts)
        else:
            fixed = batch.for_graph(graphs, most)
            shapes = [packing.shape for packing in packings]

            def work(inputs: Sequence[Tensor], parts: Parts) -> tuple[Tensor, ...]:
                again = [Packing.over(*pair) for pair in zip(shapes, inputs, strict=True)]
                with parts.part("draft"):
                    return self.draw(fixed, again, graphs.buckets.width(most + 1) - 1)

            inputs = [(packing.index, packing.index.shape) for packing in packings]
            key = ("draft", *shapes, fixed.extent, fixed.needs)
            tokens, *probable = graphs.run(key, work, inputs)
        pause(self.delay_us * most)
        padded = sum(packing.padded for packing in packings)
        return Proposal(list(ks), tokens, probable[0] if probable else None, padded)

    def draw(
        self, batch: Batch, packings: Sequence[Packing], most: int, starts: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Tokens [R, most], and for rejection the laws [R, most, vocab] they were drawn from.

        packings: of each step, over the rows that draft then. starts: [R] where each row's places
        begin in the batch's noise.
        """
        state, rows = batch.state, packings[0].shape.rows
        # Behind the rows there is one for what is drawn for nobody.
        tokens = torch.zeros((rows + 1, most), dtype=torch.int64, device=self.device)
        shape = (rows + 1, most, self.model.config.vocab)
        probable = torch.zeros(shape, device=self.device) if batch.needs.rejection else None
        for step, packing in enumerate(packings):
            width = 1 if step else self.window
            wanting = packing.token_rows[width - 1 :: width]
            scheduler = wanting.clamp(max=rows) if packing.shape.filled else wanting
            end = state.lengths[wanting] + step
            if step:
                positions, fed = end - 1, tokens[scheduler, step - 1]
            else:
                positions = (state.lengths[packing.token_rows] - width + packing.offsets).clamp(
                    min=0
                )
                fed = state.tokens[packing.token_rows, positions]
            extent = batch.extent if packing.shape.filled else batch.extent + step
            plan = lay_out(packing, positions, extent, self.model.config, self.model.dtype)
            hidden = self.model(fed, self.cache, plan)[width - 1 :: width]
            scores = sampling_scores(self.model.logits(hidden), wanting, state, batch.needs)
            if batch.noise is None or starts is None:
                noise = sampling_noise(wanting, end, state, batch.needs, DRAFT, scores.shape[-1])
            else:
                noise = batch.noise[starts[wanting] + step]
            tokens[scheduler, step] = choose(scores, noise)
            if probable is not None:
                probable[scheduler, step] = scores.softmax(-1).to(probable.dtype)
        return (tokens[:rows],) if probable is None else (tokens[:rows], probable[:rows])

    def advanced(self, ks: Sequence[int]) -> None:
        """Rows at k = 0 moved on by one token that was not read."""
        for row, k in enumerate(ks):
            self.unread[row] = 0 if k else self.unread[row] + 1

    def moved(self, source: int, target: int, positions: int) -> None:
        """Take the cache along."""
        self.cache.move(source, target, positions)
        self.unread[target] = self.unread[source]
