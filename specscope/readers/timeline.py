"""Where the time of a round goes, from device intervals, host launches and annotations.

All times are in microseconds on one clock. A round's parts: draft, verify, sample, idle. Idle is
the complement of the union of all device intervals over the steady stretch of rounds, and is given
only where nearly all launches have their kernels in the trace.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from specscope.readers.intervals import clipped, length, union
from specscope.readers.phases import phase_of_name, structural_phases
from specscope.readers.records import Finding, Record, TimeParts

ENOUGH_COVERAGE = 0.95
"""Below this share of launches with kernels, missing kernels look like idle time."""

IDLE_FLAG = 0.05
SLOW_LAUNCH_SHARE = 0.10

_PREFILL = re.compile(r"prefill|extend|generation_0\(|context_[1-9]|IDLE|dummy", re.IGNORECASE)
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Span:
    """An interval with a name; `key` is the launch (correlation id) of device work."""

    start: float
    end: float
    name: str
    key: int | None = None


@dataclass(slots=True)
class Timeline:
    """What a trace holds. `device` is one device's work; tensor-parallel ones run alike."""

    input: str
    device: list[Span] = field(default_factory=list)
    launches: list[Span] = field(default_factory=list)
    annotations: list[Span] = field(default_factory=list)
    device_annotations: list[Span] = field(default_factory=list)

    def records(self) -> Iterator[Record]:
        """The time of a round and what stands out in it."""
        steps = _steps(self.annotations)
        if not self.device:
            yield from self._host_only(steps)
            return
        start, end, rounds = self._stretch(steps)
        device = [span for span in self.device if start <= span.start < end]
        phases = self._phases(device, steps)
        if not steps and rounds is None:
            verify = {
                span.key for span, phase in phases if phase == "verify" and span.key is not None
            }
            rounds = len(verify) or None
        coverage = self._coverage()
        yield from _parts(self.input, device, phases, (start, end), rounds, coverage, self.launches)
        if coverage is not None and coverage < ENOUGH_COVERAGE:
            yield Finding(
                "TRACE_UNDER_RECORDED",
                f"only {coverage:.0%} of graph launches have kernels in the trace: idle unknown",
                {"trace_coverage": round(coverage, 4)},
            )

    def _stretch(self, steps: list[Span]) -> tuple[float, float, int | None]:
        if steps:
            return steps[0].start, max(step.end for step in steps), len(steps)
        return min(s.start for s in self.device), max(s.end for s in self.device), None

    def _coverage(self) -> float | None:
        """Launches with device work over all launches; graph launches alone where there are any."""
        graphs = [span for span in self.launches if "graphlaunch" in span.name.lower()]
        launches = graphs or [span for span in self.launches if "launch" in span.name.lower()]
        if not launches:
            return None
        keys = {span.key for span in self.device}
        return sum(span.key in keys for span in launches) / len(launches)

    def _phases(self, device: list[Span], steps: list[Span]) -> list[tuple[Span, str | None]]:
        """Each device span's phase: by annotation, else by name, else by place in the round."""
        by_time = sorted(
            (s for s in self.device_annotations if phase_of_name(s.name)), key=lambda s: s.start
        )
        host = sorted((s for s in self.annotations if phase_of_name(s.name)), key=lambda s: s.start)
        launched = {span.key: span.start for span in self.launches}
        named: list[tuple[Span, str | None]] = []
        for span in device:
            phase = _enclosing(by_time, span.start)
            if phase is None and span.key in launched:
                phase = _enclosing(host, launched[span.key])
            named.append((span, phase or phase_of_name(span.name)))
        if any(phase in ("draft", "verify") for _, phase in named):
            return named
        return structural_phases(device, [(step.start, step.end) for step in steps])

    def _host_only(self, steps: list[Span]) -> Iterator[Record]:
        """A CPU trace: phases from the host's annotations, idle unknown."""
        totals: dict[str, float] = defaultdict(float)
        found: Counter[str] = Counter()
        starts = [step.start for step in steps]
        for span in self.annotations:
            phase = phase_of_name(span.name)
            if phase is None or (steps and not _in_a_round(span.start, starts, self.annotations)):
                continue
            totals[phase] += span.end - span.start
            found[phase] += 1
        rounds = len(steps) or found.get("verify") or found.get("draft")
        if not rounds or not totals:
            return
        per = {phase: total / rounds / 1000 for phase, total in totals.items()}
        wall = None
        if len(steps) > 1:
            wall = (starts[-1] - starts[0]) / (len(steps) - 1) / 1000
        yield Finding("TRACE_CPU_ONLY", "no device activity in the trace: host times, idle unknown")
        yield TimeParts(
            self.input,
            rounds=rounds,
            round_ms=wall,
            draft_ms=per.get("draft"),
            verify_ms=per.get("verify"),
            sample_ms=per.get("sample"),
            parts_ms={phase: total / 1000 for phase, total in totals.items()},
        )


def _parts(
    input: str,
    device: list[Span],
    phases: list[tuple[Span, str | None]],
    stretch: tuple[float, float],
    rounds: int | None,
    coverage: float | None,
    launches: list[Span],
) -> Iterator[Record]:
    start, end = stretch
    wall = end - start
    busy = length(clipped(union((s.start, s.end) for s in device), start, end))
    idle = wall - busy
    by_phase: dict[str, list[tuple[float, float]]] = defaultdict(list)
    graph_spans: dict[int | None, list[tuple[float, float]]] = defaultdict(list)
    for span, phase in phases:
        if phase:
            by_phase[phase].append((span.start, span.end))
        if phase == "verify" and span.key is not None:
            graph_spans[span.key].append((span.start, span.end))
    totals = {phase: length(union(spans)) for phase, spans in by_phase.items()}
    verify_span = sum(
        max(e for _, e in spans) - min(s for s, _ in spans) for spans in graph_spans.values()
    )
    in_graph = sum(
        max(e for _, e in spans) - min(s for s, _ in spans) - length(union(spans))
        for spans in graph_spans.values()
    )
    known = coverage is not None and coverage >= ENOUGH_COVERAGE
    count = rounds or 1
    per = {phase: total / count / 1000 for phase, total in totals.items()}
    share = idle / wall if wall > 0 else None
    yield TimeParts(
        input,
        rounds=rounds,
        round_ms=wall / count / 1000 if rounds else None,
        draft_ms=per.get("draft") if rounds else None,
        verify_ms=per.get("verify") if rounds else None,
        sample_ms=per.get("sample") if rounds else None,
        idle_ms=idle / count / 1000 if known and rounds else None,
        idle_share=share if known else None,
        trace_coverage=coverage,
        parts_ms={phase: total / 1000 for phase, total in totals.items()},
    )
    if not wall > 0:
        return
    yield Finding(
        "TIME_PARTS",
        ", ".join(f"{phase} {total / wall:.1%}" for phase, total in sorted(totals.items()))
        + (f", idle {share:.1%}" if known and share is not None else ", idle unknown"),
        {
            "round_ms": round(wall / count / 1000, 4),
            "busy_ms": round(busy / count / 1000, 4),
            "busy_share": round(busy / wall, 4),
            "verify_span_ms": round(verify_span / count / 1000, 4),
            "idle_in_verify_graph_ms": round(in_graph / count / 1000, 4) if known else None,
            "idle_outside_ms": round((idle - in_graph) / count / 1000, 4) if known else None,
            **{f"{phase}_ms": round(value, 4) for phase, value in per.items()},
        },
    )
    if known and idle > 0 and share is not None and share > IDLE_FLAG:
        inside = in_graph / idle
        yield Finding(
            "IDLE_IN_GRAPH" if inside > 0.5 else "IDLE_GAPS",
            f"idle {share:.1%} of a round, {inside:.0%} of it inside the verify graph",
            {"idle_share": round(share, 4), "inside_verify": round(inside, 4)},
        )
    yield from _slow_launch(launches, wall / count)


def _slow_launch(launches: Iterable[Span], round_us: float) -> Iterator[Record]:
    slowest = max(
        (s.end - s.start for s in launches if "graphlaunch" in s.name.lower()), default=0.0
    )
    if slowest > SLOW_LAUNCH_SHARE * round_us:
        yield Finding(
            "SLOW_LAUNCH",
            f"one graph launch takes {slowest / 1000:.3f} ms on the host, "
            f"{slowest / round_us:.0%} of a "
            "round; harmless only while it overlaps device work",
            {"host_launch_ms": round(slowest / 1000, 4)},
        )


def _steps(annotations: list[Span]) -> list[Span]:
    """The rounds: outermost annotations of the kind that takes most time, prefill left out."""
    outer: list[Span] = []
    for span in sorted(annotations, key=lambda s: (s.start, -s.end)):
        if phase_of_name(span.name) or (outer and span.end <= outer[-1].end):
            continue
        outer.append(span)
    kinds: dict[str, list[Span]] = defaultdict(list)
    for span in outer:
        if not _PREFILL.search(span.name):
            kinds[_DIGITS.sub("#", span.name)].append(span)
    if not kinds:
        return []
    return max(kinds.values(), key=lambda spans: sum(s.end - s.start for s in spans))


def _in_a_round(at: float, starts: list[float], annotations: list[Span]) -> bool:
    """Whether the last step that began before `at` is one of the rounds (and not a prefill)."""
    import bisect

    place = bisect.bisect_right(starts, at)
    if not place:
        return False
    begun = starts[place - 1]
    return not any(
        begun < span.start <= at and _PREFILL.search(span.name) and not phase_of_name(span.name)
        for span in annotations
    )


def _enclosing(spans: list[Span], at: float) -> str | None:
    """The phase of the innermost annotation around a point in time; spans sorted by start."""
    import bisect

    place = bisect.bisect_right(spans, at, key=lambda s: s.start)
    for span in reversed(spans[max(0, place - 16) : place]):
        if span.end >= at:
            return phase_of_name(span.name)
    return None
