"""A replay's result as a Markdown page, for an issue or a pull request."""

from __future__ import annotations

from datetime import UTC, datetime

from specscope.evaluate.verdict import words
from specscope.evaluate.verdict.verdict import Grade
from specscope.replay.contrast import Gain
from specscope.replay.judge import Replayed
from specscope.replay.result import ReplayResult
from specscope.replay.show import after_verdicts, answer


def markdown(result: ReplayResult) -> str:
    """Render the page. All of its figures are in the JSON too."""
    a, b = result.arms
    created = datetime.fromtimestamp(result.created_at / 1e9, UTC)
    lines = [
        f"# {b} against {a} on one trace",
        "",
        f"{created:%Y-%m-%d %H:%M} UTC; {result.requests} requests, "
        f"trace {result.trace_sha256[:12]}",
        "",
        f"| traffic | verdict | requests | {a} | {b} | {b} is faster by |",
        "|---|---|---|---|---|---|",
    ]
    for one in result.judged.verdicts:
        lines += _rows(one, result)
    lines.append("")
    lines += [f"- **{flag}**: {words.flag(flag)}" for flag in result.judged.flags]
    lines += [f"- {line}" for line in after_verdicts(result)]
    settings = ", ".join(
        f"{name.replace('_', ' ')} {value}"
        for name, value in result.how.items()
        if value not in (None, False)
    )
    lines += ["", f"Settings: {settings}. {a} is {result.urls[0]}, {b} is {result.urls[1]}.", ""]
    return "\n".join(lines)


def _rows(one: Replayed, result: ReplayResult) -> list[str]:
    """A row per metric; the first one decides and has the verdict too."""
    traffic = one.verdict.segment.class_ or "**all traffic**"
    said = answer(one.verdict, result.arms)
    if one.verdict.grade is not Grade.NONE:
        said += f" ({one.verdict.grade}, confidence {one.verdict.confidence})"
    if not one.gains:
        return [f"| {traffic} | {said} | {one.requests} | – | – | – |"]
    rows = []
    for place, gain in enumerate(one.gains):
        head = [traffic, said, str(one.requests)] if place == 0 else ["", "", ""]
        cells = [*head, _value(gain, gain.a), _value(gain, gain.b), _times(gain)]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def _value(gain: Gain, value: float) -> str:
    return f"{gain.metric} {value:.4g} {gain.unit}"


def _times(gain: Gain) -> str:
    if gain.low is None or gain.high is None:
        return f"{gain.value:.3f}, no interval"
    return f"{gain.value:.3f} ({gain.low:.3f} to {gain.high:.3f})"
