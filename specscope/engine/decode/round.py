"""One round: catch up, draw noise, draft, verify, commit; eagerly or as CUDA graphs.

Proposals lie in `state.tokens` behind each row's text, where the verifier reads them. Noise for all
tokens that a round may emit is drawn once and shared by draft and verification.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specscope.engine.decode.batch import Batch, BatchState
from specscope.engine.decode.drafters.drafter import Drafter, Proposal
from specscope.engine.decode.graphs import Graphs
from specscope.engine.decode.model_runner import ModelRunner
from specscope.engine.decode.sampler import draw_noise
from specscope.engine.decode.timing import Parts, Timer
from specscope.engine.decode.verify import commit, verify_proposals
from specscope.engine.model.layout import Packing, pack


@dataclass(frozen=True, slots=True)
class Outcome:
    """A launched round: the tensor to read back, and what the host knows already."""

    result: Tensor  # [rows, K + 3], see commit
    widths: list[int]  # proposals per row
    padding: int


@torch.inference_mode()
def run_round(
    target: ModelRunner,
    drafter: Drafter,
    batch: Batch,
    ks: Sequence[int],
    timer: Timer,
    forced: Tensor | None = None,
) -> Outcome:
    """Draft up to ks[r] tokens for each row r, verify them, and append the accepted ones."""
    if any(ks) and drafter.behind(ks):
        with timer.part("catchup"):
            drafter.catch_up(batch, ks)
    state, graphs = batch.state, batch.graphs
    buckets = None if graphs is None else graphs.buckets
    proposal, packing = Proposal([0] * len(ks), None), None
    if any(ks):
        if drafter.draws:
            packing = pack(tuple(k + 1 for k in ks), state.device, 0, buckets)
            _prepare_noise(target, batch, packing, timer)
        with timer.part("draft"):
            proposal = drafter.propose(batch, ks)
            if proposal.tokens is not None:
                place_proposals(proposal.tokens, state)
    if packing is None:
        # Only now is it known how many tokens a drafter that may propose fewer has proposed.
        packing = pack(tuple(width + 1 for width in proposal.widths), state.device, 0, buckets)
        _prepare_noise(target, batch, packing, timer)
    padding = proposal.padding + packing.padding
    if graphs is None:
        extent = batch.extent + packing.shape.width - 1
        result = _verify(target, batch, extent, proposal, packing, timer, forced)
        return Outcome(result, proposal.widths, padding)
    with timer.part("verify"):
        result = _verify_in_graph(target, batch, proposal, packing, graphs, forced)
    # Clone: the next replay overwrites the graph's output, perhaps before this one is read.
    return Outcome(result[: len(ks)].clone(), proposal.widths, padding)


def place_proposals(tokens: Tensor, state: BatchState) -> None:
    """Write proposals [R, K] behind the texts of rows 0 .. R - 1."""
    rows, ahead = tokens.shape
    if ahead:
        places = state.lengths[:rows, None] + state.places[:ahead]
        state.tokens[:rows].scatter_(1, places, tokens)


def _prepare_noise(target: ModelRunner, batch: Batch, packing: Packing, timer: Timer) -> None:
    """The noise of every token that this round may emit; see draw_noise."""
    state, graphs, vocab = batch.state, batch.graphs, target.model.config.vocab
    if not batch.needs.noise:
        return
    with timer.part("sample"):
        if graphs is None:
            draw_noise(packing, state, batch.needs, vocab)
            return
        shape, needs = packing.shape, batch.for_graph(graphs, 0).needs

        def work(inputs: Sequence[Tensor], parts: Parts) -> tuple[Tensor, ...]:
            with parts.part("sample"):
                draw_noise(Packing.over(shape, inputs[0]), state, needs, vocab)
            return ()

        graphs.run(("noise", shape, needs), work, [(packing.index, packing.index.shape)])


def _verify(
    target: ModelRunner,
    batch: Batch,
    extent: int,
    proposal: Proposal,
    packing: Packing,
    parts: Parts,
    forced: Tensor | None,
) -> Tensor:
    """Verify and append; see commit for the result."""
    with parts.part("verify"):
        logits, plan = target.verify(batch, packing, extent)
    with parts.part("sample"):
        verified = verify_proposals(logits, proposal, plan, batch, forced)
        return commit(verified, batch.state, batch.needs.eos)


def _verify_in_graph(
    target: ModelRunner,
    batch: Batch,
    proposal: Proposal,
    packing: Packing,
    graphs: Graphs,
    forced: Tensor | None,
) -> Tensor:
    """`_verify` as a CUDA graph; the result ends with padding rows."""
    shape, fixed = packing.shape, batch.for_graph(graphs, packing.shape.width - 1)
    drawn = Proposal([], None, proposal.laws)

    def work(inputs: Sequence[Tensor], parts: Parts) -> tuple[Tensor, ...]:
        again = Packing.over(shape, inputs[0])
        return (_verify(target, fixed, fixed.extent, drawn, again, parts, forced),)

    key = ("verify", shape, fixed.extent, fixed.needs)
    return graphs.run(key, work, [(packing.index, packing.index.shape)])[0]
