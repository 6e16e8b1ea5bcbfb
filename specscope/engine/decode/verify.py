"""Verification: how many proposals each row accepts, and the token that follows them.

Greedy, coupled and rejection rows share a batch. Everything stays on the device.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from specscope.engine.decode.batch import Batch, BatchState
from specscope.engine.decode.drafters.drafter import Proposal
from specscope.engine.decode.sampler import (
    ACCEPT,
    RESIDUAL,
    SYNTHETIC,
    gumbel,
    key,
    noise_of,
    sample,
    sampling_scores,
    uniform,
)
from specscope.engine.model.layout import Layout


@dataclass(frozen=True, slots=True)
class VerifiedBlocks:
    """How many proposals each row accepts, and the block that starts with them."""

    accepted: Tensor  # [rows] 0..k
    block: Tensor  # [rows, K + 1]; entries behind `accepted` mean nothing
    live: Tensor | None = None  # [rows] false for padding rows


def verify_proposals(
    logits: Tensor,
    proposal: Proposal,
    plan: Layout,
    batch: Batch,
    forced: Tensor | None = None,
) -> VerifiedBlocks:
    """Accept the longest prefix of each row's proposals that keeps the target's distribution.

    logits: [N, vocab] of the packed tokens of `plan`, whose rows bring their k + 1 inputs
    forced: [k_max] conditional acceptance by position, which replaces the true test: the load is
    real, the text is not the target's any more.

    Sources: rejection Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1; coupled Daliri et
    al. 2024 (arXiv 2408.07978).
    """
    packing, state, needs = plan.packing, batch.state, batch.needs
    rectangle, proposed = packing.rectangle, packing.last
    rows, width = rectangle.rows, rectangle.width
    live = proposed >= 0 if packing.shape.padded else None
    token_rows = slice(0, rows) if packing.whole and width == 1 else packing.token_rows
    scores = sampling_scores(logits, token_rows, state, needs)
    noise = noise_of(packing, state, needs, logits.shape[-1])
    own = rectangle.pad(sample(scores, noise)).view(rows, width)
    if width == 1:
        return VerifiedBlocks(torch.zeros_like(proposed), own, live)
    drafted = state.tokens[:rows].gather(1, _places(state, rows, width - 1))
    test = drafted == own[:, :-1]
    probable = None
    if needs.rejection:
        probable = rectangle.pad(scores.softmax(-1)).view(rows, width, -1)
        kept = _rejection_test(probable, drafted, proposal, state)
        test = torch.where(state.rejection[:rows, None], kept, test)
    if forced is not None:
        test = _uniform(state, rows, width - 1, SYNTHETIC) < forced[: width - 1]
    if packing.whole is None:
        test = test & (state.places[: width - 1] < proposed[:, None])
    accepted = test.cumprod(1).sum(1)
    if probable is None and forced is None:
        # What was accepted is what the target chose itself.
        return VerifiedBlocks(accepted, own, live)
    after = own.gather(1, accepted[:, None])
    if probable is not None:
        redrawn = _redraw(probable, drafted, proposal, (accepted, proposed), state)
        after = torch.where(state.rejection[:rows, None], redrawn[:, None], after)
    block = torch.cat((drafted, after), 1).scatter(1, accepted[:, None], after)
    return VerifiedBlocks(accepted, block, live)


def commit(verified: VerifiedBlocks, state: BatchState, ends: bool = True) -> Tensor:
    """Append each row's emitted tokens and return what happened: [rows, K + 3] int64.

    Columns: accepted, emitted, then the block. A block is cut behind the first end-of-text token
    (unless `ends` says that no row has one), then at the length limit: an end of text on the last
    allowed place is still an end of text. Padding rows stay as they are.
    """
    rows, width = verified.block.shape
    room, block = state.room[:rows], verified.block
    emitted = torch.minimum(verified.accepted + 1, room)
    if verified.live is not None:
        emitted *= verified.live
    room.sub_(emitted)
    if ends:
        # An end behind the accepted tokens is beyond `emitted` and cuts nothing.
        ending = (block[:, :, None] == state.eos[:rows, None, :]).any(-1)
        before = torch.where(ending, state.places[:width], width).amin(1)
        room.masked_fill_(before < emitted, 0)
        emitted = torch.minimum(emitted, before + 1)
    state.tokens[:rows].scatter_(1, _places(state, rows, width), block)
    state.lengths[:rows] += emitted
    return torch.cat((verified.accepted[:, None], emitted[:, None], block), 1)


def _rejection_test(
    probable: Tensor, drafted: Tensor, proposal: Proposal, state: BatchState
) -> Tensor:
    """u q < p for each proposal; u is never 0, so tokens that the target excludes are never
    accepted."""
    p = probable[:, :-1].gather(2, drafted[:, :, None]).squeeze(2)
    u = _uniform(state, drafted.shape[0], drafted.shape[1], ACCEPT)
    if proposal.laws is None:
        return u < p
    laws = proposal.laws[: drafted.shape[0], : drafted.shape[1]]
    q = laws.gather(2, drafted[:, :, None]).squeeze(2)
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
        if proposal.laws is None:
            token = drafted.gather(1, place)
            q = torch.zeros_like(p).scatter_(1, token, 1.0)
        else:
            laws = proposal.laws[:rows]
            q = laws.gather(1, place[:, :, None].expand(-1, 1, vocab)).squeeze(1)
        rejected = (accepted < proposed)[:, None]
        excess = (p - q.to(p.dtype)).clamp(min=0)
        # If rounding leaves no excess the two laws are one, and the target's serves.
        p = torch.where(rejected & (excess.sum(1, keepdim=True) > 0), excess, p)
    keys = key(state.seed[:rows], state.lengths[:rows] + accepted, RESIDUAL)
    return (p.log() + gumbel(keys, vocab)).argmax(-1)


def _places(state: BatchState, rows: int, width: int) -> Tensor:
    """[rows, width] the positions behind each row's text."""
    return state.lengths[:rows, None] + state.places[:width]


def _uniform(state: BatchState, rows: int, width: int, stream: int) -> Tensor:
    """[rows, width] for the positions behind each row's text."""
    return uniform(key(state.seed[:rows, None], _places(state, rows, width), stream))
