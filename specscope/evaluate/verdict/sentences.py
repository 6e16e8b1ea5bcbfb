"""Reasons of a verdict, in sentences that carry their numbers."""

from __future__ import annotations

from collections.abc import Sequence

from specscope.evaluate.causes.diagnosis import NO_SINGLE_FIX, Diagnosis
from specscope.evaluate.experiment.blocks import BASELINE
from specscope.evaluate.experiment.contrast import Estimate
from specscope.evaluate.experiment.objectives import exceeds
from specscope.evaluate.experiment.summary import ArmSummary
from specscope.evaluate.verdict.choice import Choice

FLAGS = {
    "BASELINE_DRAFTS": "BASELINE_DRAFTS: k0 pays for drafts that are thrown away, so every arm "
    "looks better than it is; the baseline must not draft",
    "INCONSISTENT_BASELINE": "INCONSISTENT_BASELINE: a verify pass took less time than a "
    "target-only step of the same batch, which cannot be; compare clocks before believing this",
    "IMPOSSIBLE_COUNTS": "IMPOSSIBLE_COUNTS: more tokens were kept or given out than can be; the "
    "engine or its hook is at fault",
    "OUTPUTS_DIFFER": "OUTPUTS_DIFFER: speculation changes what requests get, beyond what "
    "target-only changes by itself; mend that before anything else",
    "SAMPLE_RATIO": "SAMPLE_RATIO: the arms did not receive a fair share of the requests; the "
    "router must not see the arm",
    "TWINS_DIFFER": "TWINS_DIFFER: the same policy run twice in a pair differed from itself",
}


def explain(
    *,
    action: str,
    chosen: Choice,
    arms: Sequence[ArmSummary],
    flags: Sequence[str],
    thin: Sequence[str],
    pairs_needed: int | None,
    left_out: Sequence[tuple[str, int]],
    effect: float,
    allowance_ms: float | None = None,
) -> list[str]:
    """Say what decided, what speaks against it, and what is still needed."""
    said = [FLAGS[flag] for flag in flags]
    said += [describe(one) for one in chosen.speedups]
    said += _because(action, chosen, effect)
    said += _beyond_allowance(arms, allowance_ms)
    said += _against_break_even(chosen.speedups, arms)
    if action in ("inconclusive", "collect_baseline") and pairs_needed:
        said.append(f"needs about {pairs_needed} pairs in all")
    elif thin:
        said.append("thin evidence: " + "; ".join(thin))
    said += [f"{count} pairs left out: {reason}" for reason, count in left_out]
    return said


def describe(one: Estimate) -> str:
    """A speedup as a person says it."""
    interval = (
        "interval unknown"
        if one.low is None or one.high is None
        else f"{one.low:.3g} to {one.high:.3g}"
    )
    plural = "pair" if one.pairs == 1 else "pairs"
    said = f"{one.arm} runs at {one.value:.3f} of {one.baseline} ({interval}, {one.pairs} {plural})"
    if one.raw is None:
        return said
    plain = "" if one.raw.low is None else f" ({one.raw.low:.3g} to {one.raw.high:.3g})"
    return f"{said}, {one.held_equal} held equal; as it came {one.raw.value:.3f}{plain}"


def describe_cause(found: Diagnosis) -> str:
    """The primary cause of an arm's loss, and what its repair alone would give."""
    if found.primary == NO_SINGLE_FIX:
        gains = ", ".join(f"{r.cause} {r.speedup:.2f}" for r in found.repairs if r.part == r.cause)
        return (
            f"no single repair makes {found.arm} pay; each alone would give: {gains or 'nothing'}"
        )
    primary = next(repair for repair in found.repairs if repair.cause == found.primary)
    if primary.part is None:
        return f"primary cause: {primary.cause} ({primary.evidence})"
    return (
        f"primary cause: {primary.cause}; without it {found.arm} would run at "
        f"{primary.speedup:.2f} ({primary.evidence})"
    )


def _because(action: str, chosen: Choice, effect: float) -> list[str]:
    if action == "collect_baseline":
        return ["no pair holds both a target-only block and a speculative one"]
    if action == "no_difference":
        losing = [one.arm for one in chosen.speedups if one.loses and not one.within(effect)]
        also = f"; surely slower: {', '.join(losing)}" if losing else ""
        return [f"no draft length gains {effect:.0%}{also}"]
    if action == "disable" and any(one.wins for one in chosen.speedups):
        return ["no draft length that wins keeps to the allowance, and target-only does"]
    if action == "disable" and chosen.undecided:
        return [f"not decided yet, and not in force: {', '.join(chosen.undecided)}"]
    if action == "disable" and not all(one.loses for one in chosen.speedups):
        return ["no draft length wins, and the one in force loses to target-only"]
    if action == "disable":
        return ["every draft length that was tried loses to target-only"]
    if action == "inconclusive" and not chosen.speedups and chosen.undecided:
        return ["the time per output token of requests is not known in both arms"]
    if action == "inconclusive" and not chosen.speedups:
        return ["no speculative arm ran"]
    if action == "inconclusive":
        return [f"not decided: {', '.join(chosen.undecided) or 'which arm to run'}"]
    if action in ("keep", "set_k"):
        rivals = [arm for arm in chosen.best if arm != chosen.arm]
        if rivals:
            return [f"{', '.join(rivals)} cannot be told from {chosen.arm}, which is preferred"]
    return []


def _beyond_allowance(arms: Sequence[ArmSummary], allowance_ms: float | None) -> list[str]:
    slow = [a for a in arms if exceeds(a.tpot_p95_ms, allowance_ms)]
    return [
        f"{a.arm} takes {a.tpot_p95_ms.value:.3g} ms a token (95th percentile), "
        f"{allowance_ms:.3g} are allowed"
        for a in slow
        if a.tpot_p95_ms is not None
    ]


def _against_break_even(speedups: Sequence[Estimate], arms: Sequence[ArmSummary]) -> list[str]:
    """Tokens per round beside what a round cost in target-only steps, from the same blocks."""
    by_name = {arm.arm: arm for arm in arms}
    said = []
    for one in speedups:
        arm = by_name.get(one.arm)
        if arm is not None and arm.k and one.baseline == BASELINE:
            got = arm.tokens_per_round.value
            even = got / one.value
            said.append(f"{one.arm} yields {got:.2f} tokens a round and breaks even at {even:.2f}")
    return said
