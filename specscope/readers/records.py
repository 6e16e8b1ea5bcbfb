"""The records of all readers, independent of the engine.

A reader converts its engine's terms to ours and adds a finding: drafts are request-rounds with
proposals, accepted are leading accepted draft tokens, emitted are output tokens. Missing values
stay None. `specscope.analyze.normalise` computes rates and lengths from counts; printed ones are
kept here, for comparison with the counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

HALF_RATE_DIGIT = 0.00051
"""Position rates are printed with three decimals."""

OVERSHOOT = 1.15

OVERCOUNT = 2
LONGEST_DRAFT = 1024
"""No engine drafts more tokens at once; a larger number is damage and would fill the memory."""

GRAINS = ("counter", "interval", "run", "round", "request")
"""How much of the traffic a window sees, best first. Totals pool one grain only, since a server's
counters, its log and its requests' own figures count the same tokens."""


@dataclass(frozen=True, slots=True)
class Window:
    """Counts over a stretch of decoding: a log interval, two scrapes, a run, a request.

    Figures from counts are properties with one definition for every engine; a printed figure
    replaces them only if the counts are unknown.
    """

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
    generated: float | None = None
    """All tokens generated in the window, speculative or not."""
    came_out: int | None = None
    """Tokens that really came out of the drafts' rounds, where that is measured."""
    covered: int | None = None
    """drafts + accepted of those pooled windows whose generated tokens are known."""
    whole: tuple[int, int | None, int] | None = None
    """(drafts, proposed, accepted) of those pooled windows that know drafts and accepted, if others
    know one of the two: rates and lengths are over the former, sums over all."""
    counted_at: tuple[int, ...] | None = None
    printed_positions: tuple[float | None, ...] | None = None
    printed_rate: float | None = None
    printed_length: float | None = None
    running: int | None = None
    waiting: int | None = None
    throughput_tok_s: float | None = None
    round_ms: float | None = None
    draft_ms: float | None = None
    excluded: str | None = None
    """Why totals leave this window out; None if they do not."""
    target_only: bool = False
    """The engine ran without speculation: a baseline, kept apart from windows that speculate."""
    estimated: tuple[str, ...] = ()
    """Fields that the file does not hold exactly."""
    tolerance: float = 0.006
    """By how much a printed mean length may differ from the counts: half a last digit."""

    @property
    def counted(self) -> tuple[int | None, int | None, int | None]:
        """Consistent (drafts, proposed, accepted), the basis of rates."""
        return self.whole or (self.drafts, self.proposed, self.accepted)

    @property
    def acceptance_rate(self) -> float | None:
        """accepted / proposed, 0..1."""
        _, proposed, accepted = self.counted
        if proposed is not None and accepted is not None:
            return accepted / proposed if proposed else None
        return self.printed_rate

    @property
    def mean_length(self) -> float | None:
        """1 + accepted / drafts: counts the correction or bonus token.

        Unknown if the counts far exceed the output, because engines count badly after the end of a
        text.
        """
        drafts, _, accepted = self.counted
        counted = (drafts or 0) + (accepted or 0)
        if self.came_out is not None and counted > OVERCOUNT * self.came_out:
            return None
        if drafts is not None and (accepted is not None or not drafts):
            return 1 + (accepted or 0) / drafts if drafts else None
        return self.printed_length

    @property
    def emitted(self) -> int | None:
        """Output tokens of the drafts' rounds: measured, else drafts + accepted."""
        drafts, _, accepted = self.counted
        if self.came_out is None and drafts is not None and accepted is not None:
            return drafts + accepted
        return self.came_out

    @property
    def coverage(self) -> float | None:
        """(drafts + accepted) / generated, 0..1.

        A value slightly above 1, from rounding or from counts after the end of a text, becomes 1. A
        value far above 1 is unknown, because the two counts are inconsistent.
        """
        drafts, _, accepted = self.counted
        if drafts is None or accepted is None or not self.generated:
            return None
        covered = self.covered if self.covered is not None else drafts + accepted
        value = covered / self.generated
        return min(value, 1.0) if value <= OVERSHOOT else None

    @property
    def accepted_at(self) -> tuple[int, ...] | None:
        """Accepted tokens by position: counted, or the only whole numbers that fit rounded
        rates."""
        if self.counted_at is not None:
            return self.counted_at
        rates, (drafts, _, accepted) = self.printed_positions, self.counted
        if not rates or not drafts or None in rates or HALF_RATE_DIGIT * drafts >= 0.5:
            return None
        counts = tuple([round((rate or 0.0) * drafts) for rate in rates])
        return counts if sum(counts) == accepted else None

    @property
    def position_rates(self) -> tuple[float | None, ...] | None:
        """Survival by position over all drafts."""
        counts, (drafts, _, _) = self.accepted_at, self.counted
        if counts is not None and drafts:
            return tuple([count / drafts for count in counts])
        return self.printed_positions


@dataclass(frozen=True, slots=True)
class Arm:
    """One row of a benchmark: setting, conditions and measured values."""

    input: str
    arm: str
    role: str
    """`target_only`, `k0` (speculative engine, nothing drafted), `speculative` or `unknown`."""
    k: int | None = None
    conditions: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    basis: str = "stated"
    """What the role is based on: `stated`, `word` (a bare "baseline"), or `inferred` from what is
    absent."""
    spreads: Mapping[str, float] = field(default_factory=dict)
    """What the input gives as the spread of a metric, without saying which kind of spread."""


@dataclass(frozen=True, slots=True)
class TimeParts:
    """Times of the parts, in ms per round; `parts_ms` holds sums over the whole input."""

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
    """The file's information on its engine."""

    engine: str
    version: str | None = None
    method: str | None = None
    k: int | None = None
    speculates: bool | None = None
    """Whether the engine was started with speculation; None if the file does not say."""


@dataclass(frozen=True, slots=True)
class Format:
    """The format of a part of a file, for readers of several formats."""

    name: str


@dataclass(frozen=True, slots=True)
class Unparsed:
    """An unreadable line about speculation."""

    text: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A note on the numbers. The code is one of `codes.CODES`."""

    code: str
    text: str
    evidence: Mapping[str, Any] = field(default_factory=dict)


Record = Window | Arm | TimeParts | DeviceSample | Scrape | Origin | Format | Unparsed | Finding
