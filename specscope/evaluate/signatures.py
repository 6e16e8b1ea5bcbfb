"""What can be seen behind a loss: each signature with a threshold that physics gives.

Those of the verify pass are in `verify_signatures`.
Each function takes measured values and returns a Signature, or None where it does not hold or
cannot be seen. `explains` is the part of the round that it is behind; None marks input that
must not be believed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from specscope.evaluate.acceptance import Survival


@dataclass(frozen=True, slots=True)
class Signature:
    """code: documented name; explains: low_acceptance, draft_cost, verify_cost, idle or None."""

    code: str
    explains: str | None
    evidence: str


def bad_baseline(verify_ms: float, target_ms: float) -> Signature | None:
    """A verify pass under 0.98 of a target-only step at equal batch and context: impossible."""
    if verify_ms >= 0.98 * target_ms:
        return None
    return Signature(
        "bad_baseline", None, f"verify {verify_ms:.3g} ms under target-only {target_ms:.3g} ms"
    )


def engine_fault(proposed: int, accepted: int, emitted: int, rounds: int) -> Signature | None:
    """Counters that no correct engine yields: more accepted than proposed, more emitted than
    accepted + 1 a round, or hundreds of proposals without a single one kept."""
    if accepted > proposed:
        why = f"accepted {accepted} of {proposed} proposals"
    elif emitted > accepted + rounds:
        why = f"emitted {emitted} from {accepted} accepted in {rounds} rounds"
    elif proposed >= 1000 and accepted == 0:
        why = f"not one of {proposed} proposals was kept"
    else:
        return None
    return Signature("engine_fault", None, why)


def draft_mismatch(survival: Survival, healthy_first: float) -> Signature | None:
    """The first position already fails: tokenizer, template, adapter or temperature differ
    between draft and target. Below half of what the first position reaches elsewhere."""
    first = survival.hazard[0] if survival.hazard else None
    if first is None or first >= 0.5 * healthy_first:
        return None
    return Signature(
        "draft_mismatch",
        "low_acceptance",
        f"first position kept {first:.2f}, not {healthy_first:.2f}",
    )


def adapter_mismatch(first_by_adapter: Mapping[str, float], base: str) -> Signature | None:
    """One LoRA adapter (or grammar) accepts far less at the first position than the base model."""
    healthy = first_by_adapter.get(base)
    if not healthy:
        return None
    bad = sorted(n for n, v in first_by_adapter.items() if n != base and v < 0.6 * healthy)
    if not bad:
        return None
    return Signature(
        "adapter_mismatch",
        "low_acceptance",
        f"{', '.join(bad)} under 0.6 of {healthy:.2f} at the first position",
    )


def drafter_window(
    first_by_context: Sequence[tuple[float, float]], max_position: float | None = None
) -> Signature | None:
    """Acceptance of the first position breaks at a context, as where a drafter's window ends.

    first_by_context: (context in tokens, chance kept), by rising context. A knee is the largest
    drop between neighbours, by half or more; with a known window it must lie behind it.
    """
    knees = [
        (later[0], earlier[1], later[1])
        for earlier, later in pairwise(first_by_context)
        if later[1] <= 0.5 * earlier[1]
    ]
    knees = [knee for knee in knees if max_position is None or knee[0] >= max_position]
    if not knees:
        return None
    at, before, after = knees[0]
    return Signature(
        "drafter_window",
        "low_acceptance",
        f"first position kept {before:.2f} before and {after:.2f} from context {at:.0f}",
    )


def draft_placement(draft_ms_per_token: float, floor_ms: float) -> Signature | None:
    """A draft step takes over three times what reading its weights or launching it must take.

    floor_ms: max(weight bytes / bandwidth, layers * launch time) + communication.
    """
    if floor_ms <= 0 or draft_ms_per_token <= 3.0 * floor_ms:
        return None
    return Signature(
        "draft_placement",
        "draft_cost",
        f"a draft step takes {draft_ms_per_token / floor_ms:.1f} times its floor",
    )


def host_sync(idle_us_by_batch: Sequence[tuple[float, float]]) -> Signature | None:
    """Gaps that do not grow with the batch: waiting for the host, not for work.

    idle_us_by_batch: (batch, idle of a round). Over at least a doubling of the batch the gap
    stays within 20 %.
    """
    if len(idle_us_by_batch) < 2:
        return None
    rows = sorted(idle_us_by_batch)
    (low, first), (high, last) = rows[0], rows[-1]
    if low <= 0 or first <= 0 or high < 2 * low or not 0.8 <= last / first <= 1.2:
        return None
    return Signature("host_sync", "idle", f"gap of {last:.0f} us at batch {low:.0f} and {high:.0f}")


def short_output(output_tokens: float, break_even: float) -> Signature | None:
    """Outputs end before a faster token has paid for a slower start."""
    if output_tokens >= break_even:
        return None
    return Signature(
        "short_output", "draft_cost", f"{output_tokens:.0f} tokens out, {break_even:.0f} to pay"
    )


def prefill_side_effect(ttft_ratio: float, cached_ratio: float | None = None) -> Signature | None:
    """First tokens come 10 % later, or prefixes are found in the cache 10 % less often."""
    if cached_ratio is not None and cached_ratio < 0.9:
        return Signature("prefill_side_effect", "draft_cost", f"prefix hits at {cached_ratio:.2f}")
    if ttft_ratio > 1.1:
        return Signature("prefill_side_effect", "draft_cost", f"first token at {ttft_ratio:.2f}")
    return None


def memory_displacement(preempted: float, base_preempted: float) -> Signature | None:
    """More requests put back into the queue than without speculation: the draft took memory."""
    if preempted <= max(1.0, 1.5 * base_preempted):
        return None
    return Signature(
        "memory_displacement",
        "verify_cost",
        f"{preempted:.0f} preemptions, {base_preempted:.0f} without",
    )
