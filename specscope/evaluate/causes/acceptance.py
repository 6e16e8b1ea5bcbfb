"""Why a draft is kept less often than it could be. Each: `facts -> what would be saved`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise

from specscope.evaluate.causes.cause import Missing, Seen
from specscope.evaluate.causes.facts import Facts
from specscope.evaluate.causes.surroundings import Kept, start_of

# Rounds that tested the first position, below which a chance is no measure.
_ENOUGH = 50
_REFUSED = 0.1


def low_acceptance(facts: Facts) -> Seen | None:
    """Fewer tokens a round than the same draft reaches on other traffic; or none beyond one."""
    own, k = facts.mine.tokens_per_round, facts.arm.k or 0
    healthy = facts.elsewhere.tokens(facts.arm.arm)
    if own <= 1.0 + 2.0 * (facts.arm.tokens_per_round.se or 0.0):
        return Seen(facts.if_tokens(k + 1), f"{own:.2f} tokens a round: no gain over one")
    if healthy is None or healthy <= own:
        return None
    return Seen(
        facts.if_tokens(healthy),
        f"{own:.2f} tokens a round where {healthy:.2f} are reached elsewhere",
    )


def draft_mismatch(facts: Facts) -> Seen | None:
    """The first position is kept less than half as often as elsewhere: tokenizer, template or
    temperature differ between draft and target."""
    healthy = facts.elsewhere.first_position(facts.arm.arm)
    tokens = facts.elsewhere.tokens(facts.arm.arm)
    curve = facts.arm.survival
    first = curve.hazard[0] if curve and curve.hazard else None
    if first is None or healthy is None or tokens is None or first >= 0.5 * healthy:
        return None
    return Seen(
        facts.if_tokens(tokens), f"first position kept {first:.2f}, not {healthy:.2f} as elsewhere"
    )


def adapter_mismatch(facts: Facts) -> Seen | Missing | None:
    """A LoRA adapter whose requests keep the first position under 0.6 as often as the others."""
    return _odd_kinds(facts, lambda kind: bool(kind) and "guided" not in kind.split())


def grammar_mismatch(facts: Facts) -> Seen | Missing | None:
    """Requests under a grammar keep less: the draft does not know it."""
    kinds = _kinds(facts)
    guided = [kind for kind in kinds if "guided" in kind.split()]
    if kinds and not guided:
        return None
    healthy = facts.elsewhere.tokens(facts.arm.arm)
    if kinds and len(guided) == len(kinds) and healthy is not None:
        refused, proposed = facts.ran.invalid, facts.ran.proposed
        if refused is None:
            return Missing(("block_time.invalid",))
        if proposed == 0 or refused <= _REFUSED * proposed:
            return None
        return Seen(
            facts.if_tokens(healthy), f"a grammar refused {refused / proposed:.0%} of the proposals"
        )
    return _odd_kinds(facts, lambda kind: "guided" in kind.split())


def drafter_window(facts: Facts) -> Seen | Missing | None:
    """The first position breaks, by half or more, at a context: there the draft's window ends."""
    rows = facts.elsewhere.by_context(facts.arm.arm, facts.class_)
    rows = [(name, kept) for name, kept in rows if kept.tested >= _ENOUGH]
    if len(rows) < 2:
        return Missing(("blocks of the same class at other contexts",))
    knees = [
        (later[0], before, after)
        for earlier, later in pairwise(rows)
        if (before := earlier[1].first or 0.0) >= 2.0 * (after := later[1].first or 0.0)
    ]
    if not knees:
        return None
    knee, before, after = knees[0]
    healthy = _pooled([kept for name, kept in rows if start_of(name) < start_of(knee)])
    behind = [part for part in facts.parts if start_of(part.context_bucket) >= start_of(knee)]
    rounds = sum(part.request_rounds for part in behind)
    everything = sum(part.request_rounds for part in facts.parts)
    if not rounds:
        return None
    own = sum(part.emitted for part in facts.parts) / everything
    emitted = sum(part.emitted for part in facts.parts) - sum(part.emitted for part in behind)
    repaired = (emitted + healthy.tokens * rounds) / everything
    return Seen(
        facts.if_tokens(max(repaired, own)),
        f"first position kept {before:.2f} before and {after:.2f} from context {knee}",
    )


def _odd_kinds(facts: Facts, chosen: Callable[[str], bool]) -> Seen | Missing | None:
    """Chosen kinds of request whose first position is kept under 0.6 as often as the best's."""
    kinds = {kind: kept for kind, kept in _kinds(facts).items() if kept.tested >= _ENOUGH}
    if facts.parts and not _kinds(facts):
        return Missing(("block_part.kinds",))
    others = [kind for kind in kinds if not chosen(kind)] or list(kinds)
    if not others:
        return None
    best = max(others, key=lambda kind: kinds[kind].first or 0.0)
    healthy = kinds[best]
    odd = {
        kind: kept
        for kind, kept in kinds.items()
        if chosen(kind) and kind != best and (kept.first or 0.0) < 0.6 * (healthy.first or 0.0)
    }
    if not odd:
        return None
    everything = _pooled(list(_kinds(facts).values()))
    lost = sum(kept.rounds * max(0.0, healthy.tokens - kept.tokens) for kept in odd.values())
    named = ", ".join(f"`{kind}` {kept.first or 0.0:.2f}" for kind, kept in sorted(odd.items()))
    return Seen(
        facts.if_tokens(everything.tokens + lost / everything.rounds),
        f"first position kept by {named}, by {f'`{best}`' if best else 'the others'} "
        f"{healthy.first or 0.0:.2f}",
    )


def _kinds(facts: Facts) -> dict[str, Kept]:
    found: dict[str, Kept] = defaultdict(Kept)
    for part in facts.parts:
        counts = part.kind_rounds, part.kind_emitted, part.kind_tested, part.kind_kept
        for kind, *values in zip(part.kinds, *counts, strict=True):
            found[kind].add(*values)
    return dict(found)


def _pooled(all_: list[Kept]) -> Kept:
    pool = Kept()
    for one in all_:
        pool.add(one.rounds, one.emitted, one.tested, one.kept)
    return pool
