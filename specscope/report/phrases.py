"""The words of a report: one function a kind of row, shared by page, text and terminal."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from specscope.evaluate.experiment.blocks import arm_k
from specscope.evaluate.experiment.objectives import METRICS
from specscope.evaluate.verdict import words
from specscope.evaluate.verdict.verdict import Action, Why
from specscope.report.model import (
    ArmRow,
    ChangeRow,
    EventRow,
    FleetRow,
    Interval,
    LossCauses,
    PromiseRow,
    Report,
    SegmentRow,
    Worth,
)

# Said of every arm; the table has room for the deciding one's.
ABOUT_ARMS = frozenset({Why.BREAK_EVEN, Why.THIN, Why.WORSENS})


BESIDE_THE_TABLE = frozenset({Why.BREAK_EVEN, Why.CROSSING})


def verdict(segment: SegmentRow) -> str:
    """The verdict in words."""
    return words.action(Action(segment.action), segment.k, segment.arm)


def deciding_arm(segment: SegmentRow) -> ArmRow | None:
    """The arm a verdict rests on: the one it keeps, or else the best of those that lose."""
    measured = [arm for arm in segment.arms if arm.speedup is not None]
    named = [
        arm for arm in measured if arm.arm == segment.arm or (arm.k == segment.k and segment.k)
    ]
    return max(named or measured, key=lambda arm: arm.speedup or 0.0, default=None)


def why(segment: SegmentRow, *, brief: bool = False) -> str:
    """The reasons for the table: flags, and of the reasons about single arms the deciding one's.

    brief: without what the other columns of a table say, or only a page has room for.
    """
    best = deciding_arm(segment)
    left_out = BESIDE_THE_TABLE if brief else ()
    sentences = [one.text for one in segment.flags]
    sentences += [
        one.text
        for one in segment.reasons
        if one.code not in left_out
        and (one.code not in ABOUT_ARMS or best is None or one.arm == best.arm)
    ]
    if best and best.held_equal and not brief:
        sentences.append(f"{best.held_equal} held equal, as it came {number(best.unadjusted)}")
    return "; ".join(sentences)


CHANGES = {
    "enable": "switch speculation on",
    "raise": "draft longer",
    "lower": "draft shorter",
    "disable": "switch speculation off",
    "route": "route it to a pool of its own",
    "adopt": "put another table in force",
}


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
    """What a change is worth, a line a quantity; the deciding one first."""
    worth = change.worth
    if worth is None:
        return ["what it is worth was not measured"]
    lines = [gain_said(worth)]
    before, after = worth.token_time_p95_ms
    if before is not None and after is not None:
        lines.append(f"p95 of time per token {number(before, 1)} to {number(after, 1)} ms")
    hours, unit = worth.gpu_hours or worth.replica_hours, "GPU" if worth.gpu_hours else "replica"
    saved = worth.metric == METRICS["throughput"]
    if hours is not None:
        lines.append(_saved(hours, f"{unit}-hours" if saved else f"busy {unit}-hours"))
    if worth.money is not None:
        lines.append(_saved(worth.money, "in the currency of your price"))
    return lines


def _saved(one: Interval, of: str) -> str:
    """What a week takes less, or more."""
    if one.value >= 0:
        return f"saves {_quantity(one)} {of} a week"
    limits = (None if end is None else -end for end in (one.high, one.low))
    return f"takes {_quantity(Interval(-one.value, *limits))} {of} more a week"


def gain_said(worth: Worth) -> str:
    """How much better the new arm is, in the metric that decides."""
    one = worth.speedup
    if worth.metric == METRICS["throughput"]:
        return f"{percent_more(one)} output tokens per second"
    if worth.metric == METRICS["latency"]:
        limits = (None if end is None else 1.0 / end for end in (one.high, one.low))
        return f"{percent_more(Interval(1.0 / one.value, *limits))} time per output token"
    return f"{percent_more(one)} speed, between tokens per second and time per token"


def percent_more(ratio: Interval) -> str:
    """How much more a ratio is than 1, with its interval."""
    span = (
        ""
        if ratio.low is None or ratio.high is None
        else f" ({100 * (ratio.low - 1):+.1f} to {100 * (ratio.high - 1):+.1f})"
    )
    return f"{100 * (ratio.value - 1):+.1f} %{span}"


def _quantity(one: Interval) -> str:
    span = "" if one.low is None or one.high is None else f" ({one.low:.3g} to {one.high:.3g})"
    return f"{one.value:.3g}{span}"


def why_it_loses(report: Report) -> list[tuple[str, LossCauses]]:
    """Of each segment that does not gain: its name, and why the arm loses that loses least."""
    found = []
    for segment in report.segments:
        if segment.cause_odds and segment.causes:
            found.append((segment.name, max(segment.causes, key=lambda loss: loss.speedup)))
    return found


def not_looked_for(report: Report) -> list[tuple[str, list[str]]]:
    """What the store lacks, and the causes that it hides, over all losses of the page."""
    hidden: dict[str, list[str]] = {}
    for _, loss in why_it_loses(report):
        for cause, needs in loss.unseen.items():
            for need in needs:
                if cause not in hidden.setdefault(need, []):
                    hidden[need].append(cause)
    return sorted(hidden.items())


def outputs_said(report: Report) -> str:
    """Whether speculation left the output alone, in a sentence."""
    if report.outputs_state is None:
        return (
            "No output was compared: no greedy or coupled request ran in two arms. "
            "`specscope lossless` compares them."
        )
    counts = f"{report.outputs_differing} of {report.outputs_compared} outputs differ"
    return {
        "equal": f"Outputs are the same: {counts} between arms.",
        "as_twins": f"{counts} between arms, no more than target-only differs from itself.",
        "undecided": f"{counts} between arms; whether target-only differs from itself as often "
        "is not known well enough: repeat requests within k0.",
        "differs": f"Speculation changes outputs: {counts}, more than target-only does by itself.",
    }[report.outputs_state]


def number(value: float | None, digits: int = 2) -> str:
    """A number for a person; a dash where it is not known."""
    return "–" if value is None else f"{value:.{digits}f}"


def interval(low: float | None, high: float | None) -> str:
    """An interval for a person; a dash where it is not known, as from one pair."""
    return "–" if low is None or high is None else f"{low:.2f} – {high:.2f}"


def milliseconds(value: float | None) -> str:
    """A time for a person, in whole milliseconds; a dash if it is not known."""
    return "–" if value is None else f"{value:.0f} ms"


def percent(value: float | None) -> str:
    """A share for a person; a dash if it is not known."""
    return "–" if value is None else f"{value:.0%}".replace("%", " %")


def odds(value: float | None) -> str:
    """Odds of a cause for a person."""
    return "not ruled out" if value is None else f"{value:.0%}"


def moment(value: datetime) -> str:
    """A time for a person."""
    return value.strftime("%Y-%m-%d %H:%M UTC")


def priced(report: Report) -> list[tuple[str, ArmRow]]:
    """Arms whose tokens have a cost, each with the name of its segment."""
    return [
        (segment.name, arm)
        for segment in report.segments
        for arm in segment.arms
        if arm.cost_per_million is not None
    ]


def metrics_said(report: Report) -> list[str]:
    """What the speedups are of, a line a metric; it names the traffic where there are several."""
    of: dict[str, list[str]] = {}
    for segment in report.segments:
        if segment.metric:
            of.setdefault(segment.metric, []).append(segment.name)
    return [
        f"Speedup of {'; '.join(names)}: {metric}" if len(of) > 1 else f"Speedup: {metric}"
        for metric, names in of.items()
    ]


def worth_trying(report: Report) -> list[str]:
    """A line a segment: draft lengths that may be worth a trial, the most promising first."""
    lengths: dict[str, list[str]] = {}
    for row in sorted(report.untried, key=lambda row: (-row.at_best, row.k)):
        if row.worth == "worth_exploring":
            lengths.setdefault(row.segment, []).append(f"k = {row.k} {number(row.at_best)}x")
    return [
        f"{segment}: untried, and at best {', '.join(said)} of target-only at its batch"
        for segment, said in sorted(lengths.items())
    ]


def fleet_said(row: FleetRow) -> str:
    """An arm over the whole fleet, in a line."""
    return (
        f"{row.arm} over {row.segments} kinds of traffic together: {number(row.standardised)}x at "
        f"the fleet's mix, {number(row.pooled)}x pooled"
    )


OUTCOMES = {
    "held": "held",
    "more": "gave more than promised",
    "less": "gave less than promised",
    "open": "not known yet: too few pairs since",
    "not_measured": "not measured again",
}


def outcome_said(row: PromiseRow) -> str:
    """What came of a promise, in words."""
    return OUTCOMES[row.outcome]


def promised_said(row: PromiseRow) -> str:
    """The verdict of then, in words."""
    return words.action(Action(row.action), row.k, row.arm)


def last_week(report: Report) -> list[PromiseRow]:
    """Promises of the newest week that has any."""
    newest = max((row.until for row in report.promises), default=None)
    return [row for row in report.promises if row.until == newest]


def kept_said(report: Report) -> str:
    """What came of all promises, in a sentence."""
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


EVENTS = {
    "policy": "a policy came into force",
    "rollback": "an earlier table came back into force",
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
