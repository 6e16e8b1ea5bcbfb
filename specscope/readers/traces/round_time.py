"""The time of a round from classified device work: parts and idle time.

Idle time is the complement of all device intervals within rounds. It is given only if nearly all
launches have their kernels in the trace.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from specscope.readers.records import Finding, Record, TimeParts
from specscope.readers.traces.intervals import Interval, clipped, length, union
from specscope.readers.traces.spans import Span

ENOUGH_COVERAGE = 0.95
"""Below this share of launches with kernels, missing kernels look like idle time."""

IDLE_FLAG = 0.05
SLOW_LAUNCH_SHARE = 0.10


def round_time(
    input: str,
    phases: list[tuple[Span, str | None]],
    segments: list[Interval],
    rounds: int | None,
    coverage: float | None,
    launches: Iterable[Span],
) -> Iterator[Record]:
    """The parts of a round, and findings.

    phases: device work with its phase, if known; segments: the stretches of rounds, disjoint;
    rounds: how many they hold, if known; coverage: launches with kernels over all launches.
    """
    wall = length(segments)
    if wall <= 0:
        return
    totals, graphs = _grouped(phases)
    whole = union((span.start, span.end) for span, _ in phases)
    busy = sum(length(clipped(whole, start, end)) for start, end in segments)
    idle = wall - busy
    known = coverage is not None and coverage >= ENOUGH_COVERAGE
    count = rounds or 1
    per = {phase: total / count / 1000 for phase, total in totals.items()}
    yield TimeParts(
        input,
        rounds=rounds,
        round_ms=wall / count / 1000 if rounds else None,
        draft_ms=per.get("draft") if rounds else None,
        verify_ms=per.get("verify") if rounds else None,
        sample_ms=per.get("sample") if rounds else None,
        idle_ms=idle / count / 1000 if known and rounds else None,
        idle_share=idle / wall if known else None,
        trace_coverage=coverage,
        parts_ms={phase: total / 1000 for phase, total in totals.items()},
    )
    shares = [f"{phase} {total / wall:.1%}" for phase, total in sorted(totals.items())]
    shares.append(f"idle {idle / wall:.1%}" if known else "idle unknown")
    ms = 1 / count / 1000
    yield Finding(
        "TIME_PARTS",
        ", ".join(shares),
        {
            "round_ms": round(wall * ms, 4),
            "busy_ms": round(busy * ms, 4),
            "busy_share": round(busy / wall, 4),
            "verify_span_ms": round(graphs.span * ms, 4),
            "idle_in_verify_graph_ms": round(graphs.gaps * ms, 4) if known else None,
            "idle_outside_ms": round((idle - graphs.gaps) * ms, 4) if known else None,
            **{f"{phase}_ms": round(value, 4) for phase, value in per.items()},
        },
    )
    if known and idle > IDLE_FLAG * wall:
        inside = graphs.gaps / idle
        yield Finding(
            "IDLE_IN_GRAPH" if inside > 0.5 else "IDLE_GAPS",
            f"idle {idle / wall:.1%} of a round, {inside:.0%} of it inside the verify graph",
            {"idle_share": round(idle / wall, 4), "inside_verify": round(inside, 4)},
        )
    yield from _slow_launch(launches, wall / count)


@dataclass(frozen=True, slots=True)
class _Graphs:
    """Verification launches: from first start to last end, and the gaps inside. [us]"""

    span: float
    gaps: float


def _grouped(phases: list[tuple[Span, str | None]]) -> tuple[dict[str, float], _Graphs]:
    by_phase: dict[str, list[Interval]] = defaultdict(list)
    launches: dict[int | None, list[Interval]] = defaultdict(list)
    for span, phase in phases:
        if phase:
            by_phase[phase].append((span.start, span.end))
        if phase == "verify" and span.key is not None:
            launches[span.key].append((span.start, span.end))
    spans = gaps = 0.0
    for intervals in launches.values():
        whole = max(end for _, end in intervals) - min(start for start, _ in intervals)
        spans += whole
        gaps += whole - length(union(intervals))
    totals = {phase: length(union(intervals)) for phase, intervals in by_phase.items()}
    return totals, _Graphs(spans, gaps)


def _slow_launch(launches: Iterable[Span], round_us: float) -> Iterator[Record]:
    slowest = max(
        (s.end - s.start for s in launches if "graphlaunch" in s.name.lower()), default=0.0
    )
    if slowest > SLOW_LAUNCH_SHARE * round_us:
        yield Finding(
            "SLOW_LAUNCH",
            f"one graph launch takes {slowest / 1000:.3f} ms on the host, "
            f"{slowest / round_us:.0%} of a round; harmless only while it overlaps device work",
            {"host_launch_ms": round(slowest / 1000, 4)},
        )
