"""Verification: how many proposals each row accepts, and the token that follows them.

Greedy, coupled and rejection rows share a batch. Everything stays on the device."""

from dataclasses import dataclass

import torch
from torch import Tensor

from specscope.engine.decode.batch import Batch, BatchState
from specscope.engine.decode.drafters.drafter import Proposal
from specscope.engine.decode.sampler import (
    ACCEPT,
    RESIDUAL,
    SYNTHETIC,
    choose,
    gumbel,
    key,
    sampling_noise,
    sampling_scores,
    uniform,
)
from specscope.engine.model.layout import Layout


@dataclass(frozen=True, slots=True)
class VerifiedBlocks:
    """Of each row: how many proposals stand, and the block with the token after them in place."""

    accepted: Tensor  # [rows] 0..k
    block: Tensor  # [rows, K + 1]; entries behind `accepted` mean nothing
    live: Tensor | None = None  # [rows] false where a batch was filled up with padding rows


def verify_proposals(
    logits: Tensor,
    proposal: Proposal,
    plan: Layout,
    batch: Batch,
    forced: Tensor | None = None,
) -> VerifiedBlocks:
    """Keep the longest prefix of each row's proposals that leaves its law the target's.

    logits: [N, vocab] of the packed tokens of `plan`, whose rows bring their k + 1 inputs
    forced: [k_max] conditional acceptance by position, which replaces the true test: the load is
    real and the text is not the target's any more.

    Sources: rejection Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1; coupled Daliri et
    al. 2024 (arXiv 2408.07978).
    """
    rows, width, proposed = plan.rows, plan.width, plan.packing.last
    live = proposed >= 0 if plan.packing.shape.filled else None
    state, needs, noise = batch.state, batch.needs, batch.noise
    scores = sampling_scores(logits, plan.token_rows, state, needs)
    if noise is None:
        places, vocab = plan.positions + 1, logits.shape[-1]
        noise = sampling_noise(plan.token_rows, places, state, needs, RESIDUAL, vocab)
    own = plan.pad(choose(scores, noise)).view(rows, width)
    if width == 1:
        return VerifiedBlocks(torch.zeros_like(state.lengths[:rows]), own, live)
    drafted = proposal.tokens[:, : width - 1]
    index = torch.arange(width - 1, device=logits.device)
    test = drafted == own[:, :-1]
    probable = None
    if needs.rejection:
        probable = plan.pad(scores.softmax(-1)).view(rows, width, -1)
        kept = _rejection_test(probable, drafted, proposal, state)
        test = torch.where(state.rejection[:rows, None], kept, test)
    if forced is not None:
        test = _uniform(state, rows, width - 1, SYNTHETIC) < forced[: width - 1]
    accepted = (test & (index < proposed[:, None])).long().cumprod(1).sum(1)
    after = own.gather(1, accepted[:, None])
    if probable is not None:
        redrawn = _redraw(probable, drafted, proposal, (accepted, proposed), state)
        after = torch.where(state.rejection[:rows, None], redrawn[:, None], after)
    block = torch.cat((drafted, after), 1).scatter(1, accepted[:, None], after)
    return VerifiedBlocks(accepted, block, live)


def commit(verified: VerifiedBlocks, state: BatchState) -> Tensor:
    """Append each row's emitted tokens and tell what happened: [rows, K + 3] int64.

    Columns: accepted, emitted, then the block. A block is cut behind the first end-of-text token,
    then at the length limit: an end of text on the last allowed place is still an end of text.
    Padding rows stay as they are.
    """
    rows, width = verified.block.shape
    ln, block = state.lengths[:rows], verified.block
    index = torch.arange(width, device=block.device)
    ending = (block[:, :, None] == state.eos[:rows, None, :]).any(-1)
    ending = ending & (index <= verified.accepted[:, None])
    first = torch.where(ending, index, width).amin(1)
    emitted = torch.minimum(verified.accepted, first) + 1
    emitted = torch.minimum(emitted, state.limit[:rows] - ln) * state.alive[:rows]
    if verified.live is not None:
        emitted = emitted * verified.live
    state.alive[:rows] &= (first >= emitted) & (ln + emitted < state.limit[:rows])
    state.tokens[:rows].scatter_(1, ln[:, None] + index, block)
    ln += emitted
    return torch.cat((verified.accepted[:, None], emitted[:, None], block), 1)


def _rejection_test(
    probable: Tensor, drafted: Tensor, proposal: Proposal, state: BatchState
) -> Tensor:
    """u q < p for each proposal; u is never 0, so what the target excludes is never kept."""
    p = probable[:, :-1].gather(2, drafted[:, :, None]).squeeze(2)
    u = _uniform(state, drafted.shape[0], drafted.shape[1], ACCEPT)
    if proposal.probable is None:
        return u < p
    q = proposal.probable[:, : drafted.shape[1]].gather(2, drafted[:, :, None]).squeeze(2)
    return u * q < p


def _redraw(
    probable: Tensor,
    drafted: Tensor,
    proposal: Proposal,
    counts: tuple[Tensor, Tensor],
    state: BatchState,
) -> Tensor:
    """[rows] from the excess of target over draft at the first rejection, or the target's bonus.

    counts: accepted and proposed tokens of each row.
    """
    rows, width, vocab = probable.shape
    accepted, proposed = counts
    p = probable.gather(1, accepted[:, None, None].expand(-1, 1, vocab)).squeeze(1)
    if width > 1:
        place = accepted.clamp(max=width - 2)[:, None]
        if proposal.probable is None:
            token = drafted.gather(1, place)
            q = torch.zeros_like(p).scatter_(1, token, 1.0)
        else:
            q = proposal.probable.gather(1, place[:, :, None].expand(-1, 1, vocab)).squeeze(1)
        rejected = (accepted < proposed)[:, None]
        excess = (p - q.to(p.dtype)).clamp(min=0)
        # Where rounding leaves no excess the two laws are one, and the target's serves.
        p = torch.where(rejected & (excess.sum(1, keepdim=True) > 0), excess, p)
    keys = key(state.seed[:rows], state.lengths[:rows] + accepted, RESIDUAL)
    return (p.log() + gumbel(keys, vocab)).argmax(-1)


def _uniform(state: BatchState, rows: int, width: int, stream: int) -> Tensor:
    """[rows, width] for the places behind each row's text."""
    places = state.lengths[:rows, None] + torch.arange(width, device=state.device)
    return uniform(key(state.seed[:rows, None], places, stream))
