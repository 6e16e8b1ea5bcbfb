"""Time the parts of a step by the host's clock, or by the device's clock without waiting.

An adapter opens and closes parts, seals the step, and reads finished steps later. A step that
drafts for the next one (vLLM) closes its draft part last.

An adapter on a critical path stores `moments` of a step in fixed places instead, and passes them at
its end. `Sealed` steps are plain values, five times cheaper than named tuples to send to another
process. `StepReader` converts them to `Step`s off the critical path.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

from specscope_hook.clock import Clock, SystemClock
from specscope_hook.columns import TimingSource

NAN = math.nan
_POOL_EVENTS = 512  # 8 events a step: 64 steps in flight, where engines have 2


class Part(IntEnum):
    """A part of a step."""

    DRAFT = 0
    VERIFY = 1
    SAMPLE = 2


class Step(NamedTuple):
    """A step's parts in microseconds; NaN for a part that did not run or has no time.

    idle_us: time since the end of the previous step, less the time of all parts; NaN for the first
    step.
    """

    tag: int
    draft_us: float
    verify_us: float
    sample_us: float
    idle_us: float


Sealed = tuple[Any, ...]
"""A step that another process may be sent: a Step's five values, or its tag and its moments."""

VERIFY_BEGINS, VERIFY_ENDS, SAMPLE_BEGINS, DRAFT_BEGINS, DRAFT_ENDS, SAMPLE_ENDS = range(6)
"""Places of a step's moments. A draft that begins interrupts the sampling."""
MOMENTS = 6


def spans_of(moments: Sequence[Any]) -> list[tuple[Part, Any, Any]]:
    """The parts between a step's moments, each with its two ends; a missing moment is None."""
    verify, logits, sample, draft, drafted, end = moments
    spans = [(Part.VERIFY, verify, logits), (Part.DRAFT, draft, drafted)]
    if draft is None:
        spans.append((Part.SAMPLE, sample, end))
    else:
        spans += [(Part.SAMPLE, sample, draft), (Part.SAMPLE, drafted, end)]
    return [span for span in spans if span[1] is not None and span[2] is not None]


class StepReader:
    """Read one timer's sealed steps, in order."""

    def __init__(self) -> None:
        self._last_end = 0  # ns, of the step before; 0 before the first

    def read(self, sealed: Sealed) -> Step:
        """Return the step's parts in microseconds."""
        if len(sealed) != 2:
            return Step(*sealed)
        tag, moments = sealed
        if None not in moments:  # the rule
            verify, logits, sample, draft, drafted, end = moments
            drafting, verifying = (drafted - draft) / 1e3, (logits - verify) / 1e3
            sampling, before = (end - sample) / 1e3 - drafting, self._last_end
            self._last_end = end
            idle = (end - before) / 1e3 - drafting - verifying - sampling if before else NAN
            return Step(tag, drafting, verifying, sampling, idle)
        spans = spans_of(moments)
        return self.between(tag, spans, max((end for _, _, end in spans), default=0))

    def between(self, tag: int, spans: Sequence[tuple[Part, int, int]], end: int) -> Step:
        """Return the parts of a step.

        end: time of the host clock at which the step ended, in ns; 0 if there is none
        """
        spent = [NAN, NAN, NAN]
        for part, began, ended in spans:
            us = (ended - began) / 1e3
            spent[part] = us if math.isnan(spent[part]) else spent[part] + us
        draft, verify, sample = spent
        idle = NAN
        if self._last_end and end:
            busy = sum(us for us in spent if not math.isnan(us))
            idle = (end - self._last_end) / 1e3 - busy
        self._last_end = end or self._last_end
        return Step(tag, draft, verify, sample, idle)


class Timer(Protocol):
    """The interface of a timer."""

    source: TimingSource
    at_once: bool
    """Whether a StepReader reads its moments as they are, without `seal` and `taken`."""

    def open(self, part: Part) -> None:
        """Begin a part."""
        ...

    def close(self, part: Part) -> None:
        """End a part; a part may open and close repeatedly in a step."""
        ...

    def moment(self) -> Any:
        """The current moment, for one of a step's places; None if unknown."""
        ...

    def seal(self, tag: int, moments: Sequence[Any] = ()) -> None:
        """Seal the step; its times are returned with `tag`.

        moments: for a step without opened and closed parts.
        """
        ...

    def resolved(self) -> list[Step]:
        """Steps whose times became known since the last call, oldest first."""
        ...

    def taken(self) -> list[Sealed]:
        """`resolved` as plain values, for a StepReader in another process."""
        ...


class HostTimer:
    """The host's monotonic clock; it is exact if the engine computes on the host."""

    source = TimingSource.HOST
    at_once = True

    def __init__(self, clock: Clock | None = None) -> None:
        self.moment = (clock or SystemClock()).monotonic_ns
        self._opened: dict[Part, int] = {}
        self._spans: list[tuple[Part, int, int]] = []
        self._end = 0  # of the part that ended last
        self._sealed: list[Sealed] = []
        self._reader = StepReader()

    def open(self, part: Part) -> None:
        self._opened[part] = self.moment()

    def close(self, part: Part) -> None:
        self._end = self.moment()
        if began := self._opened.pop(part, 0):
            self._spans.append((part, began, self._end))

    def seal(self, tag: int, moments: Sequence[Any] = ()) -> None:
        if moments:
            self._sealed.append((tag, moments))
            return
        self._sealed.append(tuple(self._reader.between(tag, self._spans, self._end)))
        self._opened, self._spans, self._end = {}, [], 0

    def resolved(self) -> list[Step]:
        return [self._reader.read(sealed) for sealed in self.taken()]

    def taken(self) -> list[Sealed]:
        sealed, self._sealed = self._sealed, []
        return sealed


class NoTimer:
    """A timer for asynchronous devices without a known clock: all times are unknown."""

    source = TimingSource.HOST
    at_once = False

    def __init__(self) -> None:
        self._steps: list[Step] = []

    def open(self, part: Part) -> None:
        pass

    def close(self, part: Part) -> None:
        pass

    def moment(self) -> None:
        return None

    def seal(self, tag: int, moments: Sequence[Any] = ()) -> None:  # noqa: ARG002
        self._steps.append(Step(tag, NAN, NAN, NAN, NAN))

    def resolved(self) -> list[Step]:
        steps, self._steps = self._steps, []
        return steps

    def taken(self) -> list[Sealed]:
        return [tuple(step) for step in self.resolved()]


@dataclass(slots=True)
class _Pending:
    """A sealed step whose events may be incomplete."""

    tag: int
    spans: list[tuple[Part, Any, Any]] = field(default_factory=list)
    complete: bool = True


class CudaTimer:
    """The device's clock: events from a fixed pool, recorded now and read later.

    This class has never run on a GPU. `torch` is an argument, because the hook imports only the
    standard library. No call waits: `resolved` queries the last event of a step. If the pool is
    empty, or during a graph capture, the step's times are unknown and `missed` counts it.
    """

    source = TimingSource.CUDA
    at_once = False

    def __init__(self, torch: Any, events: int = _POOL_EVENTS) -> None:
        self._cuda = torch.cuda
        self._free = deque(torch.cuda.Event(enable_timing=True) for _ in range(events))
        self._opened: dict[Part, Any] = {}
        self._step = _Pending(-1)
        self._sealed: deque[_Pending] = deque()
        self._before: Any = None  # last event of the step resolved before
        self.missed = 0

    def moment(self) -> Any:
        if not self._free or self._cuda.is_current_stream_capturing():
            self._step.complete = False
            return None
        event = self._free.popleft()
        event.record()
        return event

    def open(self, part: Part) -> None:
        event = self.moment()
        if event is not None:
            self._opened[part] = event

    def close(self, part: Part) -> None:
        began = self._opened.pop(part, None)
        if began is None:
            return
        ended = self.moment()
        if ended is None:
            self._free.append(began)
        else:
            self._step.spans.append((part, began, ended))

    def seal(self, tag: int, moments: Sequence[Any] = ()) -> None:
        self._step.tag = tag
        if moments:
            self._step.spans = spans_of(moments)
            ends = {id(event) for _, *events in self._step.spans for event in events}
            self._free += [e for e in moments if e is not None and id(e) not in ends]
        self._sealed.append(self._step)
        self._step = _Pending(-1)
        self._free.extend(self._opened.values())
        self._opened.clear()

    def resolved(self) -> list[Step]:
        steps = []
        while self._sealed and self._happened(self._sealed[0]):
            steps.append(self._read(self._sealed.popleft()))
        return steps

    def taken(self) -> list[Sealed]:
        return [tuple(step) for step in self.resolved()]

    @staticmethod
    def _happened(step: _Pending) -> bool:
        return all(ended.query() for _, _, ended in step.spans)

    def _read(self, step: _Pending) -> Step:
        """Convert a step's events into times and return them to the pool."""
        spent = [NAN, NAN, NAN]
        before = self._before
        for part, began, ended in step.spans:
            us = began.elapsed_time(ended) * 1e3
            spent[part] = us if math.isnan(spent[part]) else spent[part] + us
        idle = NAN
        if step.spans:
            last = max((ended for _, _, ended in step.spans), key=step.spans[0][1].elapsed_time)
            if before is not None:
                busy = sum(us for us in spent if not math.isnan(us))
                idle = max(0.0, before.elapsed_time(last) * 1e3 - busy)
            self._give_back(step, keep=last)
            self._before = last
        if not step.complete:
            self.missed += 1
            spent, idle = [NAN, NAN, NAN], NAN
        draft, verify, sample = spent
        return Step(step.tag, draft, verify, sample, idle)

    def _give_back(self, step: _Pending, keep: Any) -> None:
        """Return all events except the step's last, the start of the next step's idle time."""
        if self._before is not None:
            self._free.append(self._before)
        events = {id(event): event for _, *ends in step.spans for event in ends}
        self._free += [event for event in events.values() if event is not keep]
