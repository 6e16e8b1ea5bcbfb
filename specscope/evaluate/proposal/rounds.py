"""Rounds of experiments on mixed traffic, added up by their shape."""

from __future__ import annotations

from dataclasses import dataclass

PairOfReplica = tuple[int, str, str, int]
"""Policy, replica, boot and pair: what the blocks of one pair share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSums:
    """Rounds of one block that ran the same batch, longest draft and query tokens.

    rounds: how many. batch, k, n_q: of each one, as the store has them. n_kv, padded_tokens,
    prefill_tokens, emitted: sums over them. wall_us: sum. draft_us, verify_us: sums; None if one
    of the rounds does not know.
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
        """Draft tokens that each round verified. [tokens]"""
        return max(0, self.n_q - self.batch)

    @property
    def short(self) -> int:
        """Tokens by which the rows of each round draft less than the longest. [tokens]

        An engine that pads computes them nevertheless.
        """
        return max(0, self.batch * self.k - self.drafted)
