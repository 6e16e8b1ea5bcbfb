"""Causes of expensive verify passes. Each function maps `facts` to the time that a repair saves.

The excess is the time beyond a target-only step. If it grows with the number of positions, each
position gets an equal share. No cause here saves more than the whole excess.
"""

from __future__ import annotations

from itertools import pairwise
from statistics import median

import numpy as np

from specscope.evaluate.causes.cause import Missing, Need, Numbers, Seen
from specscope.evaluate.causes.draws import Array, Mask, RoundTotals
from specscope.evaluate.causes.facts import Facts, Rung
from specscope.evaluate.costs import moe, roofline

UNTIMED = Missing(("round.verify_us",))
_CARD = ("parameters", "bytes_per_weight", "kv_bytes_per_token", "gpu_type")
# Below this share of the bandwidth, under the ridge, something else than memory rules a pass.
_IDLE_MEMORY = 0.35


def verify_cost(facts: Facts) -> Seen | Missing:
    """A verify pass costs more than a target-only step. The repair makes them equal."""
    excess, own = facts.excess("verify"), facts.arm_cost["verify"]
    if excess is None or own is None:
        return Missing(UNTIMED.needs, facts.hidden("verify"))
    step = own - excess
    ratio = own / np.maximum(step, 1e-12)
    return Seen(excess, {"ratio": float(ratio[0]), "share": float((own / facts.arm_cost.total)[0])})


def padding(facts: Facts) -> Seen | Missing:
    """The engine computes over 15 % more positions than asked for: graph buckets or tile limits."""
    asked, ragged, bucket = _positions(facts.arm_totals, facts.k)
    _, _, base_bucket = _positions(facts.base_totals, 0)
    real = np.maximum(asked + ragged, 1e-9)
    numbers = {"computed": float(((asked + ragged + bucket) / real)[0])}
    return _of_positions(facts, bucket - base_bucket, bucket > 0.15 * real, numbers)


def raggedness(facts: Facts) -> Seen | Missing:
    """Over 5 % of the positions only pad short drafts to the longest."""
    asked, ragged, _ = _positions(facts.arm_totals, facts.k)
    share = ragged / np.maximum(asked + ragged, 1e-9)
    return _of_positions(facts, ragged, share > 0.05, {"share": float(share[0])})


def staircase(facts: Facts) -> Seen | Missing | None:
    """The verify time jumps between two draft lengths and is flat after the jump: a graph bucket,
    or another kernel. The jump is over 10 %, and five times the slope of the other steps."""
    excess = facts.excess("verify")
    if excess is None:
        return UNTIMED
    if len(facts.ladder) < 3:
        return Missing((Need.THREE_LENGTHS,))
    rises = [(left, right, _slope(left, right)) for left, right in pairwise(facts.ladder)]
    left, right, steepest = max(rises[:-1], key=lambda rise: rise[2])
    others = [slope for _, step, slope in rises if step is not right]
    behind = [slope for step, _, slope in rises if step.n_q >= right.n_q]
    usual = max(median(others), 0.0)
    jump = right.verify_ms - left.verify_ms - usual * (right.n_q - left.n_q)
    own = next((rung for rung in facts.ladder if rung.arm == facts.arm.arm), None)
    flat = bool(behind) and 5.0 * max(behind) < steepest
    if own is None or own.n_q < right.n_q or not flat:
        return None
    if jump <= 0.10 * left.verify_ms or steepest <= 5.0 * usual:
        return None
    saved = np.minimum(excess, facts.per_token(1e3 * jump * facts.arm_totals.rounds))
    numbers = {"before_ms": left.verify_ms, "after_ms": right.verify_ms}
    return Seen(saved, numbers | {"before": left.n_q, "after": right.n_q})


def context_cost(facts: Facts) -> Seen | Missing:
    """The verify pass reads the KV cache again for each draft token, for over 5 % of its time."""
    excess, verify = facts.excess("verify"), facts.arm_totals.verify_us
    if excess is None or verify is None:
        return UNTIMED
    reread = facts.epoch_traffic.reread
    if reread is None:
        return Missing((Need.CONTEXTS_APART,))
    ran = facts.arm_totals
    read_us = reread.us * ran.n_kv * ran.proposed / ran.request_rounds
    there = (reread.gain >= 0.5) & (read_us > 0.05 * verify)
    return Seen(
        np.where(there, np.minimum(excess, facts.per_token(read_us)), 0.0),
        {
            "share": float((read_us / verify)[0]),
            "context": float((ran.n_kv / ran.request_rounds)[0]),
        },
    )


def expert_union(facts: Facts) -> Seen | Missing | None:
    """A mixture of experts below its threshold: each verified token activates additional
    experts."""
    excess, step = facts.excess("verify"), facts.base_cost["verify"]
    if excess is None or step is None:
        return UNTIMED
    machine, batch = facts.machine, facts.arm.batch
    if machine.experts == 0 or machine.active_share == 1.0:
        return None
    lacks = machine.lacks("experts", "active_parameters")
    if lacks or not machine.experts or machine.active_share is None:
        return Missing(lacks)
    active = min(machine.experts, max(1, round(machine.experts * machine.active_share)))
    threshold = moe.union_threshold(machine.experts, active)
    if batch >= threshold:
        return None
    woken = moe.expert_union(machine.experts, active, batch * (facts.k + 1))
    woken /= moe.expert_union(machine.experts, active, batch)
    most = (woken - 1.0) * step * facts.base_tokens / facts.tokens
    numbers: Numbers = {"batch": batch, "threshold": threshold, "woken": woken}
    return Seen(np.minimum(excess, most), numbers)


def verify_compute_bound(facts: Facts) -> Seen | Missing:
    """The query tokens exceed the roofline's ridge and the slope is that of arithmetic: a longer
    draft cannot gain."""
    excess, machine = facts.excess("verify"), facts.machine
    if excess is None:
        return UNTIMED
    if machine.shape is None or machine.device is None:
        return Missing(machine.lacks(*_CARD))
    n_q = (facts.arm_totals.n_q + facts.arm_totals.padded_tokens) / facts.arm_totals.rounds
    base_q = (facts.base_totals.n_q + facts.base_totals.padded_tokens) / facts.base_totals.rounds
    ridge = roofline.ridge_tokens(machine.device, machine.shape.bytes_per_weight)
    peak = 1e6 * 2.0 * machine.shape.parameters / (machine.device.flops * machine.devices)
    # A pass costs nothing more up to the ridge; behind it, arithmetic for each token.
    beyond = n_q - np.maximum(base_q, ridge)
    pass_us = excess / np.maximum(facts.per_token(facts.arm_totals.rounds), 1e-12)
    rise = pass_us / np.maximum(beyond, 1e-9)
    there = (n_q > ridge) & (n_q > base_q) & (rise >= 0.8 * peak)
    return Seen(
        np.where(there, excess, 0.0),
        {"n_q": float(n_q[0]), "ridge": ridge, "slope": float(rise[0] / peak)},
    )


def overhead_bound(facts: Facts) -> Seen | Missing:
    """The pass reaches under 0.35 of the bandwidth although it is below the ridge. Launches or
    communication dominate it, more than they do the target-only step."""
    excess, machine, ran = facts.excess("verify"), facts.machine, facts.arm_totals
    if excess is None:
        return UNTIMED
    if machine.shape is None or machine.device is None:
        return Missing(machine.lacks(*_CARD))
    if ran.model_bytes is None or facts.base_totals.model_bytes is None:
        return Missing(("round.model_bytes",))
    bandwidth = machine.device.bandwidth * machine.devices
    busy_us = facts.nothing
    for part in (ran.verify_us, ran.draft_us):
        busy_us = busy_us if part is None else busy_us + part
    used: Array = 1e6 * ran.model_bytes / bandwidth / np.maximum(busy_us, 1e-9)
    if ran.dram_busy_us is not None and ran.dram_seen_us is not None and ran.dram_seen_us[0]:
        used = ran.dram_busy_us / np.maximum(ran.dram_seen_us, 1e-9)
    ridge = roofline.ridge_tokens(machine.device, machine.shape.bytes_per_weight)
    there = (used < _IDLE_MEMORY) & (ran.n_q < ridge * ran.rounds)
    return Seen(np.where(there, excess, 0.0), {"used": float(used[0])})


def _positions(ran: RoundTotals, k: int) -> tuple[Array, Array, Array]:
    """Positions per request-round: asked for, padded to the longest draft, and padded beyond it."""
    full = ran.request_rounds * (k + 1) if ran.full_tokens is None else ran.full_tokens
    ragged = np.minimum(ran.padded_tokens, np.maximum(0.0, full - ran.n_q))
    count = np.maximum(1.0, ran.request_rounds)
    return ran.n_q / count, ragged / count, (ran.padded_tokens - ragged) / count


def _of_positions(facts: Facts, wasted: Array, there: Mask, numbers: Numbers) -> Seen | Missing:
    """The share of the excess that wasted positions cause, if each costs as much as the others."""
    excess = facts.excess("verify")
    if excess is None:
        return UNTIMED
    more = sum(_positions(facts.arm_totals, facts.k)) - sum(_positions(facts.base_totals, 0))
    share = np.clip(wasted / np.maximum(more, 1e-9), 0.0, 1.0)
    return Seen(np.where(there & (more > 0), excess * share, 0.0), numbers)


def _slope(left: Rung, right: Rung) -> float:
    return (right.verify_ms - left.verify_ms) / max(right.n_q - left.n_q, 1e-9)
