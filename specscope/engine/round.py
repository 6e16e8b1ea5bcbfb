"""One round on the device: catch up, draft, verify, accept. The host is never waited for.

Everything that decides shapes (rows, k, the bound on lengths) is known on the host beforehand;
everything that depends on tokens stays on the device.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from specscope.engine.draft import Batch, Drafter, Proposal
from specscope.engine.layout import Layout, lay_out, pack
from specscope.engine.model import Decoder, KVCache
from specscope.engine.noise import COUPLED
from specscope.engine.sample import draw_noise
from specscope.engine.state import BatchState
from specscope.engine.timing import Timer
from specscope.engine.transfer import send
from specscope.engine.verify import commit, judge


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a round leaves: a tensor to read back, and what the host knew already."""

    result: Tensor  # [rows, K + 3], see commit
    widths: list[int]  # proposals per row
    padded: int


@dataclass(frozen=True, slots=True)
class Target:
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
            self.model(state.tok[plan.token_rows, plan.positions], self.cache, plan)

    def verify(self, batch: Batch, proposal: Proposal) -> tuple[Tensor, Layout]:
        """Logits [N, vocab] of every row's pending token and its proposals."""
        state, rows = batch.state, len(proposal.widths)
        packing = pack(tuple(width + 1 for width in proposal.widths), state.device)
        start = state.ln[:rows, None] - 1
        inputs = torch.cat((state.tok[:rows].gather(1, start), proposal.tokens), 1)
        positions = start[packing.token_rows, 0] + packing.offsets
        fed = inputs[packing.token_rows, packing.offsets]
        extent = batch.extent + packing.width - 1
        plan = lay_out(packing, positions, extent, self.model.config, self.model.dtype)
        return self.model.logits(self.model(fed, self.cache, plan)), plan


@torch.inference_mode()
def run_round(
    target: Target,
    drafter: Drafter,
    batch: Batch,
    ks: Sequence[int],
    timer: Timer,
    forced: Tensor | None = None,
) -> Outcome:
    """Draft up to ks[r] tokens for each row r, verify them, and append what stands."""
    proposal = no_proposal(len(ks), batch.state.device)
    if any(ks):
        if drafter.behind(ks):
            with timer.part("catchup"):
                drafter.catch_up(batch, ks)
        if drafter.draws and batch.needs.noise and not batch.needs.rejection:
            with timer.part("sample"):
                batch = replace(batch, noise=_shared_noise(batch, ks, target.model.config.vocab))
        with timer.part("draft"):
            proposal = drafter.propose(batch, ks)
    with timer.part("verify"):
        logits, plan = target.verify(batch, proposal)
    with timer.part("sample"):
        verdict = judge(logits, proposal, plan, batch, forced)
        result = commit(verdict, batch.state)
    return Outcome(result, proposal.widths, proposal.padded + plan.packing.padded)


def _shared_noise(batch: Batch, ks: Sequence[int], vocab: int) -> Tensor | None:
    """The noise of every place that this round may fill, made once for draft and verifier."""
    packing = pack(tuple(k + 1 for k in ks), batch.state.device)
    places = batch.state.ln[packing.token_rows] + packing.offsets
    return draw_noise(packing.token_rows, places, batch.state, batch.needs, COUPLED, vocab)


def no_proposal(rows: int, device: str) -> Proposal:
    """The proposal of a target-only round."""
    counts = torch.zeros(rows, dtype=torch.int64, device=device)
    return Proposal([0] * rows, counts, counts.new_zeros((rows, 0)))
