"""Judge one set of phase times without a comparison.

A single profiler trace allows the arithmetic of a round and a check of plausibility. It never gives
evidence of grade `measured`, which needs pairs of blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

from specscope.evaluate.costs import closed_forms

INCONSISTENT_BASELINE = "INCONSISTENT_BASELINE"

# Verifying k + 1 tokens reads at least what a step of one token reads, so it cannot be
# faster; 2 % is left for clocks.
VERIFY_FLOOR = 0.98


@dataclass(frozen=True, slots=True)
class TraceVerdict:
    """One round's times compared with those of a target-only step.

    action: keep, disable or no_difference. flags: reasons to distrust the input. primary: the
    single part whose removal turns a loss into a win; None if there is no such part or no loss.
    grade is always `modelled`.
    """

    tokens_per_ms: float
    target_tokens_per_ms: float
    speedup: float
    break_even_tokens: float
    action: str
    flags: tuple[str, ...]
    primary: str | None
    grade: str = "modelled"


def judge_trace(
    tokens: float, draft_ms: float, verify_ms: float, target_ms: float, other_ms: float = 0.0
) -> TraceVerdict:
    """Compute a round's throughput, its break-even and the primary part of a loss.

    tokens: mean output of a round. times: parts of a round, and of a target-only step. [ms]
    ValueError if a time is not positive (draft and other may be 0).
    """
    gain = closed_forms.speedup(tokens, draft_ms, verify_ms, target_ms, other_ms)
    flags = (INCONSISTENT_BASELINE,) if verify_ms < VERIFY_FLOOR * target_ms else ()
    return TraceVerdict(
        tokens_per_ms=closed_forms.tokens_per_ms(tokens, draft_ms, verify_ms, other_ms),
        target_tokens_per_ms=1.0 / target_ms,
        speedup=gain,
        break_even_tokens=closed_forms.break_even_tokens(draft_ms, verify_ms, target_ms, other_ms),
        action="keep" if gain > 1.0 else "disable" if gain < 1.0 else "no_difference",
        flags=flags,
        primary=primary_part(tokens, draft_ms, verify_ms, target_ms, other_ms),
    )


def counterfactual_speedups(
    tokens: float, draft_ms: float, verify_ms: float, target_ms: float, other_ms: float = 0.0
) -> dict[str, float]:
    """Speedup with one ideal part: a free draft, a verify pass as fast as a target-only step, or no
    gaps. [ratio, by part: draft, verify, other]"""
    cheap_verify = min(verify_ms, target_ms)
    return {
        "draft": closed_forms.speedup(tokens, 0.0, verify_ms, target_ms, other_ms),
        "verify": closed_forms.speedup(tokens, draft_ms, cheap_verify, target_ms, other_ms),
        "other": closed_forms.speedup(tokens, draft_ms, verify_ms, target_ms, 0.0),
    }


def primary_part(
    tokens: float, draft_ms: float, verify_ms: float, target_ms: float, other_ms: float = 0.0
) -> str | None:
    """The single part whose removal turns a loss into a win; the largest gain if there are several.

    None if the round does not lose, or no single removal is enough.
    """
    if closed_forms.speedup(tokens, draft_ms, verify_ms, target_ms, other_ms) >= 1.0:
        return None
    freed = counterfactual_speedups(tokens, draft_ms, verify_ms, target_ms, other_ms)
    part = max(freed, key=lambda name: freed[name])
    return part if freed[part] > 1.0 else None
