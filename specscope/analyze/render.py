"""The terminal page in 80 columns: the answer first, then its numbers."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from specscope.analyze.layout import WIDTH, printable, short_names, table, wrapped
from specscope.analyze.next_step import next_step
from specscope.analyze.result import Analysis, ClassVerdict, Sentence
from specscope.evaluate.verdict.verdict import Action, Grade
from specscope.readers.codes import CODES
from specscope.readers.records import TimeParts, Window

MOST_LINES = 40
"""A page is read at once; `--json` holds everything."""


class Limits(NamedTuple):
    """Limits for each section."""

    rows: int = 12
    comparisons: int = 12
    findings: int = 14
    finding_lines: int = 3
    reasons: int = 8
    inputs: int = 12
    verdict_lines: int = 2


LEVELS = (
    Limits(),
    Limits(rows=8, comparisons=8, findings=6, finding_lines=1, reasons=5, inputs=3),
    Limits(
        rows=5, comparisons=0, findings=3, finding_lines=1, reasons=3, inputs=2, verdict_lines=1
    ),
    Limits(
        rows=3, comparisons=0, findings=2, finding_lines=1, reasons=2, inputs=1, verdict_lines=1
    ),
)

_SHOWN_ELSEWHERE = {"NOT_RECOGNISED", "NO_BASELINE"}

_HEADLINES = {
    Action.KEEP: "KEEP speculation",
    Action.SET_K: "CHANGE the draft length",
    Action.DISABLE: "DISABLE speculation",
    Action.ROUTE: "ROUTE to another pool",
    Action.NO_DIFFERENCE: "NO DIFFERENCE that matters",
    Action.COLLECT_BASELINE: "NOT PROVEN: a target-only baseline is missing",
    Action.INCONCLUSIVE: "INCONCLUSIVE",
    Action.NOT_COMPARABLE: "NOT COMPARABLE",
    Action.ENGINE_FAULT: "FAULT: speculation is broken here",
    Action.NO_DATA: "NO DATA about speculation",
}

_SURE = (Action.COLLECT_BASELINE, Action.NO_DATA)
"""Actions that say what the input lacks: no confidence is shown for them."""


def page(analysis: Analysis) -> str:
    """The whole page, ending in a newline: the fullest that fits into `MOST_LINES`, if any does."""
    text = ""
    for limits in LEVELS:
        text = _page(analysis, limits)
        if text.count("\n") <= MOST_LINES:
            break
    return text


def _page(analysis: Analysis, limits: Limits) -> str:
    lines: list[str] = []
    names = short_names([info.path for info in analysis.inputs])
    for section in (
        _verdicts(analysis, limits),
        _comparisons(analysis, limits.comparisons),
        _windows(analysis, names, limits.rows),
        _time(analysis.time),
        _devices(analysis),
        _findings(analysis, names, limits),
        _inputs(analysis, names, limits.inputs),
    ):
        block = list(section)
        if block:
            lines += [*block, ""]
    return printable("\n".join(lines).rstrip()) + "\n"


def codes() -> str:
    """The closed list of finding codes with meaning and remedy."""
    lines = []
    for code, entry in CODES.items():
        lines.append(f"{code}  ({entry.severity})")
        lines += wrapped(entry.meaning, "  ")
        lines += wrapped(f"Remedy: {entry.remedy}", "  ")
    return "\n".join(lines) + "\n"


def _verdicts(analysis: Analysis, limits: Limits) -> Iterator[str]:
    files = {os.path.basename(info.path) for info in analysis.inputs}
    verdicts = analysis.verdicts
    if len(verdicts) > MOST_FULL:
        yield from _short_verdicts(verdicts, files, limits)
    else:
        for number, verdict in enumerate(verdicts):
            if number:
                yield ""
            yield from wrapped(f"{_head(verdict)}{_class(verdict.klass, files)}", "", "    ")
            facts = [] if verdict.grade is Grade.NONE else [f"evidence: {verdict.grade}"]
            if verdict.action not in _SURE:
                facts.append(f"confidence: {verdict.confidence}")
            if facts:
                yield "  " + ", ".join(facts)
            for reason in verdict.reasons[: limits.reasons]:
                code = f" [{reason.code}]" if reason.code else ""
                yield from wrapped(reason.text + code, "  - ", "    ")
    step = next_step(analysis)
    if step:
        yield from wrapped(f"Next: {step}.", "  > ", "    ")


MOST_FULL = 2
"""More classes than this get a line each."""


def _short_verdicts(
    verdicts: Sequence[ClassVerdict], files: Collection[str], limits: Limits
) -> Iterator[str]:
    """One or two lines per class, then their common lines."""
    counts = Counter(reason for verdict in verdicts for reason in set(verdict.reasons))
    shared = [reason for reason, count in counts.items() if count > 1]
    most = 2 * MOST_LINES // 3
    for verdict in verdicts[:most]:
        own = [reason for reason in verdict.reasons if reason not in shared]
        sure = "" if verdict.action in _SURE else f" ({verdict.confidence})"
        why = f": {own[0].text}" if own else ""
        line = f"{_head(verdict)}{sure}{_class(verdict.klass, files)}{why}"
        yield from _cut(wrapped(line, "", "    "), limits.verdict_lines)
    if len(verdicts) > most:
        yield f"  ... {len(verdicts) - most} more classes with --json"
    for reason in shared[: limits.reasons]:
        yield from wrapped(reason.text, "  - ", "    ")


def _head(verdict: ClassVerdict) -> str:
    head = _HEADLINES[verdict.action]
    if verdict.k is not None and verdict.action.gains:
        head += f" (k = {verdict.k})"
    return head


def _comparisons(analysis: Analysis, most: int) -> Iterator[str]:
    if not analysis.comparisons or not most:
        return
    yield "COMPARISONS (above 1 the arm is better than its baseline)"
    rows: list[tuple[str, ...]] = [("class", "arm", "baseline", "metric", "speedup", "")]
    for c in analysis.comparisons[:most]:
        note = "" if c.comparable else "not comparable"
        if c.ci:
            note = f"{c.ci[0]:.3f}-{c.ci[1]:.3f} {note}"
        rows.append(
            (_short_class(c.klass), c.arm, c.baseline, c.metric, f"{c.speedup:.3f}x", note.strip())
        )
    yield from table(rows, (18, 16, 12, 16, 8, 14))
    if len(analysis.comparisons) > most:
        yield f"  ... {len(analysis.comparisons) - most} more with --json"


def _windows(analysis: Analysis, names: Mapping[str, str], most: int) -> Iterator[str]:
    shown = [
        w
        for w in analysis.windows
        if w.drafts or w.proposed or w.mean_length is not None or w.acceptance_rate is not None
    ]
    if not shown:
        return
    yield "MEASURED (tokens/round counts the bonus token)"
    rows: list[tuple[str, ...]] = [
        ("window", "k", "drafts", "accepted", "rate", "tok/round", "covered", "tok/s", "ms/round")
    ]
    several = len({w.engine_index for w in shown} - {None}) > 1
    for window in shown[:most]:
        mark = "*" if window.excluded else ""
        rows.append((mark + _window_name(window, several, names), *_cells(window)))
    if len(shown) > most:
        rows.append((f"... {len(shown) - most} more", "", "", "", "", "", "", "", ""))
    if analysis.totals and len(shown) > 1:
        rows.append(("TOTAL", *_cells(analysis.totals)))
    yield from table(rows, (20, 3, 7, 8, 6, 9, 7, 8, 8), right=True)
    if any(w.excluded for w in shown[:most]):
        reasons = sorted({w.excluded for w in shown[:most] if w.excluded})
        yield from wrapped(f"* left out of the total: {'; '.join(reasons)}", "  ", "    ")
    if any(w.estimated for w in shown):
        guessed = sorted({name for w in shown for name in w.estimated})
        yield from wrapped(
            f"estimated, not printed by the engine: {', '.join(guessed)}", "  ", "    "
        )


def _time(time: TimeParts | None) -> Iterator[str]:
    if time is None or not (time.parts_ms or time.round_ms or time.idle_share is not None):
        return
    if time.rounds:
        yield f"TIME OF A ROUND (mean of {time.rounds})"
        whole = time.round_ms
        for name in ("draft", "verify", "sample", "idle"):
            value = getattr(time, f"{name}_ms")
            if value is not None:
                share = f"{value / whole:6.1%}" if whole else ""
                yield f"  {name:8} {value:10.3f} ms {share}"
        if whole:
            yield f"  {'round':8} {whole:10.3f} ms"
    elif time.parts_ms:
        yield "TIME BY PART (sums)"
        total = sum(time.parts_ms.values()) or 1.0
        for name, value in sorted(time.parts_ms.items(), key=lambda item: -item[1]):
            yield f"  {name:18} {value:10.2f} ms {value / total:6.1%}"
    if time.trace_coverage is not None:
        yield f"  trace coverage {time.trace_coverage:.0%} (launches with kernels)"


def _devices(analysis: Analysis) -> Iterator[str]:
    if not analysis.devices:
        return
    yield "DEVICES"
    rows: list[tuple[str, ...]] = [("device", "field", "value", "unit")]
    for d in analysis.devices[:24]:
        value = f"{d.value:.4g}" if d.value is not None else str(d.reason)
        name = (d.uuid or "-")[-12:] + (f"/{d.gpu_instance}" if d.gpu_instance else "")
        rows.append((name, d.field, value, d.unit or ""))
    yield from table(rows, (14, 32, 24, 6))


def _findings(analysis: Analysis, names: Mapping[str, str], limits: Limits) -> Iterator[str]:
    """Findings that the verdicts do not repeat; `--json` has all of them."""
    repeated = {reason for verdict in analysis.verdicts for reason in verdict.reasons}
    entries = [
        entry
        for entry in analysis.findings
        if entry.code not in _SHOWN_ELSEWHERE and Sentence(entry.text, entry.code) not in repeated
    ]
    if not entries:
        return
    yield "FINDINGS (`specscope analyze --codes` explains each)"
    several = len(analysis.inputs) > 1
    for entry in entries[: limits.findings]:
        times = f" [{entry.count} times]" if entry.count > 1 else ""
        where = f" [{names.get(entry.input, entry.input)}]" if several and entry.input else ""
        text = f"{entry.code}: {entry.text}{times}{where}"
        yield from _cut(wrapped(text, f"  {entry.severity:8}", " " * 10), limits.finding_lines)
    if len(entries) > limits.findings:
        yield f"  ... {len(entries) - limits.findings} more with --json"


def _cut(lines: Sequence[str], most: int) -> list[str]:
    """Limit the lines; the last line then states how many are missing."""
    if len(lines) <= most:
        return list(lines)
    return [*lines[: most - 1], lines[most - 1][: WIDTH - 1] + "~"]


def _inputs(analysis: Analysis, names: Mapping[str, str], most: int) -> Iterator[str]:
    yield "INPUTS"
    for info in analysis.inputs[:most]:
        engine = f", {info.engine}" if info.engine else ""
        version = f" {info.engine_version}" if info.engine_version else ""
        unparsed = f", {info.unparsed_lines} lines not understood" if info.unparsed_lines else ""
        what = f"{info.format}{engine}{version}, {info.records} records{unparsed}"
        text = f"{names[info.path]}: {what if info.format else 'not recognised, left out'}"
        yield from wrapped(text, "  ", "    ")
    if len(analysis.inputs) > most:
        yield f"  ... {len(analysis.inputs) - most} more with --json"


def _cells(window: Window) -> tuple[str, ...]:
    def number(value: float | None, form: str) -> str:
        return format(value, form) if value is not None else "-"

    return (
        number(window.k, "d"),
        number(window.drafts, "d"),
        number(window.accepted, "d"),
        number(window.acceptance_rate, ".1%"),
        number(window.mean_length, ".3f"),
        number(window.coverage, ".0%"),
        number(window.throughput_tok_s, ".1f"),
        number(window.round_ms, ".2f"),
    )


def _window_name(window: Window, several: bool, names: Mapping[str, str]) -> str:
    parts = [window.label] if window.label else []
    if several and window.engine_index is not None:
        parts.append(f"e{window.engine_index}")
    if window.start:
        parts.append(window.start[-14:])
    return " ".join(parts) or names.get(window.input, window.input)


def _class(klass: Mapping[str, Any], files: Collection[str]) -> str:
    """The class in words: its dimensions, then its file and engine."""
    file = klass.get("label") in files
    hidden = {"engine", "version"} | ({"label"} if file else set())
    own = {n: v for n, v in klass.items() if n not in hidden}
    engine = f"{klass.get('engine', '')} {klass.get('version', '')}".strip()
    where = [str(klass["label"])] if file else []
    where += [engine] if engine else []
    text = ", ".join(f"{name} {value}" for name, value in own.items())
    return (f" for {text}" if text else "") + (f" ({', '.join(where)})" if where else "")


def _short_class(klass: Mapping[str, Any]) -> str:
    short = {"concurrency": "conc", "context": "ctx", "output_tokens": "out", "batch": "bs"}
    return (
        " ".join(f"{short.get(n, n)}={v}" for n, v in sorted(klass.items(), reverse=True)) or "all"
    )
