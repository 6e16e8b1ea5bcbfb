"""Running sums over windows, and the one window that they amount to."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

from specscope.readers.records import Window


@dataclass(slots=True)
class _Mean:
    weighted: float = 0.0
    weight: float = 0.0

    def add(self, value: float | None, weight: float) -> None:
        if value is not None and weight > 0:
            self.weighted += value * weight
            self.weight += weight

    def merge(self, other: _Mean) -> None:
        self.weighted += other.weighted
        self.weight += other.weight

    @property
    def value(self) -> float | None:
        return self.weighted / self.weight if self.weight else None


@dataclass(slots=True)
class _Counts:
    """Sums over windows; a sum is unknown once a window lacks its count."""

    windows: int = 0
    drafts: int = 0
    proposed: int | None = 0
    accepted: int | None = 0
    emitted: int = 0

    def add(
        self, drafts: int | None, proposed: int | None, accepted: int | None, emitted: int
    ) -> None:
        self.windows += 1
        self.drafts += drafts or 0
        self.proposed = (
            None if self.proposed is None or proposed is None else self.proposed + proposed
        )
        self.accepted = (
            None if self.accepted is None or accepted is None else self.accepted + accepted
        )
        self.emitted += emitted


@dataclass(slots=True)
class Sums:
    """Everything that pools. `complete` windows know drafts and accepted; `partial` ones do not."""

    complete: _Counts = field(default_factory=_Counts)
    partial: _Counts = field(default_factory=_Counts)
    ks: set[int | None] = field(default_factory=set)
    at: list[int] | None = field(default_factory=list)
    rates: dict[int, float | None] = field(default_factory=dict)
    rate_drafts: int = 0
    rates_known: bool = True
    covered: int = 0
    generated: float = 0.0
    all_generated: float = 0.0
    accepted_in_generated: int = 0
    seconds: dict[tuple[str, int | None], float] = field(default_factory=lambda: defaultdict(float))
    rate: _Mean = field(default_factory=_Mean)
    length: _Mean = field(default_factory=_Mean)
    round_ms: _Mean = field(default_factory=_Mean)
    partial_round_ms: _Mean = field(default_factory=_Mean)
    draft_ms: _Mean = field(default_factory=_Mean)
    running: _Mean = field(default_factory=_Mean)
    waiting: _Mean = field(default_factory=_Mean)
    tok_s: dict[tuple[str, int | None], _Mean] = field(default_factory=lambda: defaultdict(_Mean))
    count: int = 0
    estimated: set[str] = field(default_factory=set)

    @property
    def speculated(self) -> bool:
        """Whether any window says something of speculation, be it that there was none."""
        return bool(self.complete.windows or self.partial.windows or self.length.weight)

    def add(self, window: Window) -> None:
        """Take in one normalised window."""
        self.count += 1
        drafts, accepted = window.drafts, window.accepted
        weight = float(drafts) if drafts else float(window.running or 1)
        if drafts is not None and accepted is not None:
            self.complete.add(drafts, window.proposed, accepted, window.emitted or 0)
            self._positions(window, drafts)
            if window.generated:
                self.covered += drafts + accepted
                self.generated += window.generated
                self.accepted_in_generated += accepted
        elif accepted is not None or window.proposed is not None:
            self.partial.add(None, window.proposed, accepted, 0)
        if drafts is None and window.mean_length is not None:
            steps = window.generated / window.mean_length if window.generated else weight
            self.length.add(window.mean_length, steps)
            weight = steps
        if window.proposed is None:
            self.rate.add(window.acceptance_rate, weight)
        if drafts or window.mean_length is not None or window.proposed:
            self.ks.add(window.k)
        self.estimated |= set(window.estimated)
        key = (window.input, window.engine_index)
        if window.seconds:
            self.seconds[key] += window.seconds
        tok_s = window.throughput_tok_s
        if tok_s:  # idle windows say nothing of speed
            busy = window.generated / tok_s if window.generated else window.seconds
            self.tok_s[key].add(tok_s, busy or 1.0)
        self.all_generated += window.generated or 0.0
        complete = drafts is not None and accepted is not None
        (self.round_ms if complete else self.partial_round_ms).add(window.round_ms, weight)
        self.draft_ms.add(window.draft_ms, float(drafts or 0))
        self.running.add(window.running, window.seconds or 1.0)
        self.waiting.add(window.waiting, window.seconds or 1.0)

    def merge(self, other: Sums) -> None:
        """Take in another input's sums."""
        for own, its in ((self.complete, other.complete), (self.partial, other.partial)):
            if its.windows:
                own.add(its.drafts, its.proposed, its.accepted, its.emitted)
                own.windows += its.windows - 1
        self.ks |= other.ks
        self._merge_positions(other)
        self.covered += other.covered
        self.generated += other.generated
        self.all_generated += other.all_generated
        self.accepted_in_generated += other.accepted_in_generated
        self.count += other.count
        self.estimated |= other.estimated
        for key, seconds in other.seconds.items():
            self.seconds[key] += seconds
        for key, mean in other.tok_s.items():
            self.tok_s[key].merge(mean)
        for name in (
            "rate",
            "length",
            "round_ms",
            "partial_round_ms",
            "draft_ms",
            "running",
            "waiting",
        ):
            getattr(self, name).merge(getattr(other, name))

    def window(self, like: Window) -> Window:
        """The pooled window; `like` gives the names that do not pool."""
        from_counts = self.complete if self.complete.windows else self.partial
        known = from_counts.windows > 0
        drafts = from_counts.drafts if self.complete.windows else None
        accepted = from_counts.accepted if known else None
        proposed = from_counts.proposed if known else None
        mean = self.length.value
        if drafts is not None:
            mean = 1 + accepted / drafts if drafts and accepted is not None else None
        rate = self.rate.value
        if known and proposed is not None and accepted is not None:
            rate = accepted / proposed if proposed else None
        seconds = max(self.seconds.values(), default=None)
        by_input: dict[str, float] = defaultdict(float)
        for (input, _), tok_s in self.tok_s.items():
            by_input[input] += tok_s.value or 0.0
        throughput = _Mean()
        for input, value in by_input.items():
            length = max((s for (i, _), s in self.seconds.items() if i == input), default=1.0)
            throughput.add(value or None, length)
        running, waiting = self.running.value, self.waiting.value
        at = tuple(self.at) if self.at else None
        positions: tuple[float | None, ...] | None = None
        if at is not None and drafts:
            positions = tuple(n / drafts for n in at)
        elif self.rates and self.rates_known:
            positions = tuple(
                value / self.rate_drafts if value is not None and self.rate_drafts else None
                for _, value in sorted(self.rates.items())
            )
        return replace(
            like,
            start=None,
            seconds=seconds,
            k=next(iter(self.ks)) if len(self.ks) == 1 else None,
            drafts=drafts,
            proposed=proposed,
            accepted=accepted,
            emitted=from_counts.emitted if drafts is not None else None,
            generated=self.all_generated or None,
            accepted_at=at,
            position_rates=positions,
            acceptance_rate=rate,
            mean_length=mean,
            coverage=min(self.covered / self.generated, 1.0) if self.generated else None,
            running=round(running) if running is not None else None,
            waiting=round(waiting) if waiting is not None else None,
            throughput_tok_s=throughput.value,
            round_ms=self.round_ms.value if self.complete.windows else self.partial_round_ms.value,
            draft_ms=self.draft_ms.value,
            estimated=tuple(sorted(self.estimated)),
        )

    def _positions(self, window: Window, drafts: int) -> None:
        if not drafts:
            return
        if window.accepted_at is None:
            self.at = None
        elif self.at is not None:
            self.at = _padded_sum(self.at, window.accepted_at)
        if window.position_rates is None:
            self.rates_known = False
            return
        self._merge_rates(
            {
                j: rate * drafts if rate is not None else None
                for j, rate in enumerate(window.position_rates)
            },
            drafts,
        )

    def _merge_rates(self, rates: dict[int, float | None], drafts: int) -> None:
        for position, value in rates.items():
            before = self.rates.get(position, 0.0)
            self.rates[position] = None if before is None or value is None else before + value
        self.rate_drafts += drafts

    def _merge_positions(self, other: Sums) -> None:
        if other.complete.drafts:
            if other.at is None or (not other.at and other.complete.accepted):
                self.at = None
            elif self.at is not None:
                self.at = _padded_sum(self.at, other.at)
        self.rates_known &= other.rates_known
        if other.rates:
            self._merge_rates(other.rates, other.rate_drafts)


def _padded_sum(a: list[int], b: tuple[int, ...] | list[int]) -> list[int]:
    size = max(len(a), len(b))
    return [(a[j] if j < len(a) else 0) + (b[j] if j < len(b) else 0) for j in range(size)]
