"""Why speculation loses: one part at a time is repaired on paper, and the verdict looked at again.

speedup = t_0 / t_k, both times per output token of the same pairs, split into their parts. The
primary cause is the part whose repair alone turns the loss into a gain; of several, the one
that gains most. Where none does, there is no single fix. Signatures (see `signatures`) then say
more exactly what is behind the part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specscope.evaluate.signatures import Signature
from specscope.evaluate.summary import ArmSummary

ACCEPTANCE, DRAFT, VERIFY, IDLE, SAMPLING = (
    "low_acceptance",
    "draft_cost",
    "verify_cost",
    "idle",
    "sampling",
)
NO_SINGLE_FIX = "no_single_fix"


@dataclass(frozen=True, slots=True)
class Repair:
    """One part repaired on paper. speedup: what the arm would reach; flips: from loss to gain."""

    cause: str
    speedup: float
    flips: bool
    evidence: str

    def log_gain(self, measured: float) -> float:
        """log of the gain over the measured speedup."""
        return math.log(self.speedup / measured)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Causes of one losing arm, the largest gain first, and signatures that were seen.

    primary: a cause, the code of the signature that explains it, or `no_single_fix`; None
    where the arm does not lose.
    """

    arm: str
    speedup: float
    primary: str | None
    repairs: tuple[Repair, ...]
    signatures: tuple[Signature, ...]


@dataclass(frozen=True, slots=True)
class TokenCost:
    """Time per output token by part, and tokens per round. Unknown parts are None. [ms]"""

    tokens_per_round: float
    total: float
    draft: float | None
    verify: float | None
    idle: float | None
    sample: float | None
    prefill: float = 0.0

    @property
    def verify_per_round(self) -> float | None:
        """Verify time of a request-round. [ms]"""
        return None if self.verify is None else self.verify * self.tokens_per_round

    @property
    def sample_per_round(self) -> float | None:
        """Sampling time of a request-round. [ms]"""
        return None if self.sample is None else self.sample * self.tokens_per_round


def token_cost(arm: ArmSummary) -> TokenCost:
    """Parts of an arm's time per output token; catch-up belongs to the draft."""
    known = arm.ms_per_token
    draft = known.get("draft")
    if draft is not None:
        draft += known.get("catchup", 0.0)
    return TokenCost(
        tokens_per_round=arm.tokens_per_round.value,
        total=1e3 / arm.tokens_per_s,
        draft=draft,
        verify=known.get("verify"),
        idle=known.get("idle"),
        sample=known.get("sample"),
        prefill=known.get("prefill", 0.0),
    )


def repairs(arm: TokenCost, base: TokenCost, healthy_tokens: float | None) -> list[Repair]:
    """Every part of an arm repaired alone: free draft; a verify pass and sampling at the price
    of a target-only step; no gaps; and acceptance as it is where the draft does well.

    healthy_tokens: tokens per round of the same arm in a healthy period or on other traffic;
    None where nothing healthier is known. Largest speedup first.
    """
    saved: dict[str, tuple[float, str]] = {}
    if arm.draft:
        saved[DRAFT] = (arm.draft, f"draft takes {arm.draft / arm.total:.0%} of the time")
    for cause, mine, target in (
        (VERIFY, arm.verify_per_round, base.verify_per_round),
        (SAMPLING, arm.sample_per_round, base.sample_per_round),
    ):
        if mine is not None and target is not None and mine > target:
            extra = (mine - target) / arm.tokens_per_round
            what = "verify" if cause == VERIFY else "sampling"
            saved[cause] = (extra, f"{what} takes {mine:.3g} ms, target-only {target:.3g} ms")
    if arm.idle:
        saved[IDLE] = (arm.idle, f"idle between the parts {arm.idle / arm.total:.0%} of the time")
    if healthy_tokens is not None and healthy_tokens > arm.tokens_per_round:
        decode = arm.total - arm.prefill
        saved[ACCEPTANCE] = (
            decode * (1.0 - arm.tokens_per_round / healthy_tokens),
            f"{arm.tokens_per_round:.2f} tokens a round where {healthy_tokens:.2f} are reached "
            "elsewhere",
        )
    measured = base.total / arm.total
    found = []
    for cause, (time, evidence) in saved.items():
        repaired = base.total / max(arm.total - time, 1e-9 * arm.total)
        found.append(Repair(cause, repaired, measured < 1.0 < repaired, evidence))
    return sorted(found, key=lambda repair: -repair.speedup)


def diagnose(
    arm: ArmSummary,
    base: ArmSummary,
    healthy_tokens: float | None = None,
    signatures: Sequence[Signature] = (),
) -> Diagnosis:
    """Name the primary cause of an arm's loss, with the evidence of every part."""
    mine, target = token_cost(arm), token_cost(base)
    measured = target.total / mine.total
    found = repairs(mine, target, healthy_tokens)
    return Diagnosis(
        arm=arm.arm,
        speedup=measured,
        primary=None if measured >= 1.0 else _primary(found, signatures),
        repairs=tuple(found),
        signatures=tuple(signatures),
    )


def _primary(found: Sequence[Repair], signatures: Sequence[Signature]) -> str:
    """A wrong baseline explains everything; then the best single repair, named by its signature."""
    for signature in signatures:
        if signature.explains is None:
            return signature.code
    flipping = [repair for repair in found if repair.flips]
    if not flipping:
        return NO_SINGLE_FIX
    cause = flipping[0].cause
    explaining = [s for s in signatures if s.explains == cause]
    return explaining[0].code if explaining else cause


def healthiest(arms: Mapping[str, Sequence[ArmSummary]]) -> dict[str, float]:
    """Most tokens per round that each arm reaches on any traffic of the same epoch and load."""
    return {
        name: max(summary.tokens_per_round.value for summary in summaries)
        for name, summaries in arms.items()
        if summaries
    }
