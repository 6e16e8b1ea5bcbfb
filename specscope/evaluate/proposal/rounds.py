"""Rounds of experiments on mixed traffic, summed by shape."""

from __future__ import annotations

from dataclasses import dataclass

PairOfReplica = tuple[int, str, str, int]
"""Policy, replica, boot and pair: what the blocks of one pair share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSums:
    """Rounds of one block with equal batch, longest draft and query tokens.

    rounds: their number. batch, k, n_q: values of each round. n_kv, padded_tokens, prefill_tokens,
    emitted, wall_us: sums over the rounds. draft_us, verify_us: sums; None if a round does not know
    them.
    """

    policy: int
    replica: str
    boot: str
    pair: int
    arm: str
    rounds: int
    batch: int
    k: int
    n_q: int
    n_kv: int
    padded_tokens: int
    prefill_tokens: int
    emitted: int
    wall_us: float
    draft_us: float | None
    verify_us: float | None

    @property
    def key(self) -> PairOfReplica:
        """The pair that its block belongs to."""
        return self.policy, self.replica, self.boot, self.pair

    @property
    def drafted(self) -> int:
        """Draft tokens that each round verifies. [tokens]"""
        return max(0, self.n_q - self.batch)

    @property
    def short(self) -> int:
        """Draft tokens that the rows of each round lack to the longest draft. [tokens]

        An engine that pads computes them too.
        """
        return max(0, self.batch * self.k - self.drafted)
