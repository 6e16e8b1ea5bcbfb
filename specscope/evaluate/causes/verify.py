"""Why a verify pass costs more than a target-only step. Each: `facts -> what would be saved`.

What exceeds a target-only step is shared out by positions where it grows with them; nobody here
saves more than the whole excess.
"""

from __future__ import annotations

from itertools import pairwise
from statistics import median

from specscope.evaluate.causes.cause import Missing, Seen
from specscope.evaluate.causes.facts import Facts, Rung
from specscope.evaluate.costs import moe, roofline
from specscope.evaluate.experiment.blocks import BlockTime

UNTIMED = Missing(("round.verify_us",))


def verify_cost(facts: Facts) -> Seen | Missing | None:
    """A verify pass at the price of a target-only step."""
    excess = facts.verify_excess
    if excess is None:
        return UNTIMED
    if excess <= 0:
        return None
    mine, target = facts.mine.verify_per_round or 0.0, facts.target.verify_per_round or 0.0
    return Seen(excess, f"verify takes {mine:.3g} ms a sequence, target-only {target:.3g} ms")


def padding(facts: Facts) -> Seen | Missing | None:
    """Over 15 % more positions computed than asked for: graph buckets or tile limits."""
    asked, ragged, bucket = _positions(facts.ran)
    _, _, base_bucket = _positions(facts.base_ran)
    return _of_positions(
        facts,
        bucket - base_bucket,
        bucket > 0.15 * (asked + ragged),
        f"{(asked + ragged + bucket) / max(asked + ragged, 1e-9):.2f} positions computed for each "
        "asked",
    )


def raggedness(facts: Facts) -> Seen | Missing | None:
    """Over 5 % of positions computed so that short drafts are as long as the longest."""
    if facts.ran.full_tokens is None and facts.arm.k is None:
        return Missing(("block_time.full_tokens",))
    asked, ragged, _ = _positions(facts.ran)
    share = ragged / max(asked + ragged, 1e-9)
    return _of_positions(
        facts, ragged, share > 0.05, f"{share:.0%} of positions pad short drafts to the longest"
    )


def staircase(facts: Facts) -> Seen | Missing | None:
    """The verify pass jumps between two draft lengths and is flat behind the jump: a bucket, or
    a kernel that some width falls off. Over 10 % and five times the slope of the other steps."""
    if facts.verify_excess is None:
        return UNTIMED
    if len(facts.ladder) < 3:
        return Missing(("blocks of three draft lengths",))
    rises = [(left, right, _slope(left, right)) for left, right in pairwise(facts.ladder)]
    left, right, _ = max(rises[:-1], key=lambda rise: rise[2])
    others = [slope for _, step, slope in rises if step is not right]
    behind = [slope for step, _, slope in rises if step.n_q >= right.n_q]
    steep = 5.0 * max(median(others), 0.0)
    jump = right.verify_ms - left.verify_ms - max(median(others), 0.0) * (right.n_q - left.n_q)
    own = next((rung for rung in facts.ladder if rung.arm == facts.arm.arm), None)
    flat = bool(behind) and 5.0 * max(behind) < _slope(left, right)
    if own is None or own.n_q < right.n_q or not flat:
        return None
    if jump <= 0.10 * left.verify_ms or _slope(left, right) <= steep:
        return None
    saved = min(facts.verify_excess, facts.per_token(jump * facts.ran.rounds))
    return Seen(
        saved,
        f"a pass jumps from {left.verify_ms:.3g} to {right.verify_ms:.3g} ms between "
        f"{left.n_q:.0f} and {right.n_q:.0f} query tokens",
    )


def context_cost(facts: Facts) -> Seen | Missing | None:
    """The cache is read again for each draft token: over 5 % of the verify pass."""
    if facts.verify_excess is None:
        return UNTIMED
    reread = facts.elsewhere.reread
    if reread is None:
        return Missing(("blocks at contexts that differ by half",))
    ran = facts.ran
    read_us = reread.us * ran.n_kv * ran.proposed / ran.request_rounds
    if reread.gain < 0.5 or read_us <= 0.05 * (ran.verify_us or 0.0):
        return None
    return Seen(
        min(facts.verify_excess, facts.per_token(1e-3 * read_us)),
        f"{read_us / (ran.verify_us or 1.0):.0%} of a verify pass reads the cache again for each "
        f"draft token, at {ran.n_kv / ran.request_rounds:.0f} tokens of context",
    )


def expert_union(facts: Facts) -> Seen | Missing | None:
    """Mixture of experts below its threshold: each verified token wakes new experts."""
    if facts.verify_excess is None:
        return UNTIMED
    machine, batch, k = facts.machine, facts.arm.batch, facts.arm.k or 0
    if machine.experts == 0 or machine.active_share == 1.0:
        return None
    lacks = machine.lacks("experts", "active_parameters")
    if lacks or not machine.experts or machine.active_share is None:
        return Missing(lacks)
    active = min(machine.experts, max(1, round(machine.experts * machine.active_share)))
    threshold = moe.union_threshold(machine.experts, active)
    if batch >= threshold or k == 0:
        return None
    woken = moe.expert_union(machine.experts, active, batch * (k + 1))
    woken /= moe.expert_union(machine.experts, active, batch)
    most = (woken - 1.0) * (facts.target.verify_per_round or 0.0) / facts.mine.tokens_per_round
    return Seen(
        min(facts.verify_excess, most),
        f"batch {batch:.0f} under {threshold}: up to {woken:.1f} times the experts",
    )


def verify_compute_bound(facts: Facts) -> Seen | Missing | None:
    """Query tokens beyond the ridge, at a slope of arithmetic: a longer draft cannot gain."""
    excess, machine = facts.verify_excess, facts.machine
    if excess is None:
        return UNTIMED
    if machine.shape is None or machine.device is None:
        return Missing(machine.lacks(*_CARD))
    n_q = facts.ran.n_q / max(facts.ran.rounds, 1)
    base_q = facts.base_ran.n_q / max(facts.base_ran.rounds, 1)
    ridge = roofline.ridge_tokens(machine.device, machine.shape.bytes_per_weight)
    if n_q <= ridge or n_q <= base_q:
        return None
    peak = 1e3 * 2.0 * machine.shape.parameters / (machine.device.flops * machine.devices)
    # A pass costs nothing more up to the ridge; behind it, arithmetic for each token.
    rise = excess * facts.ran.emitted / max(facts.ran.rounds, 1) / (n_q - max(base_q, ridge))
    if rise < 0.8 * peak:
        return None
    return Seen(
        excess,
        f"{n_q:.0f} query tokens beyond the ridge at {ridge:.0f}, slope {rise / peak:.1f} of peak "
        "arithmetic",
    )


def overhead_bound(facts: Facts) -> Seen | Missing | None:
    """Under 0.35 of the bandwidth although below the ridge: launches or communication rule the
    verify pass, and more so than the target-only step."""
    excess, machine, ran = facts.verify_excess, facts.machine, facts.ran
    if excess is None:
        return UNTIMED
    if machine.shape is None or machine.device is None:
        return Missing(machine.lacks(*_CARD))
    if ran.model_bytes is None or facts.base_ran.model_bytes is None:
        return Missing(("round.model_bytes",))
    bandwidth = machine.device.bandwidth * machine.devices
    busy_us = (ran.verify_us or 0.0) + (ran.draft_us or 0.0)
    used = 1e6 * ran.model_bytes / bandwidth / busy_us if busy_us else 1.0
    if ran.dram_busy_us is not None and ran.dram_seen_us:
        used = ran.dram_busy_us / ran.dram_seen_us
    ridge = roofline.ridge_tokens(machine.device, machine.shape.bytes_per_weight)
    if used >= 0.35 or ran.n_q >= ridge * ran.rounds:
        return None
    return Seen(excess, f"{used:.0%} of the memory bandwidth in use")


_CARD = ("parameters", "bytes_per_weight", "kv_bytes_per_token", "gpu_type")


def _positions(ran: BlockTime) -> tuple[float, float, float]:
    """Of a request-round: positions asked for, padded to the longest draft, padded beyond."""
    full = ran.request_rounds * (ran.k + 1) if ran.full_tokens is None else ran.full_tokens
    ragged = min(ran.padded_tokens, max(0, full - ran.n_q))
    count = max(1, ran.request_rounds)
    return ran.n_q / count, ragged / count, (ran.padded_tokens - ragged) / count


def _of_positions(facts: Facts, wasted: float, seen: bool, evidence: str) -> Seen | Missing | None:
    """The share of the excess that belongs to wasted positions, at the price of the others."""
    if facts.verify_excess is None:
        return UNTIMED
    more = sum(_positions(facts.ran)) - sum(_positions(facts.base_ran))
    if not seen or wasted <= 0 or more <= 0 or facts.verify_excess <= 0:
        return None
    return Seen(facts.verify_excess * min(1.0, wasted / more), evidence)


def _slope(left: Rung, right: Rung) -> float:
    return (right.verify_ms - left.verify_ms) / max(right.n_q - left.n_q, 1e-9)
