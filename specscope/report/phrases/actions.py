"""Sentences about proposed actions, outcomes of promises, and events."""

from __future__ import annotations

from collections import Counter

from specscope.evaluate.experiment.blocks import arm_k
from specscope.evaluate.experiment.objectives import METRICS
from specscope.evaluate.verdict import words
from specscope.evaluate.verdict.verdict import Action
from specscope.report.model import (
    ChangeRow,
    EventRow,
    Interval,
    KeptReplayRow,
    PromiseRow,
    Report,
    Worth,
)
from specscope.report.phrases.numbers import (
    moment,
    number,
    percent_more,
    quantity,
)

CHANGES = {
    "enable": "switch speculation on",
    "raise": "draft longer",
    "lower": "draft shorter",
    "disable": "switch speculation off",
    "route": "route it to its own pool",
    "adopt": "put another table in force",
}


def nothing_to_do(report: Report) -> str:
    """Why no change of the gate is proposed."""
    if not report.segments:
        return (
            "Nothing yet: no experiment ran. The command specscope gate plan estimates one, "
            "and specscope gate calibrate runs it."
        )
    if all(Action(one.action).settles and one.confidence == "high" for one in report.segments):
        return "No change: all traffic already runs its best draft length, or no change pays."
    return "Nothing yet: no change of the gate has enough evidence."


def change_said(change: ChangeRow) -> str:
    """A change of the gate in words."""
    return f"{CHANGES[change.rule]}: {length_said(change)}"


def length_said(change: ChangeRow) -> str:
    """The draft lengths before and after, or the table that replaces the one in force."""
    if change.arm is not None:
        k = arm_k(change.arm)
        return f"the table in force to {f'that of {change.arm}' if k is None else f'k = {k}'}"
    return f"k = {change.old_k} to k = {change.new_k}"


def worth_said(change: ChangeRow) -> list[str]:
    """What a change is worth, a line per quantity; the deciding one first."""
    worth = change.worth
    if worth is None:
        return ["worth not measured"]
    lines = [gain_said(worth)]
    before, after = worth.token_time_p95_ms
    if before is not None and after is not None:
        lines.append(f"p95 of time per token {number(before, 1)} to {number(after, 1)} ms")
    hours, unit = worth.gpu_hours or worth.replica_hours, "GPU" if worth.gpu_hours else "replica"
    saved = worth.metric == METRICS["throughput"]
    if hours is not None:
        lines.append(_saved(hours, f"{unit} hours" if saved else f"busy {unit} hours"))
    if worth.money is not None:
        lines.append(_saved(worth.money, "in the currency of your price"))
    return lines


def _saved(one: Interval, of: str) -> str:
    """Savings or extra cost per week, in words."""
    if one.value >= 0:
        return f"saves {quantity(one, f'{of} per week')}"
    limits = (None if end is None else -end for end in (one.high, one.low))
    return f"takes {quantity(Interval(-one.value, *limits), f'more {of} per week')}"


def gain_said(worth: Worth, *, brief: bool = False) -> str:
    """The gain of the new arm in the deciding metric, in words. brief: for a narrow column."""
    one = worth.speedup
    if worth.metric == METRICS["throughput"]:
        return f"{percent_more(one)} {'tokens/s' if brief else 'output tokens per second'}"
    if worth.metric == METRICS["latency"]:
        of = "time/token" if brief else "time per output token"
        return f"{percent_more(one.inverse)} {of}"
    of = "" if brief else ", between tokens per second and time per token"
    return f"{percent_more(one)} speed{of}"


OUTCOMES = {
    "held": "held",
    "more": "gave more than promised",
    "less": "gave less than promised",
    "open": "not known yet: too few pairs since then",
    "not_measured": "not measured again",
}


def outcome_said(row: PromiseRow) -> str:
    """The outcome of a promise, in words."""
    return OUTCOMES[row.outcome]


def promised_said(row: PromiseRow) -> str:
    """The promised verdict in words."""
    return words.action(Action(row.action), row.k, row.arm)


def last_week(report: Report) -> list[PromiseRow]:
    """Promises of the newest week with promises."""
    newest = max((row.until for row in report.promises), default=None)
    return [row for row in report.promises if row.until == newest]


def kept_said(report: Report) -> str:
    """The outcomes of all promises, in a sentence."""
    rows = report.promises
    counts = Counter(row.outcome for row in rows)
    again = len(rows) - counts["not_measured"]
    weeks = len({row.until for row in rows})
    verdicts = f"{len(rows)} verdict{'s' if len(rows) != 1 else ''}"
    return (
        f"Of {verdicts} in {weeks} week{'s' if weeks != 1 else ''} that named a gain or a loss, "
        f"later pairs measured {again} again: {counts['held']} held, {counts['more']} gave more, "
        f"{counts['less']} gave less, {counts['open']} need more pairs"
    )


def replay_said(row: KeptReplayRow) -> str:
    """The verdict of a kept replay, in words."""
    said = words.action(Action(row.action), row.k, row.arm)
    return said if row.grade == "none" else f"{said} ({row.grade}, confidence {row.confidence})"


EVENTS = {
    "policy": "a policy took effect",
    "rollback": "an earlier table was restored",
    "detach": "a policy detached the hooks",
    "guardrail": "a guardrail lowered k to 0",
    "deploy": "a deploy",
    "experiment": "experiment",
    "note": "note",
}


def event_said(event: EventRow) -> str:
    """A change or an incident, in a line."""
    of = f" of {event.replica}" if event.replica else ""
    author = f" by {event.author}" if event.author else ""
    return f"{moment(event.at)}: {EVENTS.get(event.kind, event.kind)}{of}{author}: {event.note}"


def worth_trying(report: Report) -> list[str]:
    """A line per segment: draft lengths that may be worth a trial, the most promising first."""
    lengths: dict[str, list[str]] = {}
    for row in sorted(report.untried, key=lambda row: (-row.at_best, row.k)):
        if row.worth == "worth_exploring":
            lengths.setdefault(row.segment, []).append(f"k = {row.k} {number(row.at_best)}x")
    return [
        f"{segment}: untried; at most {', '.join(said)} of target-only"
        for segment, said in sorted(lengths.items())
    ]
