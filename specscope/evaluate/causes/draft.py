"""Causes of expensive drafting. Each function maps `facts` to the time that a repair saves."""

from __future__ import annotations

import numpy as np

from specscope.evaluate.causes.cause import Missing, Seen
from specscope.evaluate.causes.draws import Array
from specscope.evaluate.causes.facts import Facts

# Over this many times the least that a draft step can take, it waits for something.
_FAR = 3.0
# Published drafts that pay take 0.02 to 0.13 of a target-only step for each token: Chinchilla's
# 0.128 (Chen et al. 2023), 0.125 beside Llama 70B (arXiv 2601.11580).
_HEALTHY = 1.0 / 8.0
_STARTS = 0.05


def draft_cost(facts: Facts) -> Seen | Missing:
    """Draft steps take longer than those of a healthy draft.

    A healthy draft token takes at most an eighth of a target-only step, or three times the roofline
    limit of this draft on this device if that is less. Without the draft's model card this limit is
    unknown. Then the repair of a slower draft may save up to all of its time.
    """
    draft = facts.arm_cost["draft"]
    if draft is None:
        return Missing(("round.draft_us",), facts.unaccounted)
    lacks, floor = _floor(facts)
    healthy = _HEALTHY * facts.target_step
    if floor is not None:
        healthy = np.minimum(healthy, _FAR * floor)
    steps = facts.arm_totals.rounds * facts.k
    saved = np.maximum(0.0, draft - facts.per_token(healthy * steps))
    most = np.where(saved > 0.0, draft, 0.0)
    return Seen(
        saved,
        {
            "share": float((draft / facts.arm_cost.total)[0]),
            "step_share": float((draft / facts.per_token(facts.target_step * steps))[0]),
            "healthy_share": float((healthy / facts.target_step)[0]),
        },
        at_most=most if floor is None else None,
        needs=lacks,
    )


def short_output(facts: Facts) -> Seen | None:
    """Outputs are too short to recover the catch-up and the truncated last round.

    The repair removes both. The check needs them to take at least 5 % of the time.
    """
    ran, total = facts.arm_totals, facts.arm_cost.total
    catchup = facts.arm_cost["catchup"]
    starts = facts.nothing if catchup is None else catchup
    whole = ran.accepted + ran.request_rounds
    kept = np.minimum(1.0, ran.emitted / np.maximum(whole, 1e-9))
    saved = total - (total - starts) * kept
    requests = ran.requests if ran.ended_requests is None else ran.ended_requests
    tokens = ran.emitted if ran.output_tokens is None else ran.output_tokens
    if not requests[0]:
        return None
    return Seen(
        np.where(saved < _STARTS * total, 0.0, saved),
        {
            "tokens": float(tokens[0] / requests[0]),
            "starts": float((starts / total)[0]),
            "behind_end": float(1.0 - kept[0]),
        },
    )


def draft_placement(facts: Facts) -> Seen | Missing | None:
    """A draft step takes over three times its roofline limit (weights read or arithmetic). It waits
    for kernel launches, another device or the host."""
    draft, (lacks, floor) = facts.arm_cost["draft"], _floor(facts)
    if draft is None:
        lacks = (*lacks, "round.draft_us")
    if lacks or draft is None or floor is None:
        return Missing(lacks)
    least = facts.per_token(floor * facts.arm_totals.rounds * facts.k)
    saved = np.where(draft > _FAR * least, draft - _FAR * least, 0.0)
    return Seen(saved, {"floors": float((draft / np.maximum(least, 1e-12))[0])})


def _floor(facts: Facts) -> tuple[tuple[str, ...], Array | None]:
    """Missing columns, and the roofline limit of a draft step. [us]"""
    machine = facts.machine
    lacks = machine.lacks("draft_parameters", "draft_bytes_per_weight", "gpu_type")
    if lacks or machine.device is None or machine.draft_bytes is None:
        return lacks, None
    read = machine.draft_bytes / machine.device.bandwidth
    work = 2.0 * (machine.draft_parameters or 0.0) * facts.arm_totals.batch / machine.device.flops
    floor = 1e6 * np.maximum(read, work)
    return ((), floor) if floor[0] > 0 else ((), None)
