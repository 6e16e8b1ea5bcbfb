"""Why a verify pass costs more than a target-only step, where that can be told from outside.

Like `signatures`: a Signature where it holds, None where it does not or cannot be seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from specscope.evaluate import moe, roofline
from specscope.evaluate.roofline import DevicePeaks, ModelShape
from specscope.evaluate.signatures import Signature
from specscope.evaluate.steptime import StepModel


def compute_bound(
    fit: StepModel, model: ModelShape, device: DevicePeaks, n_q: float, devices: int = 1
) -> Signature | None:
    """Query tokens beyond the ridge at a slope of arithmetic: a longer draft cannot gain."""
    slope = 1e6 * 2.0 * model.parameters / (device.flops * devices)
    ridge = roofline.ridge_tokens(device, model.bytes_per_weight)
    if n_q <= ridge or fit.per_query < slope:
        return None
    return Signature(
        "verify_compute_bound",
        "verify_cost",
        f"{n_q:.0f} query tokens beyond the ridge at {ridge:.0f}, "
        f"slope {fit.per_query / slope:.1f} of peak arithmetic",
    )


def context_cost(
    fit: StepModel, model: ModelShape, device: DevicePeaks, devices: int = 1
) -> Signature | None:
    """A cached token costs over 1.7 times its read at peak: attention kernel or cache layout."""
    floor = 1e6 * model.kv_bytes / (device.bandwidth * devices)
    if floor <= 0 or fit.per_context <= 1.7 * floor:
        return None
    return Signature(
        "context_cost", "verify_cost", f"context costs {fit.per_context / floor:.1f} of its read"
    )


def overhead_bound(
    moved_bytes: float, time_s: float, device: DevicePeaks, n_q: float, bytes_per_weight: float = 2
) -> Signature | None:
    """Under 0.35 of the bandwidth although below the ridge: launches and communication rule.

    Repair the baseline first: speculation looks too good against a slow one.
    """
    share = moved_bytes / time_s / device.bandwidth
    if share >= 0.35 or n_q >= roofline.ridge_tokens(device, bytes_per_weight):
        return None
    return Signature("overhead_bound", "verify_cost", f"{share:.0%} of the bandwidth in use")


def padding(padded_share: float) -> Signature | None:
    """Over 15 % more positions computed than asked for: graph buckets or tile limits."""
    padded_ratio = 1.0 / (1.0 - padded_share) if padded_share < 1.0 else float("inf")
    if padded_ratio <= 1.15:
        return None
    return Signature(
        "padding", "verify_cost", f"{padded_ratio:.2f} positions computed for each asked"
    )


def staircase(time_by_queries: Sequence[tuple[float, float]], fit: StepModel) -> Signature | None:
    """A jump of the step time between neighbouring query counts that the fit does not have.

    time_by_queries: (n_q, verify us at equal context), rising. Over 10 % of the step and five
    times what the slope explains.
    """
    for (q0, t0), (q1, t1) in pairwise(time_by_queries):
        if t1 - t0 > 0.10 * t0 and t1 - t0 > 5.0 * fit.per_query * (q1 - q0):
            return Signature(
                "staircase", "verify_cost", f"step time jumps at {q1:.0f} query tokens"
            )
    return None


def raggedness(emitted: float, slots: float, tokens_per_round: float, k: int) -> Signature | None:
    """Slots wasted beyond what acceptance makes unavoidable, by more than five points."""
    if slots <= 0:
        return None
    waste, unavoidable = 1.0 - emitted / slots, 1.0 - tokens_per_round / (k + 1)
    if waste <= unavoidable + 0.05:
        return None
    return Signature(
        "raggedness", "verify_cost", f"{waste:.0%} of slots wasted, {unavoidable:.0%} unavoidable"
    )


def expert_union(experts: int, active: int, batch: float, k: int) -> Signature | None:
    """Mixture-of-experts below its threshold: each verified token wakes new experts."""
    threshold = moe.union_threshold(experts, active)
    if batch >= threshold or k == 0:
        return None
    woken = moe.expert_union(experts, active, batch * (k + 1))
    alone = moe.expert_union(experts, active, batch)
    return Signature(
        "expert_union",
        "verify_cost",
        f"batch {batch:.0f} under {threshold}: up to {woken / alone:.1f} times the experts",
    )
