"""One round on the device: catch up, draft, verify, commit. The device never waits for the host.

The host knows everything that decides shapes (rows, k, a bound on lengths) beforehand. Everything
that depends on tokens stays on the device."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from specscope.engine.decode.batch import Batch, BatchState
from specscope.engine.decode.drafters.drafter import Drafter, Proposal, host_proposal
from specscope.engine.decode.graphs import Graphs
from specscope.engine.decode.sampler import COUPLED, sampling_noise
from specscope.engine.decode.timing import Parts, Timer
from specscope.engine.decode.verify import commit, verify_proposals
from specscope.engine.model.decoder import Decoder
from specscope.engine.model.device import send
from specscope.engine.model.kv_cache import KVCache
from specscope.engine.model.layout import Layout, Packing, lay_out, pack


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a round leaves: a tensor to read back, and what the host knew already."""

    result: Tensor  # [rows, K + 3], see commit
    widths: list[int]  # proposals per row
    padded: int


@dataclass(frozen=True, slots=True)
class ModelRunner:
    """The model that decides, with its cache."""

    model: Decoder
    cache: KVCache

    def prefill(
        self, state: BatchState, first: int, done: Sequence[int], counts: Sequence[int], chunk: int
    ) -> None:
        """Read the next counts[i] tokens of row first + i, of whose text done[i] were read before.

        At most `chunk` a row in one pass.
        """
        done, left = list(done), list(counts)
        while any(left):
            widths = [min(count, chunk) for count in left]
            packing = pack(tuple(widths), state.device, first)
            positions = packing.offsets + send(done, state.device)[packing.token_rows - first]
            done = [start + width for start, width in zip(done, widths, strict=True)]
            left = [count - width for count, width in zip(left, widths, strict=True)]
            plan = lay_out(packing, positions, max(done), self.model.config, self.model.dtype)
            self.model(state.tokens[plan.token_rows, plan.positions], self.cache, plan)

    def verify(self, batch: Batch, proposal: Proposal, packing: Packing) -> tuple[Tensor, Layout]:
        """Logits [N, vocab] of every row's pending token and its proposals.

        batch.extent bounds the positions of all. Proposals are put behind the texts, where
        nothing is the truth.
        """
        state, shape = batch.state, packing.shape
        rows, ahead = shape.rows, shape.width - 1
        if ahead:
            places = state.lengths[:rows, None] + torch.arange(ahead, device=state.device)
            state.tokens[:rows].scatter_(1, places, proposal.tokens[:, :ahead])
        positions = state.lengths[packing.token_rows] - 1 + packing.offsets
        plan = lay_out(packing, positions, batch.extent, self.model.config, self.model.dtype)
        fed = state.tokens[packing.token_rows, positions]
        return self.model.logits(self.model(fed, self.cache, plan)), plan


@torch.inference_mode()
def run_round(
    target: ModelRunner,
    drafter: Drafter,
    batch: Batch,
    ks: Sequence[int],
    timer: Timer,
    forced: Tensor | None = None,
) -> Outcome:
    """Draft up to ks[r] tokens for each row r, verify them, and append what stands."""
    proposal = empty_proposal(len(ks), batch.state.device)
    if any(ks):
        if drafter.behind(ks):
            with timer.part("catchup"):
                drafter.catch_up(batch, ks)
        needs = batch.needs
        if drafter.draws and needs.noise and not needs.rejection and batch.graphs is None:
            with timer.part("sample"):
                batch = replace(batch, noise=_shared_noise(batch, ks, target.model.config.vocab))
        with timer.part("draft"):
            proposal = drafter.propose(batch, ks)
    return _verify(target, batch, proposal, timer, forced)


@torch.inference_mode()
def rehearse_round(
    target: ModelRunner,
    drafter: Drafter,
    batch: Batch,
    ks: Sequence[int],
    timer: Timer,
    forced: Tensor | None = None,
) -> None:
    """A round of rows that hold nothing, with all of its work and no result.

    A drafter that reads texts has none to read: what it would propose is made up.
    """
    proposal = empty_proposal(len(ks), batch.state.device)
    if any(ks):
        with timer.part("draft"):
            made_up = host_proposal([[0] * k for k in ks], batch.state.device)
            proposal = drafter.propose(batch, ks) if drafter.draws else made_up
    _verify(target, batch, proposal, timer, forced)


def _verify(
    target: ModelRunner, batch: Batch, proposal: Proposal, timer: Timer, forced: Tensor | None
) -> Outcome:
    """Verify what was proposed and append what stands, as it is or in a graph."""
    widths, graphs = tuple(width + 1 for width in proposal.widths), batch.graphs
    packing = pack(widths, batch.state.device, 0, None if graphs is None else graphs.buckets)
    padded = proposal.padded + packing.padded
    if graphs is None:
        fitting = replace(batch, extent=batch.extent + packing.shape.width - 1)
        result = _decide(target, fitting, proposal, packing, timer, forced)
        return Outcome(result, proposal.widths, padded)
    with timer.part("verify"):
        result = _decide_in_graph(target, batch, proposal, packing, graphs, forced)
    # A later round writes over it, perhaps before this one is read.
    return Outcome(result[: len(widths)].clone(), proposal.widths, padded)


def _decide(
    target: ModelRunner,
    batch: Batch,
    proposal: Proposal,
    packing: Packing,
    parts: Parts,
    forced: Tensor | None,
) -> Tensor:
    """Verify and append; see commit for what is returned."""
    with parts.part("verify"):
        logits, plan = target.verify(batch, proposal, packing)
    with parts.part("sample"):
        verified = verify_proposals(logits, proposal, plan, batch, forced)
        return commit(verified, batch.state)


def _decide_in_graph(
    target: ModelRunner,
    batch: Batch,
    proposal: Proposal,
    packing: Packing,
    graphs: Graphs,
    forced: Tensor | None,
) -> Tensor:
    """The same, replayed; the result has padding rows behind the batch's own."""
    shape, probable = packing.shape, proposal.probable
    size = (shape.rows, shape.width - 1)
    fixed = batch.for_graph(graphs, shape.width - 1)

    def work(inputs: Sequence[Tensor], parts: Parts) -> tuple[Tensor, ...]:
        index, tokens, *laws = inputs
        again = Proposal([], tokens, laws[0] if laws else None)
        return (_decide(target, fixed, again, Packing.over(shape, index), parts, forced),)

    inputs = [(packing.index, packing.index.shape), (proposal.tokens, size)]
    if probable is not None:
        inputs.append((probable, (*size, probable.shape[2])))
    return graphs.run(("decide", shape, fixed.extent, fixed.needs), work, inputs)[0]


def _shared_noise(batch: Batch, ks: Sequence[int], vocab: int) -> Tensor | None:
    """The noise of every place that this round may fill, made once for draft and verifier."""
    packing = pack(tuple(k + 1 for k in ks), batch.state.device)
    places = batch.state.lengths[packing.token_rows] + packing.offsets
    return sampling_noise(packing.token_rows, places, batch.state, batch.needs, COUPLED, vocab)


def empty_proposal(rows: int, device: str) -> Proposal:
    """The proposal of a target-only round."""
    return Proposal([0] * rows, torch.zeros((rows, 0), dtype=torch.int64, device=device))
