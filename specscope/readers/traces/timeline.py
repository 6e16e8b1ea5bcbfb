"""Time of a round by part, from device intervals, host launches and annotations.

All times are in microseconds on one clock. Rounds are outermost annotations. There may
be several kinds; the kind with the most time marks the rounds, and prefill between them does not
count. Work inside a round gets its phase from an annotation,
from its name, or from its position in the round.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from statistics import median

from specscope.readers.records import Finding, Record, TimeParts
from specscope.readers.traces.intervals import Interval, covered_by
from specscope.readers.traces.phases import phase_of_name, structural_phases
from specscope.readers.traces.round_time import ENOUGH_COVERAGE, round_time
from specscope.readers.traces.spans import Span, innermost, starts_after, starts_before

_PREFILL = re.compile(r"prefill|extend|generation_0\(|context_[1-9]|IDLE|dummy", re.IGNORECASE)
WHOLE = 0.98
"""An annotation this long, in usual rounds, ends where its round ends."""

_DIGITS = re.compile(r"\d+")


@dataclass(slots=True)
class Timeline:
    """The content of a trace. `device` is one device's work; tensor-parallel devices run equal
    work."""

    input: str
    device: list[Span] = field(default_factory=list)
    launches: list[Span] = field(default_factory=list)
    annotations: list[Span] = field(default_factory=list)
    device_annotations: list[Span] = field(default_factory=list)

    def records(self) -> Iterator[Record]:
        """The time of a round, and findings."""
        steps, prefill = _steps(self.annotations)
        if not self.device:
            yield from self._host_only(steps, prefill)
            return
        segments, rounds = _segments(steps, prefill)
        if not segments:
            begin, end = min(s.start for s in self.device), max(s.end for s in self.device)
            # A table of device work alone is summed as a whole: it has no timeline to cut.
            cycles = _cycles(self._phases(self.device, steps)) if self.launches else None
            segments, rounds = cycles or ([(begin, end)], 0)
        device = [span for span in self.device if covered_by(segments, span.start)]
        phases = self._phases(device, steps)
        if not rounds:
            rounds = len({s.key for s, phase in phases if phase == "verify"} - {None})
        coverage = self._coverage(segments if len(device) < len(self.device) else None)
        yield from round_time(self.input, phases, segments, rounds or None, coverage, self.launches)
        if coverage is not None and coverage < ENOUGH_COVERAGE:
            yield Finding(
                "TRACE_UNDER_RECORDED",
                f"only {coverage:.0%} of launches have kernels in the trace: idle unknown",
                {"trace_coverage": round(coverage, 4)},
            )

    def _coverage(self, segments: list[Interval] | None) -> float | None:
        """Launches with device work over all launches; graph launches alone where there are any.

        segments: the stretches that count, if not all: a trace may end before the work that was
        launched last.
        """
        graphs = [span for span in self.launches if "graphlaunch" in span.name.lower()]
        launches = graphs or self.launches
        if segments:
            own = [span for span in launches if covered_by(segments, span.start)]
            launches = own or launches
        if not launches:
            return None
        keys = {span.key for span in self.device}
        return sum(span.key in keys for span in launches) / len(launches)

    def _phases(self, device: list[Span], steps: list[Span]) -> list[tuple[Span, str | None]]:
        """Each device span's phase: by annotation, else by name, else by place in the round."""
        on_device = _phase_spans(self.device_annotations)
        on_host = _phase_spans(self.annotations)
        launched = {span.key: span.start for span in self.launches}
        named: list[tuple[Span, str | None]] = []
        for span in device:
            around = innermost(on_device, span.start)
            if around is None and span.key in launched:
                around = innermost(on_host, launched[span.key])
            named.append((span, phase_of_name(around.name if around else span.name)))
        if any(phase in ("draft", "verify") for _, phase in named):
            return named
        return structural_phases(device, steps)

    def _host_only(self, steps: list[Span], prefill: list[Span]) -> Iterator[Record]:
        """A CPU trace: phases from the host's annotations, idle unknown."""
        totals: dict[str, float] = defaultdict(float)
        found: Counter[str] = Counter()
        for span in _phase_spans(self.annotations):
            if steps and not _in_a_round(span.start, steps, prefill):
                continue
            phase = phase_of_name(span.name) or ""
            totals[phase] += span.end - span.start
            found[phase] += 1
        rounds = len(steps) or found.get("verify") or found.get("draft")
        if not rounds or not totals:
            return
        per = {phase: total / rounds / 1000 for phase, total in totals.items()}
        wall = None
        if len(steps) > 1:
            wall = (steps[-1].start - steps[0].start) / (len(steps) - 1) / 1000
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


def _phase_spans(spans: list[Span]) -> list[Span]:
    """The annotations that name a phase, in order of their start."""
    return sorted((span for span in spans if phase_of_name(span.name)), key=lambda s: s.start)


def _steps(annotations: list[Span]) -> tuple[list[Span], list[Span]]:
    """(the rounds in order, the prefill between them in order)."""
    outer: list[Span] = []
    for span in sorted(annotations, key=lambda s: (s.start, -s.end)):
        if not phase_of_name(span.name) and (not outer or span.end > outer[-1].end):
            outer.append(span)
    kinds: dict[str, list[Span]] = defaultdict(list)
    for span in outer:
        if not _PREFILL.search(span.name):
            kinds[_DIGITS.sub("#", span.name)].append(span)
    prefill = [span for span in outer if _PREFILL.search(span.name)]
    if not kinds:
        return [], prefill
    return max(kinds.values(), key=lambda spans: sum(s.end - s.start for s in spans)), prefill


def _cycles(phases: list[tuple[Span, str | None]]) -> tuple[list[Interval], int] | None:
    """(the stretch from the first verification to the last, its cycles) of a trace whose rounds
    nobody marks: the last cycle has no known end. None for fewer than two verifications."""
    begun: dict[int | None, float] = {}
    for span, phase in phases:
        if phase == "verify" and span.key is not None:
            begun[span.key] = min(span.start, begun.get(span.key, span.start))
    if len(begun) < 2:
        return None
    return [(min(begun.values()), max(begun.values()))], len(begun) - 1


def _segments(steps: list[Span], prefill: list[Span]) -> tuple[list[Interval], int]:
    """(stretches of rounds without prefill, each from the start of a round; the rounds in them).

    What lies between two rounds belongs to the first: vLLM's annotation ends before it samples and
    drafts. So the last round before a prefill lasts as long as the usual one, up to the prefill;
    the last of the trace has no known end, and counts only if its annotation covers a usual round.
    """
    starts: list[list[float]] = []
    for step in steps:
        before = starts_before(prefill, step.start)
        if starts and (before is None or before.start < starts[-1][-1]):
            starts[-1].append(step.start)
        else:
            starts.append([step.start])
    ends = {step.start: step.end for step in steps}
    rounds = [after - first for stretch in starts for first, after in pairwise(stretch)]
    usual = median(rounds) if rounds else 0.0
    segments: list[Interval] = []
    counted = 0
    for stretch in starts:
        last = stretch[-1]
        following = starts_after(prefill, last)
        if following is None and len(stretch) > 1 and ends[last] < last + WHOLE * usual:
            segments.append((stretch[0], last))
            counted += len(stretch) - 1
            continue
        limit = following.start if following else inf
        segments.append((stretch[0], max(ends[last], min(last + usual, limit))))
        counted += len(stretch)
    return segments, counted


def _in_a_round(at: float, steps: list[Span], prefill: list[Span]) -> bool:
    """Whether a round, and not a prefill, was the last to begin before `at`."""
    step, other = starts_before(steps, at), starts_before(prefill, at)
    return step is not None and (other is None or other.start <= step.start)
