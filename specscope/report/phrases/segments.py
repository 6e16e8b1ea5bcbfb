"""Sentences about one kind of traffic, and about all traffic together."""

from __future__ import annotations

from specscope.assess import decisive
from specscope.evaluate.verdict import words
from specscope.evaluate.verdict.verdict import Action, Metric, Why
from specscope.report.model import (
    ArmRow,
    FleetRow,
    LossCauses,
    Report,
    SegmentRow,
    TradeoffRow,
)
from specscope.report.phrases.numbers import (
    number,
)
from specscope.store.buckets import LOAD

# Said of every arm; the table has room for the deciding one's.
ABOUT_ARMS = frozenset({Why.BREAK_EVEN, Why.THIN, Why.WORSENS, Why.CROSSING})


BESIDE_THE_TABLE = frozenset({Why.BREAK_EVEN, Why.CROSSING})


def verdict(segment: SegmentRow) -> str:
    """The verdict in words."""
    return words.action(Action(segment.action), segment.k, segment.arm)


def deciding_arm(segment: SegmentRow) -> ArmRow | None:
    """The arm that a verdict is based on; None if no arm has a speedup."""
    measured = [arm for arm in segment.arms if arm.speedup is not None]
    return decisive(measured, segment.arm, segment.k, lambda arm: arm.speedup or 0.0)


def why(segment: SegmentRow, *, brief: bool = False) -> str:
    """The reasons for a verdict: its flags, general reasons, and those about the deciding arm.

    brief: without reasons that repeat other columns of the table.
    """
    best = deciding_arm(segment)
    left_out = set(BESIDE_THE_TABLE if brief else ())
    if not Action(segment.action).gains:
        left_out.add(Why.WORSENS)  # an arm that loses is worse in other metrics too
    told = [
        one
        for one in segment.reasons
        if one.code not in left_out
        and (one.code not in ABOUT_ARMS or best is None or one.arm == best.arm)
    ]
    lacking = [one for one in told if one.code == Why.THIN]
    sentences = [one.text for one in segment.flags]
    sentences += [one.text for one in told if one.code != Why.THIN]
    for arm in dict.fromkeys(one.arm for one in lacking):
        sentences.append(words.thin(arm, [one.numbers for one in lacking if one.arm == arm]))
    if best and best.held_equal and not brief:
        sentences.append(f"corrected for {best.held_equal}; uncorrected {number(best.unadjusted)}")
    return "; ".join(sentences)


def why_it_loses(report: Report) -> list[tuple[str, LossCauses]]:
    """Each segment that loses, with the causes of the arm that loses least."""
    found = []
    for segment in report.segments:
        if segment.cause_odds and segment.causes:
            found.append((segment.name, max(segment.causes, key=lambda loss: loss.speedup)))
    return found


def not_looked_for(report: Report) -> list[tuple[str, list[str]]]:
    """Missing data, each with the causes that it leaves open."""
    hidden: dict[str, list[str]] = {}
    for _, loss in why_it_loses(report):
        for cause, needs in loss.unseen.items():
            for need in needs:
                if cause not in hidden.setdefault(need, []):
                    hidden[need].append(cause)
    return sorted(hidden.items())


def priced(report: Report) -> list[tuple[str, ArmRow]]:
    """Arms whose tokens have a cost, each with the name of its segment."""
    return [
        (segment.name, arm)
        for segment in report.segments
        for arm in segment.arms
        if arm.cost_per_million is not None
    ]


def metrics_said(report: Report) -> list[str]:
    """The metrics of the speedups, a line each; a line names its traffic if there are several
    metrics."""
    of: dict[str, list[str]] = {}
    for segment in report.segments:
        if segment.metric:
            of.setdefault(segment.metric, []).append(segment.name)
    return [
        f"Speedup of {'; '.join(names)}: {metric}" if len(of) > 1 else f"Speedup: {metric}"
        for metric, names in of.items()
    ]


def fleet_said(row: FleetRow) -> str:
    """An arm over the whole fleet, in a line."""
    return (
        f"{row.arm} over {row.segments} kinds of traffic together: {number(row.standardised)}x at "
        f"the fleet's mix, {number(row.pooled)}x pooled"
    )


def quality_said(segment: SegmentRow) -> str:
    """The losses that weaken a segment's evidence, in a sentence; empty if there are none."""
    quality, weak = segment.quality, []
    if quality.lost_share:
        share = max(quality.lost_share, 0.0001)
        weak.append(f"{100 * share:.2g} % of the records of its replicas are lost")
    if quality.tails:
        boots = "one of its boots" if quality.tails == 1 else f"{quality.tails} of its boots"
        weak.append(f"{boots}ended without closing the ring, so their last records may be missing")
    return "; ".join(weak)


def load_grid(report: Report) -> tuple[list[str], list[tuple[str, list[SegmentRow | None]]]]:
    """Offered loads, and the segment at each of them by class, context and output; None if none
    ran."""
    loads = sorted({one.load for one in report.segments}, key=lambda load: (LOAD.rank(load), load))
    kinds: dict[str, list[SegmentRow | None]] = {}
    for one in report.segments:
        epoch = f", epoch {one.epoch}" if len({s.epoch for s in report.segments}) > 1 else ""
        kind = f"{one.label}, context {one.context}, output {one.output}{epoch}"
        kinds.setdefault(kind, [None] * len(loads))[loads.index(one.load)] = one
    return loads, sorted(kinds.items())


def load_said(load: str) -> str:
    """A load in words: its name, such as `light load`, or its range, such as `load 2-4`."""
    return f"load {load}" if load[:1].isdigit() else f"{load} load"


def bargain(report: Report) -> list[tuple[str, TradeoffRow]]:
    """Other metrics of the arm that each verdict is based on, with the name of its segment."""
    rows = []
    for segment in report.segments:
        best = deciding_arm(segment)
        rows += [(segment.name, one) for one in segment.tradeoffs if best and one.arm == best.arm]
    return rows


def metric_said(row: TradeoffRow) -> str:
    """A metric of the bargain with its unit."""
    name, unit = words.METRICS[Metric(row.metric)]
    return f"{name} [{unit}]" if unit else name


def has_memory(report: Report) -> bool:
    """Whether any arm has a bandwidth or a share of busy memory."""
    arms = (arm for segment in report.segments for arm in segment.arms)
    return any(arm.bandwidth is not None or arm.dram_active is not None for arm in arms)


def graded(segment: SegmentRow) -> str:
    """Grade and confidence of a verdict; a dash if it has neither."""
    if segment.confidence == "none":
        return "–" if segment.grade == "none" else segment.grade
    return f"{'no grade' if segment.grade == 'none' else segment.grade}, {segment.confidence}"


def is_sure(segment: SegmentRow) -> bool:
    """Whether a gate may be changed on a verdict."""
    return segment.confidence == "high"
