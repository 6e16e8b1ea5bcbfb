"""The drafter interface, and the proposals that a drafter returns."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from specscope.engine.decode.batch import Batch
from specscope.engine.model.decoder import Decoder
from specscope.engine.model.device import send


@dataclass(frozen=True, slots=True)
class Proposal:
    """The proposals for rows 0 .. R - 1 of a batch."""

    widths: list[int]  # proposals per row
    tokens: Tensor | None  # [R, K]; None if the drafter wrote them behind the texts itself
    laws: Tensor | None = None  # [>= R, >= K, vocab] they were drawn from; None: certain tokens
    padding: int = 0  # query positions computed for nothing


class Drafter:
    """Propose up to k tokens per row; rows are dense and move when an earlier one leaves.

    Only `propose` is required; the other methods are for drafters with state.
    """

    reads_texts = False
    """Whether `texts` must be up to date, so that results are collected before drafting."""
    draws = False
    """Whether it always draws k tokens, with the rows' noise."""
    features: Tensor | None = None
    """Where it wants the target's hidden states, see ModelRunner; made by `open`."""

    def check(self, target: Decoder, positions: int) -> None:
        """Raise if it cannot draft for `target` up to this number of positions."""

    def open(self, rows: int, capacity: int, k_max: int, device: str) -> None:
        """Allocate memory; called once by the engine."""

    def admitted(self, row: int, prompt: Sequence[int]) -> None:
        """`row` now holds a new text."""

    def behind(self, ks: Sequence[int]) -> bool:  # noqa: ARG002
        """Whether a row with k > 0 has unread text."""
        return False

    def catch_up(self, batch: Batch, ks: Sequence[int]) -> None:
        """Read it."""

    def propose(self, batch: Batch, ks: Sequence[int]) -> Proposal:
        """At most ks[r] tokens for row r."""
        raise NotImplementedError

    def advanced(self, ks: Sequence[int]) -> None:
        """A round with these proposals was verified."""

    def moved(self, sources: Sequence[int], targets: Sequence[int], positions: int) -> None:
        """Move rows over others simultaneously; positions: upper limit of their used positions."""


def move_items(items: list[Any], sources: Sequence[int], targets: Sequence[int]) -> None:
    """Copy items of a list over others, all at once."""
    for row, item in zip(targets, [items[row] for row in sources], strict=True):
        items[row] = item


class NoDrafter(Drafter):
    """Target-only decoding: never propose a token."""

    def propose(self, batch: Batch, ks: Sequence[int]) -> Proposal:  # noqa: ARG002
        """No token for any row."""
        return Proposal([0] * len(ks), None)


class DummyDrafter(Drafter):
    """Propose token 0, in place of drafters that need texts."""

    def __init__(self, device: str) -> None:
        self.device = device

    def propose(self, batch: Batch, ks: Sequence[int]) -> Proposal:  # noqa: ARG002
        """k tokens for each row."""
        return host_proposal([[0] * k for k in ks], self.device)


def host_proposal(proposals: Sequence[Sequence[int]], device: str) -> Proposal:
    """Proposals of a host-side drafter as tensors, each with probability 1."""
    widths = [len(tokens) for tokens in proposals]
    most = max(widths, default=0)
    padded = [[*tokens, *[0] * (most - len(tokens))] for tokens in proposals]
    return Proposal(widths, send(padded, device).view(len(widths), most))


def pause(microseconds: float) -> None:
    """Wait on the host, with an error of a few microseconds."""
    until = time.perf_counter() + microseconds * 1e-6
    if microseconds > 300:
        time.sleep((microseconds - 200) * 1e-6)
    while time.perf_counter() < until:
        pass
