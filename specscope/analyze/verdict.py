"""The verdict of an input without a comparison: its figures and its missing data."""

from __future__ import annotations

from pathlib import Path

from specscope.analyze.findings import Findings
from specscope.analyze.result import ClassVerdict, InputInfo, Sentence
from specscope.evaluate.verdict.verdict import Action, Confidence, Grade
from specscope.readers.records import Arm, TimeParts, Window

_REPEATED = (
    "SPEC_DEAD",
    "NO_ROOM",
    "LOW_COVERAGE",
    "DRAFTER_NEVER_USED",
    "EOS_OVERCOUNT",
    "REPEATED_PROMPT",
    "V0_ACCEPTANCE_NOT_PREFIX",
    "V0_THROUGHPUT_UNDERCOUNT",
    "ACCEPT_RATE_BONUS_INCLUDED",
    "SOURCE_DEFECT",
    "STALE_DRAFT_LATENCY",
    "SKIPPED_ROUNDS",
    "BREAK_EVEN",
    "TIME_PARTS",
    "IDLE_IN_GRAPH",
    "IDLE_GAPS",
    "TRACE_UNDER_RECORDED",
    "VERIFY_NOT_ONE_STEP",
    "HOST_SAMPLING",
    "DRAFT_SHARE",
    "K_TOO_LONG",
    "K_LADDER",
    "SPEC_INACTIVE",
    "STALE_GAUGE",
    "COUNTER_STUCK",
    "UNSUPPORTED_FIELD",
    "TOO_MANY_PARTS",
    "STORE_ERROR",
)
"""Findings that a verdict repeats as reasons, most telling first."""

MOST_REASONS = 8
MOST_RUNS = 6


def alone(
    info: InputInfo,
    total: Window | None,
    runs: list[str],
    times: list[TimeParts],
    arms: list[Arm],
    findings: Findings,
    started: bool = False,
) -> ClassVerdict | None:
    """The verdict of one input without a comparison; None for an input without records.

    runs: a line for each run, if several of them speculated. started: whether a command in the
    input starts the engine with speculation.
    """
    if not info.records and not any(findings.has(code, info.path) for code in _REPEATED):
        return None
    klass: dict[str, str] = {"label": Path(info.path).name or info.path}
    if info.engine:
        klass["engine"] = info.engine
    if info.engine_version:
        klass["version"] = info.engine_version
    repeated = [findings.first(code, info.path) for code in _REPEATED]
    reasons = [Sentence.of(finding) for finding in repeated if finding]
    if findings.has("SPEC_DEAD", info.path):
        return ClassVerdict(
            klass, Action.ENGINE_FAULT, Confidence.HIGH, tuple(reasons[:MOST_REASONS])
        )
    if findings.has("NO_ROOM", info.path) and total is not None:
        reasons.insert(0, Sentence(shown(total)))
        first = tuple(dict.fromkeys(reasons[:MOST_REASONS]))
        return ClassVerdict(klass, Action.DISABLE, Confidence.MEDIUM, first, 0, Grade.MODELLED)
    speculated = bool(runs) or any(arm.role == "speculative" and arm.metrics for arm in arms)
    speculated = speculated or (total is not None and _speculates(total))
    if started and not speculated and any(arm.role == "unknown" for arm in arms):
        speculated = True
        reasons.append(
            Sentence("the engine was started with speculation, of which nothing is given")
        )
    measured = any(time.rounds or time.parts_ms for time in times)
    if not speculated and not measured:
        if total is not None and total.throughput_tok_s is not None:
            reasons.insert(0, Sentence(f"{total.throughput_tok_s:.2f} tok/s"))
        if not findings.has("DRAFTER_NEVER_USED", info.path):
            reasons.append(Sentence(_nothing_seen(info, arms)))
        return ClassVerdict(klass, Action.NO_DATA, Confidence.HIGH, tuple(reasons[:MOST_REASONS]))
    if runs:
        more = [f"{len(runs) - MOST_RUNS} more runs"] if len(runs) > MOST_RUNS else []
        reasons[:0] = [Sentence(line) for line in runs[:MOST_RUNS] + more]
    elif total is not None and _speculates(total):
        reasons.insert(0, Sentence(shown(total)))
    else:
        reasons[:0] = map(Sentence, _speeds(arms))
    unproven = Sentence("no target-only run in this input: neither gain nor slowdown is proven")
    grade = Grade.MODELLED if findings.has("BREAK_EVEN", info.path) else Grade.NONE
    kept = tuple(dict.fromkeys([*reasons[: MOST_REASONS - 1], unproven]))
    return ClassVerdict(klass, Action.COLLECT_BASELINE, Confidence.HIGH, kept, grade=grade)


def _speeds(arms: list[Arm]) -> list[str]:
    """The speeds of the speculating arms, if no acceptance is known."""
    own = [arm for arm in arms if arm.role == "speculative" and "throughput_tok_s" in arm.metrics]
    lines = []
    for arm in own[:MOST_RUNS]:
        told = ", ".join(f"{name} {value}" for name, value in arm.conditions.items())
        where = f"{arm.arm} ({told})" if told else arm.arm
        lines.append(f"{where}: {arm.metrics['throughput_tok_s']:.1f} tok/s")
    return lines


def _speculates(total: Window) -> bool:
    rate = total.acceptance_rate is not None
    counted = total.drafts or total.proposed or total.accepted
    return bool(counted) or total.mean_length is not None or rate


def _nothing_seen(info: InputInfo, arms: list[Arm]) -> str:
    """The reason for missing information on speculation: it was off, or the arms cannot be
    identified."""
    if arms and not any(arm.metrics for arm in arms):
        return "no column has a known unit: write it into the header (`tok/s`, `ms per token`)"
    names = list(dict.fromkeys(arm.arm for arm in arms if arm.role == "unknown"))
    if names:
        return (
            f"the arms were not recognised: nothing says whether {', '.join(names[:4])} speculate"
        )
    if any(arm.role == "target_only" and arm.metrics for arm in arms) or info.speculates is False:
        return "the input holds runs without speculation alone"
    return "no line or column of this input speaks of drafts or of acceptance"


def shown(total: Window) -> str:
    """The figures of a window in a line."""
    parts = []
    if total.acceptance_rate is not None:
        parts.append(f"{total.acceptance_rate:.1%} of proposals accepted")
    drafts, _, accepted = total.counted
    counted = (drafts or 0) + (accepted or 0)
    if drafts and total.emitted is not None and total.emitted != counted:
        parts.append(
            f"{total.emitted / drafts:.2f} tokens per round came out "
            f"({counted / drafts:.2f} "
            "by the engine's count)"
        )
    elif total.mean_length is not None:
        mark = " (estimated)" if "mean_length" in total.estimated else ""
        parts.append(f"{total.mean_length:.2f} tokens per round{mark}")
    if total.coverage is not None:
        parts.append(f"{total.coverage:.0%} of tokens from such rounds")
    if total.throughput_tok_s is not None:
        parts.append(f"{total.throughput_tok_s:.1f} tok/s")
    if not parts and accepted:
        parts = [f"{accepted} draft tokens accepted, of how many the input does not say"]
    return ", ".join(parts) or "speculation ran"
