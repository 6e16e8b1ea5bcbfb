"""What a reader hands on, whichever engine wrote the file.

A reader converts its engine's words to ours (drafts are request-rounds that proposed, accepted are
leading proposals kept, emitted is what came out) and says so with a finding. What the file does not
hold stays None. Rates and lengths that follow from counts are left to
`specscope.analyze.normalise`; a printed one is kept here, to be held against the counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

GRAINS = ("counter", "interval", "run", "round", "request")
"""How much of the traffic a window sees, best first. Totals pool one grain only, since a server's
counters, its log and its requests' own figures count the same tokens."""


@dataclass(frozen=True, slots=True)
class Window:
    """Counts over a stretch of decoding: a log interval, two scrapes, a run, a request."""

    input: str
    engine: str
    grain: str = "interval"
    label: str | None = None
    start: str | None = None
    seconds: float | None = None
    engine_index: int | None = None
    k: int | None = None
    drafts: int | None = None
    proposed: int | None = None
    accepted: int | None = None
    emitted: int | None = None
    generated: float | None = None
    accepted_at: tuple[int, ...] | None = None
    position_rates: tuple[float | None, ...] | None = None
    acceptance_rate: float | None = None
    mean_length: float | None = None
    coverage: float | None = None
    running: int | None = None
    waiting: int | None = None
    throughput_tok_s: float | None = None
    round_ms: float | None = None
    draft_ms: float | None = None
    excluded: str | None = None
    """Why totals leave this window out; None if they do not."""
    estimated: tuple[str, ...] = ()
    """Fields that the file does not hold exactly."""
    tolerance: float = 0.006
    """By how much a printed mean length may differ from the counts: half a last digit."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One row of a benchmark: a policy, the conditions it ran under, what was measured."""

    input: str
    arm: str
    role: str
    """`target_only`, `k0` (speculative engine, nothing drafted), `speculative` or `unknown`."""
    k: int | None = None
    conditions: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TimeParts:
    """Where the time went, in ms per round; `parts_ms` holds sums over the whole input."""

    input: str
    rounds: int | None = None
    round_ms: float | None = None
    draft_ms: float | None = None
    verify_ms: float | None = None
    sample_ms: float | None = None
    idle_ms: float | None = None
    idle_share: float | None = None
    trace_coverage: float | None = None
    parts_ms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """One field of one device, averaged over the file's samples. None needs a reason."""

    input: str
    uuid: str | None
    gpu_instance: str | None
    field: str
    value: float | None
    unit: str | None
    reason: str | None = None
    samples: int = 1


@dataclass(frozen=True, slots=True)
class Scrape:
    """One exposition of Prometheus metrics: (name, labels) to value. `at` is monotonic, in s."""

    input: str
    samples: Mapping[tuple[str, tuple[tuple[str, str], ...]], float]
    at: float | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """What the file says of the engine that wrote it."""

    engine: str
    version: str | None = None
    method: str | None = None
    k: int | None = None


@dataclass(frozen=True, slots=True)
class Format:
    """The format of a part of a file, where one reader knows several."""

    name: str


@dataclass(frozen=True, slots=True)
class Unparsed:
    """A line that speaks of speculation and could not be read."""

    text: str


@dataclass(frozen=True, slots=True)
class Finding:
    """Something a reader of numbers must know. The code is one of `codes.CODES`."""

    code: str
    text: str
    evidence: Mapping[str, Any] = field(default_factory=dict)


Record = Window | Arm | TimeParts | DeviceSample | Scrape | Origin | Format | Unparsed | Finding
