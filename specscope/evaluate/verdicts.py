"""From block rows to one verdict a segment, with its evidence and what is still missing.

Every speedup here is a contrast of blocks. There is no way to obtain one from requests that
shared a batch, because such a contrast cannot see what speculation cost.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from specscope.evaluate import checks, contrast
from specscope.evaluate.blocks import (
    BASELINE,
    BlockPart,
    BlockTime,
    Pair,
    Segment,
    arm_k,
    pairs_of,
)
from specscope.evaluate.checks import Design
from specscope.evaluate.choice import Choice, Rules, arms_of, choose
from specscope.evaluate.contrast import Estimate
from specscope.evaluate.sentences import explain
from specscope.evaluate.summary import ArmSummary, summarise
from specscope.evaluate.traces import INCONSISTENT_BASELINE, VERIFY_FLOOR

METRIC = "output tokens per second of the whole batch, target-only = 1"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do with one segment of one epoch.

    action, k: see `choice.Choice`. grade: measured (from pairs) or none. confidence: high where
    the evidence may change a gate, low where it decides but is thin, none where nothing is
    decided. reasons: sentences for a person. pairs: of the best-covered arm. pairs_needed: in
    all, for a decision or for enough evidence; None where enough, or where one cannot say.
    flags: reasons not to believe the input. left_out: pairs not used, by reason.
    """

    epoch: str
    segment: Segment
    action: str
    k: int | None
    grade: str
    confidence: str
    reasons: tuple[str, ...]
    speedups: tuple[Estimate, ...]
    metric: str
    arms: tuple[ArmSummary, ...]
    best: tuple[str, ...]
    pairs: int
    pairs_needed: int | None
    flags: tuple[str, ...]
    left_out: tuple[tuple[str, int], ...]

    @property
    def applicable(self) -> bool:
        """Whether a gate may be changed on this verdict."""
        return self.grade == "measured" and self.confidence == "high"


def decide(
    blocks: Iterable[BlockTime],
    parts: Iterable[BlockPart],
    rules: Rules | None = None,
    design: Design = "cohort",
) -> list[Verdict]:
    """One verdict for every segment of every epoch that any block served.

    The error rate of `rules` holds over all segments and arms together (Bonferroni). Order of
    rows does not matter; a row given twice counts once. Empty where there are no blocks.
    """
    rules = rules or Rules()
    segments = by_segment(pairs_of(blocks, parts))
    usable = {name: checks.usable_pairs(pairs, design) for name, pairs in segments.items()}
    comparisons = count_comparisons({name: u.pairs for name, u in usable.items()})
    return [
        _verdict(epoch, segment, usable[epoch, segment], rules, comparisons, design)
        for epoch, segment in sorted(segments, key=_order)
    ]


def by_segment(pairs: Iterable[Pair]) -> dict[tuple[str, Segment], list[Pair]]:
    """Pairs by epoch and segment: evidence crosses neither."""
    groups: dict[tuple[str, Segment], list[Pair]] = defaultdict(list)
    for pair in pairs:
        groups[pair.key[0], pair.segment].append(pair)
    return dict(groups)


def count_comparisons(segments: dict[tuple[str, Segment], tuple[Pair, ...]]) -> int:
    """Segments times arms: how many intervals must hold together."""
    return sum(len(arms_of(pairs)) for pairs in segments.values())


def _verdict(
    epoch: str,
    segment: Segment,
    usable: checks.Usable,
    rules: Rules,
    comparisons: int,
    design: Design,
) -> Verdict:
    pairs = usable.pairs
    choice = choose(pairs, rules, comparisons, rules.current_k(segment.class_))
    arms = [found for arm in _all_arms(pairs) if (found := summarise(pairs, arm))]
    flags = tuple(sorted(_flags(pairs, choice, design, rules.level)))
    count = max((e.pairs for e in choice.speedups), default=0)
    grade = "measured" if count >= 2 and not flags else "none"
    thin = _thin(pairs, choice, rules)
    decided = choice.action not in ("inconclusive", "collect_baseline")
    action = choice.action
    if "SAMPLE_RATIO" in flags or "TWINS_DIFFER" in flags:
        action, decided = "not_comparable", False
    needed = _pairs_needed(pairs, choice, rules, comparisons, decided)
    confidence = "none" if not decided else "low" if thin or grade == "none" else "high"
    verdict = Verdict(
        epoch=epoch,
        segment=segment,
        action=action,
        k=choice.k if decided else None,
        grade=grade,
        confidence=confidence,
        reasons=(),
        speedups=choice.speedups,
        metric=METRIC,
        arms=tuple(arms),
        best=choice.best,
        pairs=count,
        pairs_needed=needed if needed is not None and needed > count else None,
        flags=flags,
        left_out=tuple(sorted(usable.left_out.items())),
    )
    return _with_reasons(verdict, choice, thin, rules)


def _with_reasons(verdict: Verdict, choice: Choice, thin: Sequence[str], rules: Rules) -> Verdict:
    sentences = explain(
        action=verdict.action,
        chosen=choice,
        arms=verdict.arms,
        flags=verdict.flags,
        thin=thin,
        pairs_needed=verdict.pairs_needed,
        left_out=verdict.left_out,
        effect=rules.smallest_effect,
    )
    return replace(verdict, reasons=tuple(sentences))


def _all_arms(pairs: Sequence[Pair]) -> list[str]:
    names = {arm for pair in pairs for arm in pair.blocks}
    return sorted(names, key=lambda arm: (arm_k(arm) is None, arm_k(arm) or 0, arm))


def _flags(pairs: Sequence[Pair], choice: Choice, design: Design, level: float) -> set[str]:
    flags = set()
    for one in choice.speedups:
        if _verify_too_fast(pairs, one.arm, level):
            flags.add(INCONSISTENT_BASELINE)
        if (
            design == "switchback"
            and checks.sample_ratio_p(pairs, one.arm, BASELINE) < checks.SRM_LEVEL
        ):
            flags.add("SAMPLE_RATIO")
    twins = checks.twin_check(pairs, BASELINE)
    if twins is not None and not twins.passed:
        flags.add("TWINS_DIFFER")
    return flags


def _verify_too_fast(pairs: Sequence[Pair], arm: str, level: float) -> bool:
    """Whether a verify pass took surely less than a target-only one at no smaller batch."""
    k = arm_k(arm)
    if k is None or k == 0:
        return False
    passes = contrast.log_ratio(pairs, arm, BASELINE, "verify_us", "rounds")
    batches = contrast.log_ratio(pairs, arm, BASELINE, "request_rounds", "rounds")
    if passes is None or batches is None or batches.ratio < VERIFY_FLOOR:
        return False
    limits = passes.interval(level)
    high = passes.delta if limits is None else limits[1]
    return math.exp(high) < VERIFY_FLOOR


def _thin(pairs: Sequence[Pair], choice: Choice, rules: Rules) -> list[str]:
    """What an arm still lacks before its evidence may change a gate."""
    lacking = []
    for one in choice.speedups:
        mine = [p.blocks[one.arm] for p in pairs if one.arm in p.blocks and BASELINE in p.blocks]
        for have, least, what in (
            (one.pairs, rules.min_pairs, "pairs"),
            (sum(block.requests for block in mine), rules.min_requests, "requests"),
            (sum(block.rounds for block in mine), rules.min_rounds, "rounds"),
        ):
            if have < least:
                lacking.append(f"{one.arm} has {have} of {least} {what}")
    return lacking


def _pairs_needed(
    pairs: Sequence[Pair], choice: Choice, rules: Rules, comparisons: int, decided: bool
) -> int | None:
    if not choice.speedups:
        return rules.min_pairs
    if decided:
        return rules.min_pairs
    level = 1.0 - (1.0 - rules.level) / max(1, comparisons)
    needs = [
        contrast.pairs_needed(
            contrast.log_ratio(pairs, arm, BASELINE),
            level,
            rules.smallest_effect,
            rules.looked_at_often,
        )
        for arm in choice.undecided
    ]
    return max([rules.min_pairs, *(need for need in needs if need is not None)])


def _order(key: tuple[str, Segment]) -> tuple[str, ...]:
    epoch, segment = key
    return (
        epoch,
        segment.class_ or "",
        segment.context or "",
        segment.output or "",
        f"{len(segment.load or ''):02}{segment.load or ''}",
    )
