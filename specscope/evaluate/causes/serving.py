"""Faults, gaps, prefill and memory. Each function maps `facts` to the time that a repair saves."""

from __future__ import annotations

import numpy as np

from specscope.evaluate.causes.cause import Missing, Need, Seen
from specscope.evaluate.causes.facts import Facts
from specscope.evaluate.experiment.objectives import weight_of

_BASELINE_FLAGS = ("INCONSISTENT_BASELINE", "BASELINE_DRAFTS")
_MORE = 1.1
_SAME = 0.2
_PROPOSALS = 1000


def bad_baseline(facts: Facts) -> Seen | None:
    """`flags` found impossible target-only steps."""
    seen = [flag for flag in _BASELINE_FLAGS if flag in facts.flags]
    return Seen(facts.nothing, {"flags": ", ".join(seen)}) if seen else None


def engine_fault(facts: Facts) -> Seen | None:
    """Impossible counters: more accepted than proposed tokens, more emitted than accepted + 1 per
    round, or no accepted token in a thousand proposals."""
    arm = facts.arm
    fault = (
        arm.accepted > arm.proposed
        or arm.emitted > arm.accepted + arm.request_rounds
        or (arm.proposed >= _PROPOSALS and arm.accepted == 0)
    )
    counts = {
        "proposed": arm.proposed,
        "accepted": arm.accepted,
        "emitted": arm.emitted,
        "rounds": arm.request_rounds,
    }
    return Seen(facts.nothing, counts) if fault else None


def idle(facts: Facts) -> Seen | Missing:
    """Gaps between the parts of a round. The repair shortens them to those of a target-only
    step."""
    own, excess = facts.arm_cost["idle"], facts.excess("idle")
    if own is None or excess is None:
        return Missing(("round.idle_us",), facts.hidden("idle"))
    return Seen(excess, {"share": float((own / facts.arm_cost.total)[0])})


def host_sync(facts: Facts) -> Seen | Missing | None:
    """Gaps that change by less than 20 % when the batch doubles: the device waits for the host."""
    excess, rows = facts.excess("idle"), facts.epoch_traffic.idle_by_batch(facts.arm.arm)
    if excess is None:
        return Missing(("round.idle_us",))
    if len(rows) < 2 or rows[0][0] <= 0 or rows[-1][0] < 2 * rows[0][0]:
        return Missing((Need.BATCH_DOUBLED,))
    (low, first), (high, last) = rows[0], rows[-1]
    if first <= 0 or abs(last / first - 1.0) > _SAME:
        return None
    return Seen(excess, {"gap_ms": last, "batch": low, "batch_high": high})


def sampling(facts: Facts) -> Seen | Missing:
    """Acceptance and bookkeeping take longer than in a target-only step.

    The repair reduces their time to that of a target-only step.
    """
    own, excess = facts.arm_cost["sample"], facts.excess("sample")
    if own is None or excess is None:
        return Missing(("round.sample_us",), facts.hidden("sample"))
    return Seen(
        excess,
        {
            "share": float((own / facts.arm_cost.total)[0]),
            "excess": float((excess / np.maximum(own, 1e-12))[0]),
        },
    )


def prefill_side_effect(facts: Facts) -> Seen | Missing:
    """Prefill costs over 10 % more than without speculation: prefix-cache hits are fewer, or the
    draft model prefills too."""
    own, target = facts.arm_cost["prefill"], facts.base_cost["prefill"]
    if own is None or target is None:
        return Missing(("round.prefill_us",), facts.hidden("prefill"))
    saved = np.where(own > _MORE * target, own - target, 0.0)
    numbers = {"own_ms": float(own[0]), "target_ms": float(target[0])}
    ran, base = facts.arm_totals, facts.base_totals
    if ran.cached_tokens is not None and ran.prompt_tokens is not None and ran.prompt_tokens[0]:
        numbers["hits"] = float(ran.cached_tokens[0] / ran.prompt_tokens[0])
    if base.cached_tokens is not None and base.prompt_tokens is not None and base.prompt_tokens[0]:
        numbers["hits_before"] = float(base.cached_tokens[0] / base.prompt_tokens[0])
    return Seen(saved, numbers)


def memory_displacement(facts: Facts) -> Seen | Missing:
    """More requests are preempted and fewer run at once, because the draft takes memory.

    With the repair, as many requests run at once as in target-only decoding, and a round costs as
    much as now.
    """
    ran, base = facts.arm_totals, facts.base_totals
    fewer = np.maximum(0.0, 1.0 - ran.batch / base.batch)
    # For latency a smaller batch is no loss, but what a faster arm runs.
    saved = weight_of(facts.objective) * facts.arm_cost.total * fewer
    if ran.preempted is None or base.preempted is None:
        return Missing(("block_time.preempted",), saved)
    own = ran.preempted / np.maximum(1.0, ran.requests)
    target = base.preempted / np.maximum(1.0, base.requests)
    there = (ran.preempted >= 1) & (own > 1.5 * target)
    return Seen(
        np.where(there, saved, 0.0),
        {
            "preempted": float(ran.preempted[0]),
            "preempted_before": float(base.preempted[0]),
            "batch": float(ran.batch[0]),
            "batch_before": float(base.batch[0]),
        },
    )
