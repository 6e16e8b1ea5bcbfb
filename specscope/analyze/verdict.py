"""The verdict of an input that holds no comparison: what it shows, what is missing."""

from __future__ import annotations

from pathlib import Path

from specscope.analyze.findings import Findings
from specscope.analyze.result import InputInfo, Verdict
from specscope.readers.records import TimeParts, Window

_SAID = (
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
    "SPEC_INACTIVE",
    "STALE_GAUGE",
    "COUNTER_STUCK",
    "UNSUPPORTED_FIELD",
    "TOO_MANY_PARTS",
    "STORE_ERROR",
)
"""Findings that a verdict repeats as reasons, most telling first."""

MOST_REASONS = 8


def alone(
    info: InputInfo, total: Window | None, times: list[TimeParts], findings: Findings
) -> Verdict | None:
    """The verdict of one input without a comparison; None for one that gave nothing."""
    if not info.records and not any(findings.has(code, info.path) for code in _SAID):
        return None
    klass: dict[str, str] = {"label": Path(info.path).name or info.path}
    if info.engine:
        klass["engine"] = info.engine
    if info.engine_version:
        klass["version"] = info.engine_version
    reasons = [text for code in _SAID if (text := findings.text(code, info.path))]
    if findings.has("SPEC_DEAD", info.path):
        return Verdict(klass, "engine_fault", None, None, "high", tuple(reasons[:MOST_REASONS]))
    if findings.has("NO_ROOM", info.path) and total is not None:
        reasons.insert(0, _shown(total))
        told = tuple(dict.fromkeys(reasons[:MOST_REASONS]))
        return Verdict(klass, "disable", 0, "modelled", "medium", told)
    speculated = total is not None and (
        bool(total.drafts) or bool(total.proposed) or total.mean_length is not None
    )
    measured = any(time.rounds or time.parts_ms for time in times)
    if not speculated and not measured:
        if total is not None and total.throughput_tok_s is not None:
            reasons.insert(0, f"{total.throughput_tok_s:.2f} tok/s, and no speculation observed")
        reasons = reasons or ["no speculation observed in this input"]
        return Verdict(klass, "no_data", None, None, "high", tuple(reasons[:MOST_REASONS]))
    if speculated and total is not None:
        reasons.insert(0, _shown(total))
    reasons.append("no target-only run in this input: neither gain nor slowdown is proven")
    grade = "modelled" if findings.has("BREAK_EVEN", info.path) else None
    kept = [*reasons[: MOST_REASONS - 1], reasons[-1]]
    return Verdict(klass, "collect_baseline", None, grade, "high", tuple(dict.fromkeys(kept)))


def _shown(total: Window) -> str:
    parts = []
    if total.acceptance_rate is not None:
        parts.append(f"{total.acceptance_rate:.1%} of proposals accepted")
    counted = (total.drafts or 0) + (total.accepted or 0)
    if total.drafts and total.emitted is not None and total.emitted != counted:
        parts.append(
            f"{total.emitted / total.drafts:.2f} tokens per round came out "
            f"({counted / total.drafts:.2f} "
            "by the engine's count)"
        )
    elif total.mean_length is not None:
        mark = " (estimated)" if "mean_length" in total.estimated else ""
        parts.append(f"{total.mean_length:.2f} tokens per round{mark}")
    if total.coverage is not None:
        parts.append(f"{total.coverage:.0%} of tokens from such rounds")
    if total.throughput_tok_s is not None:
        parts.append(f"{total.throughput_tok_s:.1f} tok/s")
    return ", ".join(parts) or "speculation ran"
