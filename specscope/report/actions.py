"""What to do this week: the gate's moves, each with its worth at the fleet's traffic.

The gate decides on the moves; this module only computes their worth: a ratio with its interval,
times the fleet's output tokens. If an engine keeps up with its arrivals, the ratio is one of time
per token. Such a move gains no tokens and saves no replica hours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from specscope.evaluate.experiment.blocks import IN_FORCE
from specscope.evaluate.experiment.objectives import METRICS
from specscope.evaluate.experiment.segments import Segment
from specscope.evaluate.experiment.summary import ArmSummary
from specscope.evaluate.verdict.verdict import Metric, Verdict
from specscope.gate.export import ENGINES, export
from specscope.gate.recommend import Recommendation
from specscope.gate.rules import Move
from specscope.gate.show import diff_lines
from specscope.policy.table import GateTable
from specscope.report import model

MOST = 5
WEEK_H = 7 * 24.0

Names = Mapping[tuple[str, Segment], str]
Tokens = Mapping[tuple[str, str], float]
"""Output tokens per week, by class and bucket of context."""


def change_rows(
    found: Recommendation, names: Names, tokens: Tokens, gpus: Mapping[str, int]
) -> list[model.ChangeRow]:
    """At most MOST changes, sorted by worth.

    names: the report's names of segments. tokens: the fleet's output tokens per week. gpus: devices
    per replica, by epoch.
    """
    shares = _shares(found.verdicts)
    rows = []
    for move in found.changes:
        verdict = move.place.verdict
        weekly = _weekly(verdict.segment, tokens)
        if weekly is not None:
            weekly *= shares[_kind(verdict.segment)].get(verdict.segment, 1.0)
        old, new = _arms(move, found.old)
        worth = _worth(
            verdict,
            (old, new),
            weekly,
            gpus.get(verdict.epoch, 0),
            found.assessment.of_hour.get(verdict.epoch),
        )
        row = model.ChangeRow(
            segment=names[verdict.epoch, verdict.segment],
            rule=move.rule,
            old_k=move.old_k,
            new_k=move.new_k,
            arm=None if move.table is None else new,
            grade=verdict.grade,
            confidence=verdict.confidence,
            pairs=verdict.pairs,
            cell=str(move.place.with_k(move.new_k)),
            worth=worth,
        )
        gain = 0.0 if worth is None else 1.0 - 1.0 / worth.speedup.value
        rows.append(((weekly or 0.0) * gain, gain, row))
    rows.sort(key=lambda one: one[:2], reverse=True)
    return [row for *_, row in rows[:MOST]]


def how(found: Recommendation, engines: Sequence[str]) -> model.HowRow | None:
    """The table's change, the command that applies it, and flags for engines that read a table at
    their start. None if nothing changes. engines: names of the fleet's engines."""
    if not found.changes:
        return None
    flags = {}
    for engine in sorted(set(engines) & set(ENGINES)):
        flags[engine] = dict(export(engine, found.new, found.moves).settings)
    return model.HowRow(
        diff=diff_lines(found.old, found.new),
        command="specscope gate apply --note 'weekly report'",
        engine_flags=flags,
    )


def tokens_a_week(rows: Sequence[Mapping[str, Any]]) -> Tokens:
    """Output tokens per week, from rows of `queries.tokens_by_class`; each row repeats the period's
    hours."""
    scale = WEEK_H / max(rows[0]["hours"], 1.0) if rows else 0.0
    return {(row["class"], row["context_bucket"]): scale * row["emitted"] for row in rows}


def _arms(move: Move, in_force: GateTable) -> tuple[str, str]:
    """Names of the arm that runs now and of its replacement."""
    if move.table is None:
        return f"k{move.old_k}", f"k{move.new_k}"
    old = IN_FORCE if in_force.cells else f"k{in_force.default_k}"
    if move.table.cells:
        return old, move.place.verdict.arm or ""
    return old, f"k{move.table.default_k}"


def _worth(
    verdict: Verdict,
    arms: tuple[str, str],
    tokens: float | None,
    gpus: int,
    price: float | None,
) -> model.Worth | None:
    """Gain of the second arm over the first; None if no pair ran both.

    tokens: output per week.
    """
    speedup = _speedup(verdict, *arms)
    if speedup is None:
        return None
    by_name = {arm.arm: arm for arm in verdict.arms}
    old, new = by_name.get(arms[0]), by_name.get(arms[1])
    pinned = verdict.metric != METRICS["throughput"]
    less_busy = _less_busy(verdict, *arms) if pinned else speedup
    hours = None
    if tokens is not None and old is not None and old.tokens_per_s > 0 and less_busy is not None:
        now_h = tokens / old.tokens_per_s / 3600.0
        hours = _each(less_busy, lambda ratio: now_h * (1.0 - 1.0 / ratio))
    return model.Worth(
        metric=verdict.metric,
        speedup=speedup,
        tokens_per_second=None if old is None or pinned else _each(speedup, _more_tokens(old)),
        token_time_p95_ms=(_p95(old), _p95(new)),
        replica_hours=hours,
        gpu_hours=None if hours is None or not gpus else _each(hours, lambda h: gpus * h),
        money=None
        if hours is None or price is None or pinned
        else _each(hours, lambda h: price * h),
    )


def _more_tokens(old: ArmSummary) -> Callable[[float], float]:
    return lambda ratio: old.tokens_per_s * (ratio - 1.0)


def _each(one: model.Interval, of: Callable[[float], float]) -> model.Interval:
    """Apply a rising function to a value and to both ends of its interval."""
    return model.Interval(
        of(one.value),
        None if one.low is None else of(one.low),
        None if one.high is None else of(one.high),
    )


def _speedup(verdict: Verdict, old: str, new: str) -> model.Interval | None:
    """Ratio of the new arm to the old one, in the deciding metric; None if no pair ran both."""
    met = {(one.arm, one.baseline): one for one in (*verdict.speedups, *verdict.between)}
    if (one := met.get((new, old))) is not None:
        return model.Interval(one.value, one.low, one.high)
    if (one := met.get((old, new))) is not None:
        return model.Interval(one.value, one.low, one.high).inverse
    return None


def _less_busy(verdict: Verdict, old: str, new: str) -> model.Interval | None:
    """Ratio of busy device time per token, old arm to new arm."""
    for one in verdict.tradeoffs:
        if one.metric is Metric.DEVICE_TIME and one.ratio > 0:
            ratio = model.Interval(one.ratio, one.low, one.high)
            if (one.arm, one.baseline) == (new, old):
                return ratio.inverse
            if (one.arm, one.baseline) == (old, new):
                return ratio
    return None


def _p95(arm: ArmSummary | None) -> float | None:
    return arm.tpot_p95_ms.value if arm is not None and arm.tpot_p95_ms is not None else None


def _kind(segment: Segment) -> tuple[str | None, str | None]:
    return segment.class_, segment.context


def _shares(
    verdicts: Sequence[Verdict],
) -> dict[tuple[str | None, str | None], dict[Segment, float]]:
    """Share of each segment in the output tokens of its class and context."""
    yielded: dict[tuple[str | None, str | None], dict[Segment, float]] = defaultdict(dict)
    for verdict in verdicts:
        emitted = float(sum(arm.emitted for arm in verdict.arms))
        yielded[_kind(verdict.segment)][verdict.segment] = emitted
    return {
        kind: {segment: tokens / (sum(of.values()) or 1.0) for segment, tokens in of.items()}
        for kind, of in yielded.items()
    }


def _weekly(segment: Segment, tokens: Tokens) -> float | None:
    """Output tokens per week of a segment's class and context; None if unknown."""
    chosen = [
        amount
        for (class_, context), amount in tokens.items()
        if segment.class_ in (None, class_) and segment.context in (None, context)
    ]
    return sum(chosen) if chosen else None
