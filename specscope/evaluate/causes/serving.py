"""Faults, gaps, prompts and memory. Each: `facts -> what would be saved`."""

from __future__ import annotations

from specscope.evaluate.causes.cause import Missing, Seen
from specscope.evaluate.causes.facts import Facts

_BASELINE_FLAGS = {
    "INCONSISTENT_BASELINE": "a verify pass under a target-only step of the same batch",
    "BASELINE_DRAFTS": "k0 pays for drafts that are thrown away",
}
_MORE = 1.1
_SAME = 0.2


def bad_baseline(facts: Facts) -> Seen | None:
    """What `flags` saw: target-only steps that cannot be what they are said to be."""
    seen = [words for flag, words in _BASELINE_FLAGS.items() if flag in facts.flags]
    return Seen(0.0, "; ".join(seen)) if seen else None


def engine_fault(facts: Facts) -> Seen | None:
    """Counters that no correct engine yields: more accepted than proposed, more emitted than
    accepted + 1 a round, or hundreds of proposals without a single one kept."""
    arm = facts.arm
    if arm.accepted > arm.proposed:
        why = f"accepted {arm.accepted} of {arm.proposed} proposals"
    elif arm.emitted > arm.accepted + arm.request_rounds:
        why = f"emitted {arm.emitted} from {arm.accepted} accepted in {arm.request_rounds} rounds"
    elif arm.proposed >= 1000 and arm.accepted == 0:
        why = f"not one of {arm.proposed} proposals was kept"
    else:
        return None
    return Seen(0.0, why)


def idle(facts: Facts) -> Seen | Missing | None:
    """Gaps between the parts of a round, closed."""
    gap = facts.mine.idle
    if gap is None:
        return Missing(("round.idle_us",))
    if gap <= 0:
        return None
    return Seen(gap, f"idle between the parts {gap / facts.mine.total:.0%} of the time")


def host_sync(facts: Facts) -> Seen | Missing | None:
    """Gaps that stay within 20 % over at least a doubling of the batch wait for the host."""
    gap, rows = facts.mine.idle, facts.elsewhere.idle_by_batch(facts.arm.arm)
    if gap is None:
        return Missing(("round.idle_us",))
    if len(rows) < 2 or rows[0][0] <= 0 or rows[-1][0] < 2 * rows[0][0]:
        return Missing(("blocks at twice the batch",))
    (low, first), (high, last) = rows[0], rows[-1]
    if first <= 0 or abs(last / first - 1.0) > _SAME:
        return None
    return Seen(gap, f"a gap of {last:.3g} ms at batch {low:.0f} and at {high:.0f}")


def sampling(facts: Facts) -> Seen | Missing | None:
    """Acceptance and bookkeeping at the price of a target-only step's."""
    mine, target = facts.mine.sample_per_round, facts.target.sample_per_round
    if mine is None or target is None:
        return Missing(("round.sample_us",))
    if mine <= target:
        return None
    saved = (mine - target) / facts.mine.tokens_per_round
    return Seen(saved, f"sampling takes {mine:.3g} ms a sequence, target-only {target:.3g} ms")


def prefill_side_effect(facts: Facts) -> Seen | Missing | None:
    """Prompts cost over 10 % more than without speculation: fewer prefixes found in the cache,
    or the draft reads them too."""
    mine, target = facts.mine.prefill, facts.target.prefill
    if mine is None or target is None:
        return Missing(("round.prefill_us",))
    if mine <= _MORE * target:
        return None
    said = [f"prompts take {mine:.3g} ms an output token, target-only {target:.3g} ms"]
    ran, base = facts.ran, facts.base_ran
    if ran.cached_tokens is not None and ran.prompt_tokens and base.prompt_tokens:
        hits = ran.cached_tokens / ran.prompt_tokens
        before = (base.cached_tokens or 0) / base.prompt_tokens
        if hits < before / _MORE:
            said.append(f"prefix hits fell from {before:.0%} to {hits:.0%}")
    if ran.ttft_us and ran.first_tokens and base.ttft_us and base.first_tokens:
        later = ran.ttft_us / ran.first_tokens / (base.ttft_us / base.first_tokens)
        said.append(f"first tokens come after {later:.2f} of the time")
    return Seen(mine - target, "; ".join(said))


def memory_displacement(facts: Facts) -> Seen | Missing | None:
    """More requests go back into the queue and fewer run at once: the draft took memory.

    Without it: as many at once as target-only, at the price of the rounds that ran.
    """
    ran, base = facts.ran, facts.base_ran
    if ran.preempted is None or base.preempted is None:
        return Missing(("block_time.preempted",))
    mine = ran.preempted / max(1, ran.requests)
    target = base.preempted / max(1, base.requests)
    if ran.preempted < 1 or mine <= 1.5 * target or facts.arm.batch >= facts.base.batch:
        return None
    saved = facts.mine.total * (1.0 - facts.arm.batch / facts.base.batch)
    return Seen(
        saved,
        f"{ran.preempted} requests put back into the queue, {base.preempted} without; "
        f"{facts.arm.batch:.1f} at once, {facts.base.batch:.1f} without",
    )
