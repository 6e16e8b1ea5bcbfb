"""Why drafting costs what it costs. Each: `facts -> what would be saved`."""

from __future__ import annotations

from specscope.evaluate.causes.cause import Missing, Seen
from specscope.evaluate.causes.facts import Facts

# Over this many times the least that a draft step can take, it waits for something.
_FAR = 3.0
_STARTS = 0.05


def draft_cost(facts: Facts) -> Seen | Missing | None:
    """Drafting, catch-up included, were it free."""
    draft = facts.mine.draft
    if draft is None:
        return Missing(("round.draft_us",))
    if draft <= 0:
        return None
    return Seen(draft, f"draft takes {draft / facts.mine.total:.0%} of the time")


def short_output(facts: Facts) -> Seen | None:
    """Texts end before they have paid for the draft's start and for their last, cut round.

    Without it: no catch-up, and every round whole. Under 5 % of the time it is not looked at.
    """
    ran, mine = facts.ran, facts.mine
    whole = ran.accepted + ran.request_rounds
    kept = min(1.0, ran.emitted / whole) if whole else 1.0
    saved = mine.total - (mine.total - mine.catchup) * kept
    requests = ran.ended_requests or ran.requests
    if not requests or saved < _STARTS * mine.total:
        return None
    tokens = (ran.output_tokens or ran.emitted) / requests
    return Seen(
        saved,
        f"{tokens:.0f} tokens a request: {mine.catchup / mine.total:.0%} of the time is the draft "
        f"reading prompts, {1 - kept:.0%} of tokens fall behind the end",
    )


def draft_placement(facts: Facts) -> Seen | Missing | None:
    """A draft step takes over three times what reading its weights or its arithmetic must take:
    it waits for launches, for another device or for the host."""
    machine, draft = facts.machine, facts.mine.draft
    lacks = machine.lacks("draft_parameters", "draft_bytes_per_weight", "gpu_type")
    if draft is None:
        lacks = (*lacks, "round.draft_us")
    if lacks or draft is None or machine.device is None or machine.draft_bytes is None:
        return Missing(lacks)
    steps = facts.ran.rounds * (facts.arm.k or 0)
    stepped = draft - facts.mine.catchup
    if steps <= 0:
        return None
    read = machine.draft_bytes / machine.device.bandwidth
    work = 2.0 * (machine.draft_parameters or 0.0) * facts.arm.batch / machine.device.flops
    floor = facts.per_token(1e3 * max(read, work) * steps)
    if floor <= 0 or stepped <= _FAR * floor:
        return None
    return Seen(stepped - floor, f"a draft step takes {stepped / floor:.1f} times its floor")
