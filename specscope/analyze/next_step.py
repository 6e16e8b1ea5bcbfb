"""The next measurement, if no verdict settles: the missing data of this input."""

from __future__ import annotations

from specscope.analyze.result import Analysis
from specscope.evaluate.verdict.verdict import Action

_SWITCHES = {
    "vllm": "`--speculative-config`",
    "sglang": "`--speculative-algorithm`",
    "llama.cpp": "`--model-draft` and `--spec-type`",
    "tensorrt-llm": "`speculative_config`",
}
"""The options that start an engine with speculation."""


def next_step(analysis: Analysis) -> str | None:
    """One instruction; None if a verdict settles and no class lacks its baseline."""
    actions = {verdict.action for verdict in analysis.verdicts}
    if Action.COLLECT_BASELINE in actions:
        return _baseline(analysis)
    if any(action.settles for action in actions):
        return None
    if Action.INCONCLUSIVE in actions:
        return "run each arm at least three times, in turn, and give all results together"
    if Action.NOT_COMPARABLE in actions:
        return (
            "run both arms on the same engine, model, precision, machine and load, so that "
            "speculation alone differs"
        )
    return _speculation(analysis)


def _baseline(analysis: Analysis) -> str:
    engines = {info.engine for info in analysis.inputs if info.engine}
    switch = _SWITCHES.get(engines.pop(), "speculation") if len(engines) == 1 else "speculation"
    step = f"run the same traffic on the engine started without {switch}"
    if any(verdict.k == 0 for verdict in analysis.verdicts) or _has_k0(analysis):
        step += " (k = 0 in a speculative engine still pays for its drafter)"
    step += ", and give both results to `specscope analyze`"
    if not _has_speed(analysis):
        step += "; this input holds no speed: add tok/s, time per token or a `/metrics` scrape"
    return step


def _speculation(analysis: Analysis) -> str:
    if any(entry.code == "ARMS_NOT_RECOGNISED" for entry in analysis.findings):
        return "say for each row whether it speculates: a column `k`, or a name such as `no_spec`"
    if any(entry.code == "DRAFTER_NEVER_USED" for entry in analysis.findings):
        return "find out why the engine proposes nothing, then give the log of a run that drafts"
    if _has_speed(analysis) or any("bench" in (info.format or "") for info in analysis.inputs):
        return "give the run with speculation beside this one"
    return "give the engine's log from its start, its `/metrics`, or a table with arm and tok/s"


def _has_k0(analysis: Analysis) -> bool:
    return any(entry.code == "K0_IS_NOT_BASELINE" for entry in analysis.findings) or any(
        comparison.k == 0 for comparison in analysis.comparisons
    )


def _has_speed(analysis: Analysis) -> bool:
    windows = [*analysis.windows, *([analysis.totals] if analysis.totals else [])]
    given = bool(analysis.comparisons) or any(info.has_speed for info in analysis.inputs)
    return given or any(
        window.throughput_tok_s is not None or window.round_ms is not None for window in windows
    )
