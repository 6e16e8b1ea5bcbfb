"""The EAGLE-style drafter: a one-layer head drafts from the target's hidden states."""

from collections.abc import Sequence

import torch
from torch import Tensor

from specscope.engine.decode.batch import Batch
from specscope.engine.decode.checks import check_head
from specscope.engine.decode.drafters.draft_model import ModelDrafter
from specscope.engine.decode.drafters.drafter import move_items
from specscope.engine.errors import IncompatiblePair
from specscope.engine.model.config import ModelConfig
from specscope.engine.model.decoder import Decoder, EagleHead
from specscope.engine.model.kv_cache import KVCache, move_rows, rounded
from specscope.engine.model.layout import Layout


class HeadModel:
    """A head with its target's embedding and output projection, fed like a model.

    features: [rows, positions, hidden] the hidden state before each token, see EagleHead
    """

    def __init__(self, head: EagleHead, target: Decoder, features: Tensor) -> None:
        self.head, self.target, self.features = head, target, features

    @property
    def config(self) -> ModelConfig:
        """The head's."""
        return self.head.config

    @property
    def dtype(self) -> torch.dtype:
        """The head's."""
        return self.head.dtype

    def __call__(self, tokens: Tensor, cache: KVCache, plan: Layout) -> Tensor:
        """See Model."""
        if plan.start is None:
            features = self.features[plan.packing.token_rows, plan.positions]
        else:
            features = self.features[plan.first, plan.start : plan.extent]
        hidden: Tensor = self.head(self.target.embedding[tokens], features, cache, plan)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """See Model."""
        return self.target.logits(hidden)


class EagleDrafter(ModelDrafter):
    """A head that reads each token with the target's hidden state before it.

    The target stores its hidden states of prefill and verification in `features`. After the text,
    `features` holds the head's own outputs until verification overwrites them, so drafting and
    reading are one operation. Each round first reads all tokens that the last round may have
    emitted, because the head has read some of them with its own outputs instead of the target's
    states.
    """

    features: Tensor

    def __init__(self, head: EagleHead, target: Decoder, delay_us: float = 0.0) -> None:
        """Raises IncompatiblePair if `head` cannot be one of `target`."""
        check_head(target.config, head.config)
        self.head, self.target = head, target
        # Without features until `open`: their number depends on the engine.
        super().__init__(HeadModel(head, target, torch.empty(0)), delay_us)

    def check(self, target: Decoder, positions: int) -> None:
        """See ModelDrafter; raises IncompatiblePair if `target` is not the head's."""
        if target is not self.target:
            raise IncompatiblePair("the engine's target is not the one that the head drafts for")
        super().check(target, positions)

    def open(self, rows: int, capacity: int, k_max: int, device: str) -> None:
        """Make room."""
        places = rounded(capacity + k_max + 1) + 1
        shape = (rows, places, self.target.config.hidden)
        self.features = torch.zeros(shape, dtype=self.target.dtype, device=device)
        self.model = HeadModel(self.head, self.target, self.features)
        super().open(rows, capacity, k_max, device)
        self.row_numbers = torch.arange(rows, device=device)
        self.known = [0] * rows
        """Tokens of each row's text that were surely read with true hidden states."""

    def admitted(self, row: int, prompt: Sequence[int]) -> None:
        """A new text is wholly unread; its last token is read by its first round."""
        self.unread[row], self.first[row], self.known[row] = len(prompt) - 1, 1, 0

    def first_width(self, batch: Batch, ks: Sequence[int]) -> int:
        """See ModelDrafter: in a graph always the most that it may be."""
        if batch.graphs is not None:
            return batch.state.k_max + 1
        drafting = [row for row, k in enumerate(ks) if k]
        widths = [self.first[row] for row in drafting]
        if batch.lengths is not None:
            unknown = [batch.lengths[row] - self.known[row] for row in drafting]
            widths = [min(both) for both in zip(widths, unknown, strict=True)]
            for row in drafting:
                self.known[row] = batch.lengths[row]
        return max(widths)

    def keep(self, hidden: Tensor, rows: Tensor | slice, places: Tensor) -> None:
        """Keep the outputs: the next step reads them in place of the target's."""
        self.features.index_put_((self.row_numbers[rows], places), hidden)

    def advanced(self, ks: Sequence[int]) -> None:
        """Rows that drafted know all but what the round emitted; the others fell behind."""
        for row, k in enumerate(ks):
            self.unread[row] = 0 if k else self.unread[row] + self.first[row]
            self.first[row] = k + 1

    def moved(self, sources: Sequence[int], targets: Sequence[int], positions: int) -> None:
        """Take cache and hidden states along."""
        super().moved(sources, targets, positions)
        move_items(self.first, sources, targets)
        move_items(self.known, sources, targets)
        move_rows(lambda row: self.features[row, : positions + 1], sources, targets)
