"""Promises of earlier weeks and their outcome, the trend of verdicts, and events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from specscope.assess import Assessment, JudgedExperiment
from specscope.evaluate.experiment.estimate import Estimate
from specscope.evaluate.verdict.again import measured_again
from specscope.evaluate.verdict.fleet import segment_names
from specscope.evidence.past import PastVerdict, promises
from specscope.report import model

DAY_NS = 86_400 * 10**9
WEEK_NS = 7 * DAY_NS
WEEKS = 12  # that the trend shows and promises are followed over
MOST_NAMES = 3  # of replicas, in an event of many


def promise_rows(
    judged: Assessment, past: Sequence[PastVerdict], names: Mapping[str, str], now: int
) -> list[model.PromiseRow]:
    """Promises of each earlier week, the newest week first.

    A week's promises are its last verdicts on each segment. Their outcome comes from pairs that
    began in the following week; for last week's promises, from all pairs until now. names: names of
    load buckets. now: ns since 1970.
    """
    called = segment_names(((one.epoch, one.segment) for one in past), names)
    current = {(v.epoch, v.segment): v.current for v in judged.verdicts}
    by_kind = {one.kind: one for one in judged.experiments}
    rows = []
    for week in range(1, WEEKS + 1):
        made_at = now - week * WEEK_NS
        for one in promises(past, made_at - WEEK_NS, made_at):
            # What was judged from a day's pairs cannot be told by pairs of the same day.
            again = _again(by_kind.get(one.design), one, made_at + WEEK_NS, is_over=week > 1)
            rows.append(_promise(one, again, called, current, made_at + WEEK_NS))
    return rows


def trend_rows(past: Sequence[PastVerdict], names: Mapping[str, str]) -> list[model.TrendRow]:
    """Verdicts by kind of traffic, over every epoch. names: names of load buckets."""
    # One line for a kind of traffic, whatever the epoch: a new one begins at a deploy.
    called = segment_names((("", one.segment) for one in past), names)
    points: dict[str, list[model.TrendPoint]] = defaultdict(list)
    for one in past:
        points[called["", one.segment]].append(
            model.TrendPoint(
                at=_moment(one.assessed_at),
                epoch=one.epoch,
                action=one.action,
                k=one.k,
                speedup=one.speedup,
                low=one.low,
                high=one.high,
            )
        )
    return [model.TrendRow(name, of_kind) for name, of_kind in sorted(points.items())]


def kept_replay_rows(rows: Sequence[Mapping[str, Any]]) -> list[model.KeptReplayRow]:
    """Replays in the store, the newest first; within a replay, all traffic comes after its classes.
    rows: those of `queries.replays`."""
    return [
        model.KeptReplayRow(
            at=_moment(row["at"]),
            label=row["class"],
            arm=row["arm"] or "",
            baseline=row["baseline"] or "",
            speedup=None
            if row["speedup"] is None
            else model.Interval(row["speedup"], row["low"], row["high"]),
            metric=row["metric"] or "",
            **{
                name: row[name]
                for name in ("action", "k", "grade", "confidence", "requests", "trace", "epoch")
            },
        )
        for row in sorted(rows, key=lambda row: (-row["at"], not row["class"], row["class"]))
    ]


def event_rows(rows: Sequence[Mapping[str, Any]]) -> list[model.EventRow]:
    """Events, oldest first, merged by kind, day and note. rows: those of `queries.events`."""
    alike: dict[tuple[Any, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        note = row["note"] or row["subject"]
        alike[row["at"] // DAY_NS, row["kind"], row["author"], note].append(row)
    return [_event(of_day, note) for (*_, note), of_day in alike.items()]


def _event(rows: Sequence[Mapping[str, Any]], note: str) -> model.EventRow:
    first = rows[0]
    replicas = sorted({row["replica"] for row in rows if row["replica"]})
    shown = ", ".join(replicas[:MOST_NAMES])
    more = len(replicas) - MOST_NAMES
    return model.EventRow(
        at=_moment(first["at"]),
        kind=first["kind"],
        replica=f"{shown} and {more} more" if more > 0 else shown,
        author=first["author"] or "",
        note=note,
        replicas=len(replicas),
    )


def _again(
    experiment: JudgedExperiment | None, one: PastVerdict, until: int, *, is_over: bool
) -> Estimate | None:
    if experiment is None or experiment.paired is None or one.arm is None or one.baseline is None:
        return None
    return measured_again(
        experiment.paired,
        (one.epoch, one.segment),
        (one.arm, one.baseline),
        (one.assessed_at, until),
        one.metric,
        is_over=is_over,
    )


def _promise(
    one: PastVerdict,
    again: Estimate | None,
    called: Mapping[Any, str],
    current: Mapping[Any, int | None],
    until: int,
) -> model.PromiseRow:
    key = one.epoch, one.segment
    promised = model.Interval(one.speedup or 0.0, one.low, one.high)
    measured = None if again is None else model.Interval(again.value, again.low, again.high)
    return model.PromiseRow(
        segment=called[key],
        at=_moment(one.assessed_at),
        until=_moment(until),
        action=one.action,
        k=one.k,
        arm=one.arm or "",
        promised=promised,
        measured=measured,
        pairs=0 if again is None else again.pairs,
        current=current.get(key),
        outcome=outcome(promised, measured),
    )


def outcome(promised: model.Interval, measured: model.Interval | None) -> str:
    """Outcome of a promise: held, more, less, open or not_measured."""
    if measured is None:
        return "not_measured"
    if measured.low is None or measured.high is None:
        return "open"
    if promised.low is not None and measured.high < promised.low:
        return "less"
    if promised.high is not None and measured.low > promised.high:
        return "more"
    same_side = measured.low > 1.0 if promised.value > 1.0 else measured.high < 1.0
    return "held" if same_side else "open"


def _moment(ns: int) -> datetime:
    return datetime.fromtimestamp(ns / 1e9, UTC)
