"""The rows' state on the device: tokens, lengths, limits and sampling settings.

Row r holds tokens[r, :lengths[r]]; entries beyond the length are stale. The last token of a row is
in no KV cache yet: it is the first input of the next round."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from specscope.engine.api import RequestInfo, SamplingParams
from specscope.engine.decode.graphs import Graphs
from specscope.engine.model.device import send

MAX_EOS = 8


@dataclass(frozen=True, slots=True)
class SamplingNeeds:
    """The kinds of sampling in a batch, so that unused kinds are skipped."""

    noise: bool = False
    top_k: bool = False
    top_p: bool = False
    rejection: bool = False
    greedy: bool = False
    eos: bool = False

    def __or__(self, other: "SamplingNeeds") -> "SamplingNeeds":
        return SamplingNeeds(
            self.noise or other.noise,
            self.top_k or other.top_k,
            self.top_p or other.top_p,
            self.rejection or other.rejection,
            self.greedy or other.greedy,
            self.eos or other.eos,
        )


def sampling_needs(params: SamplingParams) -> SamplingNeeds:
    """The needs of one request."""
    ends = bool(params.eos)
    if params.greedy:
        return SamplingNeeds(greedy=True, eos=ends)
    rejection = params.mode == "rejection"
    return SamplingNeeds(True, params.top_k > 0, params.top_p < 1, rejection, False, ends)


class BatchState:
    """Device tensors of `rows` sequences; addresses never change.

    Proposals of the round that runs lie in `tokens` as well, behind each row's length.
    """

    def __init__(self, rows: int, capacity: int, k_max: int, device: str) -> None:
        def zeros(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self.device, self.capacity, self.k_max = device, capacity, k_max
        self.tokens = zeros(rows, capacity + k_max + 2)
        self.places = torch.arange(k_max + 1, device=device)
        self.lengths = zeros(rows)
        self.room = zeros(rows)  # tokens that a row may still emit; 0 once it has ended
        self.eos = zeros(rows, MAX_EOS)
        self.seed = zeros(rows)
        self.temperature = zeros(rows, dtype=torch.float32).fill_(1)
        self.top_p = zeros(rows, dtype=torch.float32)
        self.top_k = zeros(rows)
        self.greedy = zeros(rows, dtype=torch.bool)
        self.rejection = zeros(rows, dtype=torch.bool)
        self._noise: Tensor | None = None
        self.clear()

    def noise(self, vocab: int) -> Tensor:
        """[rows, k_max + 1, vocab] float32: the noise of the places that a round may fill.

        Allocated once, when the first sampled request comes.
        """
        if self._noise is None:
            shape = (self.lengths.shape[0], self.k_max + 1, vocab)
            self._noise = torch.zeros(shape, device=self.device)
        return self._noise

    def clear(self) -> None:
        """Empty all rows; each keeps one token, so that a pass may run over it."""
        self.lengths.fill_(1)
        self.room.fill_(0)

    def admit(self, first: int, requests: Sequence[tuple[list[int], int, SamplingParams]]) -> None:
        """Fill rows from `first` on with texts, the lengths at which they end, and settings."""
        texts = [text for text, _, _ in requests]
        params = [own for _, _, own in requests]
        lengths = [len(text) for text in texts]
        most = max(lengths)
        self._put(self.tokens[:, :most], first, [text + [0] * (most - len(text)) for text in texts])
        self._put(self.lengths, first, lengths)
        self._put(self.room, first, [limit - len(text) for text, limit, _ in requests])
        self._put(self.eos, first, [[*p.eos, *[-1] * (MAX_EOS - len(p.eos))] for p in params])
        self._put(self.seed, first, [own.seed for own in params])
        # A greedy row is a sampled one with neutral settings and no noise.
        sampled = [(1.0, 1.0, 0) if p.greedy else (p.temperature, p.top_p, p.top_k) for p in params]
        self._put(self.temperature, first, [own[0] for own in sampled])
        self._put(self.top_p, first, [own[1] for own in sampled])
        self._put(self.top_k, first, [own[2] for own in sampled])
        self._put(self.greedy, first, [own.greedy for own in params])
        self._put(self.rejection, first, [sampling_needs(own).rejection for own in params])

    def _put(self, tensor: Tensor, first: int, values: Sequence[object]) -> None:
        tensor[first : first + len(values)] = send(values, self.device, tensor.dtype)

    def move(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copy rows over others simultaneously, with their previous content."""
        where = send([list(sources), list(targets)], self.device)
        for tensor in (
            self.tokens, self.lengths, self.room, self.eos, self.seed,
            self.temperature, self.top_p, self.top_k, self.greedy, self.rejection,
        ):  # fmt: skip
            tensor[where[1]] = tensor[where[0]]


@dataclass(frozen=True, slots=True)
class Batch:
    """A drafter's input: device state, and the texts known to the host."""

    state: BatchState
    needs: SamplingNeeds
    requests: Sequence[RequestInfo]
    texts: Sequence[Sequence[int]]
    extent: int  # bound on every row's length
    graphs: Graphs | None = None
    lengths: Sequence[int] | None = None  # exact; on a CPU, if no round is in flight or a graph

    def for_graph(self, graphs: Graphs, ahead: int) -> "Batch":
        """The part that captured work may read, up to `ahead` positions beyond the texts."""
        # Greedy rows and ends of text cost little, a graph for each combination more.
        needs = replace(self.needs, eos=True, greedy=self.needs.greedy or self.needs.noise)
        return Batch(self.state, needs, (), (), graphs.buckets.extent(self.extent + ahead))
