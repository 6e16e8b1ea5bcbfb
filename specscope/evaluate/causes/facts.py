"""What is known about one arm of a segment beside its `k0`: all that a cause may look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specscope.evaluate.causes.surroundings import Surroundings
from specscope.evaluate.costs.machine import UNKNOWN, Machine
from specscope.evaluate.experiment.blocks import BlockPart, BlockTime, merge_blocks
from specscope.evaluate.experiment.pairs import Pair
from specscope.evaluate.experiment.summary import ArmSummary


@dataclass(frozen=True, slots=True)
class TokenCost:
    """Time per output token by part, and tokens per round. Unknown parts are None. [ms]"""

    tokens_per_round: float
    total: float
    draft: float | None
    verify: float | None
    idle: float | None
    sample: float | None
    prefill: float | None = None
    catchup: float = 0.0

    @property
    def verify_per_round(self) -> float | None:
        """Verify time of a request-round. [ms]"""
        return None if self.verify is None else self.verify * self.tokens_per_round

    @property
    def sample_per_round(self) -> float | None:
        """Sampling time of a request-round. [ms]"""
        return None if self.sample is None else self.sample * self.tokens_per_round


@dataclass(frozen=True, slots=True)
class Rung:
    """One draft length of a segment. n_q: positions of a verify pass; verify_ms: its time."""

    arm: str
    n_q: float
    verify_ms: float


@dataclass(frozen=True, slots=True)
class Facts:
    """An arm and its k0 in the same pairs' segment.

    ran, base_ran: sums over their blocks. mine, target: the same as time per output token.
    parts: of this arm. ladder: all draft lengths of the segment, shortest verify pass first.
    elsewhere: the other traffic of the epoch.
    """

    class_: str | None
    arm: ArmSummary
    base: ArmSummary
    ran: BlockTime
    base_ran: BlockTime
    mine: TokenCost
    target: TokenCost
    parts: tuple[BlockPart, ...]
    ladder: tuple[Rung, ...]
    flags: tuple[str, ...]
    elsewhere: Surroundings
    machine: Machine = UNKNOWN

    @property
    def speedup(self) -> float:
        """As the sums have it."""
        return self.target.total / self.mine.total

    def per_token(self, ms: float) -> float:
        """Milliseconds over all blocks of the arm, as milliseconds an output token."""
        return ms / self.ran.emitted

    def if_tokens(self, tokens: float) -> float:
        """What would be saved if a round yielded so many tokens for its price. [ms a token]"""
        decode = self.mine.total - (self.mine.prefill or 0.0)
        return decode * max(0.0, 1.0 - self.mine.tokens_per_round / tokens)

    @property
    def verify_excess(self) -> float | None:
        """Verify time beyond that of a target-only step. [ms a token] None where not known."""
        mine, target = self.mine.verify_per_round, self.target.verify_per_round
        if mine is None or target is None:
            return None
        return max(0.0, mine - target) / self.mine.tokens_per_round


def gather(
    class_: str | None,
    pairs: Sequence[Pair],
    arms: Sequence[ArmSummary],
    base: ArmSummary,
    flags: Sequence[str],
    elsewhere: Surroundings,
    machine: Machine,
) -> list[Facts]:
    """Facts of every speculative arm of a segment, in the order of `arms`."""
    sums = {arm.arm: total(pairs, arm.arm) for arm in arms}
    ladder = tuple(sorted(_rungs(sums), key=lambda rung: rung.n_q))
    return [
        Facts(
            class_=class_,
            arm=arm,
            base=base,
            ran=sums[arm.arm],
            base_ran=sums[base.arm],
            mine=token_cost(arm),
            target=token_cost(base),
            parts=tuple(part for pair in pairs for part in pair.parts.get(arm.arm, ())),
            ladder=ladder,
            flags=tuple(flags),
            elsewhere=elsewhere,
            machine=machine,
        )
        for arm in arms
        if arm.k
    ]


def total(pairs: Sequence[Pair], arm: str) -> BlockTime:
    """Sum of an arm's blocks; what one of them does not know is unknown."""
    return merge_blocks([pair.blocks[arm] for pair in pairs if arm in pair.blocks])


def token_cost(arm: ArmSummary) -> TokenCost:
    """Parts of an arm's time per output token; catch-up belongs to the draft."""
    known = arm.ms_per_token
    draft, catchup = known.get("draft"), known.get("catchup", 0.0)
    return TokenCost(
        tokens_per_round=arm.tokens_per_round.value,
        total=1e3 / arm.tokens_per_s,
        draft=None if draft is None else draft + catchup,
        verify=known.get("verify"),
        idle=known.get("idle"),
        sample=known.get("sample"),
        prefill=known.get("prefill"),
        catchup=catchup,
    )


def _rungs(sums: Mapping[str, BlockTime]) -> list[Rung]:
    return [
        Rung(arm, (ran.n_q + ran.padded_tokens) / ran.rounds, 1e-3 * ran.verify_us / ran.rounds)
        for arm, ran in sums.items()
        if ran.rounds > 0 and ran.verify_us
    ]
