"""Causes of too few tokens per round. Each function maps `facts` to the time that a repair saves.

The acceptance of another class is no reference. A class is compared with its own break-even, as far
as a better draft could reach it, and with its own past.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np

from specscope.evaluate.causes.cause import Missing, Need, Numbers, Seen
from specscope.evaluate.causes.draws import Array
from specscope.evaluate.causes.epoch_traffic import Kept
from specscope.evaluate.causes.facts import Facts
from specscope.evaluate.experiment.blocks import CONTEXT_BUCKETS

# Rounds that tested a position, below which its chance is no measure.
_ENOUGH = 50
_REFUSED = 0.1
# A table of word pairs keeps 0.2 of its first positions (Leviathan et al. 2023, section 3.6); a
# draft model that keeps half as many does not speak the target's language.
_NO_DRAFT = 0.1
# Of the refusals, the share that a better draft for the same text may avoid: more than EAGLE-3
# avoids of EAGLE-2's, or the largest of three drafts of the smallest's.
_AVOIDABLE = 0.5
_COLLAPSE = 0.5


def low_acceptance(facts: Facts) -> Seen:
    """Tokens per round are below break-even.

    The reference is the larger of two yields of the class itself: its yield in an earlier epoch,
    and its break-even. The break-even is limited to the yield of a draft with half the rejections.
    """
    numbers: dict[str, float | str] = {
        "tokens": _plain(facts.tokens),
        "break_even": _plain(np.minimum(facts.break_even, 1e6)),
        "reach": _plain(_reach(facts)),
    }
    if facts.past is not None:
        numbers["past"] = facts.past.tokens
    return Seen(facts.if_tokens(_reference(facts)), numbers)


def draft_mismatch(facts: Facts) -> Seen | None:
    """Acceptance at the first position is under half of the class's own past, or nearly zero.
    Tokenizer, template or temperature differ between draft and target."""
    hazard = _hazards(facts)
    if hazard is None:
        return None
    first, past = hazard[:, 0], facts.past.first if facts.past else None
    least = max(_NO_DRAFT, 0.5 * (past or 0.0))
    saved = np.where(first < least, facts.if_tokens(_reference(facts)), 0.0)
    return Seen(saved, {"first": _plain(first), "least": least})


def late_positions(facts: Facts) -> Seen | Missing | None:
    """Acceptance collapses at a position: later draft tokens cost time and are hardly ever
    accepted.

    The repair ends drafts before that position.
    """
    hazard, tested = _hazards(facts), facts.tested
    draft, verify = facts.arm_cost["draft"], facts.excess("verify")
    if draft is None or verify is None:
        return Missing(("round.draft_us", "round.verify_us"))
    if hazard is None or tested is None or facts.k < 2:
        return None
    plain = hazard[0]
    knees = [
        j
        for j in range(1, facts.k)
        if tested[0, j] >= _ENOUGH and plain[j] < _COLLAPSE * plain[:j].mean()
    ]
    if not knees:
        return None
    knee = knees[0]
    shorter = np.sum(np.cumprod(hazard, axis=1)[:, :knee], axis=1)
    tokens = 1.0 + (facts.tokens - 1.0) * shorter / np.cumprod(hazard, axis=1).sum(axis=1)
    decode = facts.arm_cost.total - facts.prefill
    left = decode - (1.0 - knee / facts.k) * (draft + verify)
    saved = np.maximum(0.0, decode - left * facts.tokens / tokens)
    before, after = float(plain[:knee].mean()), float(plain[knee])
    return Seen(saved, {"k": knee, "before": before, "after": after})


def adapter_mismatch(facts: Facts) -> Seen | Missing | None:
    """Requests of a LoRA adapter accept the first draft token less than 0.6 times as often as other
    requests do."""
    return _odd_kinds(facts, lambda kind: bool(kind) and "guided" not in kind.split())


def grammar_mismatch(facts: Facts) -> Seen | Missing | None:
    """Requests under a grammar accept fewer tokens, because the draft does not know the grammar."""
    guided = [kind for kind in facts.kinds if "guided" in kind.split()]
    if facts.kinds and not guided:
        return None
    if facts.kinds and len(guided) == len(facts.kinds):
        refused = facts.arm_totals.invalid
        if refused is None:
            return Missing(("block_time.invalid",))
        share = refused / np.maximum(facts.arm_totals.proposed, 1.0)
        saved = np.where(share > _REFUSED, facts.if_tokens(_reference(facts)), 0.0)
        return Seen(saved, {"refused": _plain(share)})
    return _odd_kinds(facts, lambda kind: "guided" in kind.split())


def drafter_window(facts: Facts) -> Seen | Missing | None:
    """Acceptance at the first position halves beyond some context length: the draft's window ends
    there."""
    rows = facts.epoch_traffic.by_context(facts.arm.arm, facts.segment.class_)
    rows = [(name, kept) for name, kept in rows if kept.tested >= _ENOUGH]
    if len(rows) < 2:
        return Missing((Need.CONTEXTS_OF_CLASS,))
    knees = [
        (later[0], before, after)
        for earlier, later in pairwise(rows)
        if (before := earlier[1].first or 0.0) >= 2.0 * (after := later[1].first or 0.0)
    ]
    if not knees:
        return None
    knee, before, after = knees[0]
    beyond = CONTEXT_BUCKETS[CONTEXT_BUCKETS.index(knee) :]
    healthy = Kept()
    for name, kept in rows:
        if name not in beyond:
            healthy.add(kept.rounds, kept.emitted, kept.tested, kept.kept)
    behind = [sums for name, sums in facts.by_context.items() if name in beyond]
    if not behind:
        return None
    everything = np.sum(list(facts.by_context.values()), axis=0)
    rounds, emitted = np.sum(behind, axis=0).T
    repaired = (everything[:, 1] - emitted + healthy.tokens * rounds) / everything[:, 0]
    saved = facts.if_tokens(repaired)
    return Seen(saved, {"context": knee, "before": before, "after": after})


def _odd_kinds(facts: Facts, chosen: Callable[[str], bool]) -> Seen | Missing | None:
    """The chosen kinds of request that accept the first position under 0.6 times as often as the
    best."""
    if not facts.kinds_known:
        return Missing(("block_part.kinds",))
    kinds = {kind: sums for kind, sums in facts.kinds.items() if sums[0, 2] >= _ENOUGH}
    others = [kind for kind in kinds if not chosen(kind)] or list(kinds)
    if not others:
        return None
    first = {kind: float(sums[0, 3] / sums[0, 2]) for kind, sums in kinds.items()}
    best = max(others, key=lambda kind: first[kind])
    odd = {
        kind: sums
        for kind, sums in kinds.items()
        if chosen(kind) and kind != best and first[kind] < 0.6 * first[best]
    }
    if not odd:
        return None
    everything = np.sum(list(facts.kinds.values()), axis=0)
    lost = sum((_more(kinds[best], sums) for sums in odd.values()), start=np.zeros(len(everything)))
    saved = facts.if_tokens((everything[:, 1] + lost) / everything[:, 0])
    return Seen(saved, _of_odd(sorted(odd), best, first))


def _more(best: Array, odd: Array) -> Array:
    """Additional tokens if requests of one kind had the acceptance of the best kind."""
    rounds = np.maximum(odd[:, 0], 1e-9)
    return rounds * np.maximum(0.0, best[:, 1] / np.maximum(best[:, 0], 1e-9) - odd[:, 1] / rounds)


def _of_odd(odd: list[str], best: str, first: Mapping[str, float]) -> Numbers:
    return {
        "kinds": ", ".join(f"`{kind}` {first[kind]:.2f}" for kind in odd),
        "best": best,
        "best_first": first[best],
    }


def _reference(facts: Facts) -> Array:
    """Reference tokens per round of a class."""
    reference = np.minimum(facts.break_even, _reach(facts))
    return reference if facts.past is None else np.maximum(reference, facts.past.tokens)


def _reach(facts: Facts) -> Array:
    """Tokens per round without the avoidable rejections, with texts that end where they do now."""
    hazard = _hazards(facts)
    if hazard is None:
        return facts.tokens + _AVOIDABLE * (facts.k + 1.0 - facts.tokens)
    better = np.cumprod(1.0 - (1.0 - _AVOIDABLE) * (1.0 - hazard), axis=1).sum(axis=1)
    whole = 1.0 + np.cumprod(hazard, axis=1).sum(axis=1)
    reached: Array = facts.tokens * np.maximum(1.0, (1.0 + better) / whole)
    return reached


def _hazards(facts: Facts) -> Array | None:
    """[draws, k] chance that a position is kept, given that it was tested; None if unknown."""
    if facts.tested is None or facts.kept is None:
        return None
    chances: Array = facts.kept / np.maximum(facts.tested, 1e-9)
    return chances


def _plain(values: Array) -> float:
    """The value of draw 0, the original evidence."""
    return float(values[0])
