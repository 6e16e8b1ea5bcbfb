"""The facts about one arm of a segment and its `k0`: the only input of a cause's check."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from specscope.evaluate.causes.draws import Array, Draws, RoundTotals, totals
from specscope.evaluate.causes.epoch_traffic import EpochTraffic, Past
from specscope.evaluate.costs.machine import UNKNOWN, Machine
from specscope.evaluate.experiment.blocks import BlockPart
from specscope.evaluate.experiment.objectives import Objective, weight_of
from specscope.evaluate.experiment.pairs import Pair
from specscope.evaluate.experiment.segments import Segment
from specscope.evaluate.experiment.summary import ArmSummary

_PARTS = ("draft", "verify", "sample", "idle", "catchup", "prefill")


@dataclass(frozen=True, slots=True)
class TokenCost:
    """Time per output token by part of the round, each [draws]; an unknown part is None. [ms]

    If the metric is latency, it is the time of a sequence; if throughput, of the whole batch.
    """

    total: Array
    parts: Mapping[str, Array | None]

    def __getitem__(self, part: str) -> Array | None:
        return self.parts[part]

    @property
    def unaccounted(self) -> Array:
        """Time that no known part accounts for."""
        known = [time for time in self.parts.values() if time is not None]
        return np.maximum(0.0, self.total - sum(known, np.zeros_like(self.total)))


@dataclass(frozen=True, slots=True)
class Rung:
    """One draft length of a segment. n_q: query tokens of a verify pass; verify_ms: its time."""

    arm: str
    n_q: float
    verify_ms: float


@dataclass(frozen=True, slots=True)
class Facts:
    """An arm and its k0 in the pairs that ran both; arrays hold one value per draw.

    arm, base: summaries over all pairs. arm_totals, base_totals: sums over the pairs that ran both.
    arm_cost, base_cost: the same sums as time per output token. tokens, base_tokens: tokens per
    request-round. tested, kept: [draws, k] rounds that tested a draft position, and that kept it;
    None if a block lacks them. kinds: by kind of request [draws, 4] rounds, emitted, tested, kept.
    by_context: by bucket [draws, 2] rounds, emitted. ladder: all draft lengths of the segment,
    shortest verify pass first. past: the same traffic and arm in an earlier epoch. epoch_traffic:
    all traffic of this epoch.
    """

    segment: Segment
    arm: ArmSummary
    base: ArmSummary
    objective: Objective
    arm_totals: RoundTotals
    base_totals: RoundTotals
    arm_cost: TokenCost
    base_cost: TokenCost
    tokens: Array
    base_tokens: Array
    tested: Array | None
    kept: Array | None
    kinds: Mapping[str, Array]
    kinds_known: bool
    by_context: Mapping[str, Array]
    ladder: tuple[Rung, ...]
    flags: tuple[str, ...]
    epoch_traffic: EpochTraffic
    past: Past | None = None
    machine: Machine = UNKNOWN

    @property
    def k(self) -> int:
        """Draft length."""
        return self.arm.k or 0

    @property
    def speedup(self) -> Array:
        """Speedup over target-only, from the sums."""
        return self.base_cost.total / self.arm_cost.total

    @property
    def nothing(self) -> Array:
        """Zero for every draw."""
        return np.zeros_like(self.tokens)

    @property
    def prefill(self) -> Array:
        """Prefill time per output token; 0 if unknown. [ms]"""
        known = self.arm_cost["prefill"]
        return self.nothing if known is None else known

    def per_token(self, us: Array) -> Array:
        """Convert a sum of times over the arm's blocks [us] into milliseconds per output token."""
        return 1e-3 * us / _units(self.arm_totals, self.objective) / self.tokens

    def excess(self, part: str) -> Array | None:
        """Time of a part minus its time in a target-only step; None if unknown. [ms per token]"""
        own, target = self.arm_cost[part], self.base_cost[part]
        if own is None or target is None:
            return None
        return np.maximum(0.0, own - target * self.base_tokens / self.tokens)

    @property
    def unaccounted(self) -> Array:
        """Unaccounted time minus that of a target-only step: the upper limit of an unknown part.
        [ms per token]"""
        step = self.base_cost.unaccounted * self.base_tokens / self.tokens
        return np.maximum(0.0, self.arm_cost.unaccounted - step)

    def hidden(self, part: str) -> Array:
        """Upper limit of a part's time beyond a target-only step, if that time is unknown. [ms per
        token]

        It is all of the part's time if only target-only's is unknown, otherwise the unaccounted
        time."""
        own = self.arm_cost[part]
        return self.unaccounted if own is None else own

    def if_tokens(self, tokens: Array) -> Array:
        """Time saved if a round yielded this many tokens at its present cost. [ms per token]"""
        decode = self.arm_cost.total - self.prefill
        return decode * np.maximum(0.0, 1.0 - self.tokens / np.maximum(tokens, self.tokens))

    @property
    def break_even(self) -> Array:
        """Tokens per round at which the arm equals target-only, with prefill at its present
        cost."""
        spare = self.base_cost.total - self.prefill
        with np.errstate(divide="ignore"):
            return self.tokens * (self.arm_cost.total - self.prefill) / np.maximum(spare, 0.0)

    @property
    def target_step(self) -> Array:
        """Time of a target-only step without prefill. [us]"""
        prompts = self.base_totals.prefill_us
        return (self.base_totals.wall_us - (0.0 if prompts is None else prompts)) / (
            self.base_totals.rounds
        )


def gather(
    segment: Segment,
    pairs: Sequence[Pair],
    arm: ArmSummary,
    arms: Sequence[ArmSummary],
    base: ArmSummary,
    *,
    objective: Objective,
    flags: Sequence[str],
    epoch_traffic: EpochTraffic,
    past: Past | None,
    machine: Machine,
) -> Facts | None:
    """Facts of one speculative arm; None if no pair ran both the arm and k0."""
    both = [pair for pair in pairs if arm.arm in pair.blocks and base.arm in pair.blocks]
    if not both:
        return None
    draws = Draws(len(both))
    arm_totals = totals(draws, [pair.blocks[arm.arm] for pair in both])
    base_totals = totals(draws, [pair.blocks[base.arm] for pair in both])
    parts = [pair.parts.get(arm.arm, ()) for pair in both]
    tested, kept = _positions(draws, parts, arm.k or 0)
    kinds = sorted({kind for rows in parts for part in rows for kind in part.kinds})
    buckets = sorted({part.context_bucket for rows in parts for part in rows})
    return Facts(
        segment=segment,
        arm=arm,
        base=base,
        objective=objective,
        arm_totals=arm_totals,
        base_totals=base_totals,
        arm_cost=_token_cost(arm_totals, objective),
        base_cost=_token_cost(base_totals, objective),
        tokens=arm_totals.emitted / arm_totals.request_rounds,
        base_tokens=base_totals.emitted / base_totals.request_rounds,
        tested=tested,
        kept=kept,
        kinds={kind: draws.sums(_of_kind(parts, kind)) for kind in kinds},
        kinds_known=bool(kinds) or not any(parts),
        by_context={name: draws.sums(_of_bucket(parts, name)) for name in buckets},
        ladder=_ladder(pairs, arms),
        flags=tuple(flags),
        epoch_traffic=epoch_traffic,
        past=past,
        machine=machine,
    )


def _units(ran: RoundTotals, objective: Objective) -> Array:
    """Number of units that share the total time of the rounds.

    For latency it is the number of rounds, since each sequence waits for the whole round. For
    throughput it is the number of request-rounds. Between the two, it is their weighted geometric
    mean.
    """
    weight = weight_of(objective)
    return ran.rounds ** (1.0 - weight) * ran.request_rounds**weight


def _token_cost(ran: RoundTotals, objective: Objective) -> TokenCost:
    scale = 1e-3 / _units(ran, objective) * ran.request_rounds / ran.emitted
    times = {part: getattr(ran, f"{part}_us") for part in _PARTS}
    return TokenCost(
        total=scale * ran.wall_us,
        parts={part: None if us is None else scale * us for part, us in times.items()},
    )


def _positions(
    draws: Draws, parts: Sequence[tuple[BlockPart, ...]], k: int
) -> tuple[Array | None, Array | None]:
    tested, kept = np.zeros((len(parts), k)), np.zeros((len(parts), k))
    for place, rows in enumerate(parts):
        for part in rows:
            for counts, table in ((part.tested, tested), (part.kept, kept)):
                table[place, : len(counts[:k])] += counts[:k]
    if not tested.any() or (kept > tested).any():
        return None, None
    return draws.sums(tested), draws.sums(kept)


def _of_kind(parts: Sequence[tuple[BlockPart, ...]], name: str) -> Array:
    table = np.zeros((len(parts), 4))
    for place, rows in enumerate(parts):
        for part in rows:
            columns = part.kind_rounds, part.kind_emitted, part.kind_tested, part.kind_kept
            for kind, *counts in zip(part.kinds, *columns, strict=True):
                if kind == name:
                    table[place] += counts
    return table


def _of_bucket(parts: Sequence[tuple[BlockPart, ...]], name: str) -> Array:
    table = np.zeros((len(parts), 2))
    for place, rows in enumerate(parts):
        for part in rows:
            if part.context_bucket == name:
                table[place] += part.request_rounds, part.emitted
    return table


def _ladder(pairs: Sequence[Pair], arms: Iterable[ArmSummary]) -> tuple[Rung, ...]:
    rungs = []
    for arm in arms:
        blocks = [pair.blocks[arm.arm] for pair in pairs if arm.arm in pair.blocks]
        rounds = sum(block.rounds for block in blocks)
        times = [block.verify_us for block in blocks]
        if rounds and all(times):
            positions = sum(block.n_q + block.padded_tokens for block in blocks)
            verify_ms = 1e-3 * sum(time for time in times if time) / rounds
            rungs.append(Rung(arm.arm, positions / rounds, verify_ms))
    return tuple(sorted(rungs, key=lambda rung: rung.n_q))
