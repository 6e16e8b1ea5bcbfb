"""Running sums over windows, and their pooled window."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

from specscope.readers.records import Window

_MEANS = (
    "rate",
    "length",
    "round_ms",
    "partial_round_ms",
    "draft_ms",
    "running",
    "waiting",
)


@dataclass(slots=True)
class Mean:
    """A weighted mean."""

    weighted: float = 0.0
    weight: float = 0.0

    def add(self, value: float, weight: float) -> None:
        self.weighted += value * weight
        self.weight += weight

    @property
    def value(self) -> float | None:
        return self.weighted / self.weight if self.weight else None


def _sum(*given: int | None) -> int | None:
    """Sum of the known counts; None if none is known."""
    known = [count for count in given if count is not None]
    return sum(known) if known else None


@dataclass(slots=True)
class Counts:
    """Sums over windows; a sum is unknown once a window lacks its count."""

    windows: int = 0
    drafts: int = 0
    proposed: int | None = 0
    accepted: int | None = 0
    emitted: int = 0

    def add(self, drafts: int, proposed: int | None, accepted: int | None, emitted: int) -> None:
        self.windows += 1
        self.drafts += drafts
        self.proposed = (
            None if self.proposed is None or proposed is None else self.proposed + proposed
        )
        self.accepted = (
            None if self.accepted is None or accepted is None else self.accepted + accepted
        )
        self.emitted += emitted


@dataclass(slots=True)
class Sums:
    """All pooled quantities. `complete` windows know drafts and accepted; `partial` ones do not."""

    complete: Counts = field(default_factory=Counts)
    partial: Counts = field(default_factory=Counts)
    ks: set[int | None] = field(default_factory=set)
    positions: list[float | None] = field(default_factory=list)
    positions_known: bool = True
    positions_exact: bool = True
    quoted: dict[int, list[Mean]] = field(default_factory=dict)
    """Position rates of windows without counts, by k."""
    covered: int = 0
    generated: float = 0.0
    all_generated: float = 0.0
    accepted_in_generated: int = 0
    seconds: dict[tuple[str, int | None], float] = field(default_factory=lambda: defaultdict(float))
    tok_s: dict[tuple[str, int | None], Mean] = field(default_factory=lambda: defaultdict(Mean))
    rate: Mean = field(default_factory=Mean)
    length: Mean = field(default_factory=Mean)
    round_ms: Mean = field(default_factory=Mean)
    partial_round_ms: Mean = field(default_factory=Mean)
    draft_ms: Mean = field(default_factory=Mean)
    running: Mean = field(default_factory=Mean)
    waiting: Mean = field(default_factory=Mean)
    count: int = 0
    estimated: set[str] = field(default_factory=set)
    fleet: bool = False
    """Some engines of a scrape gave counts that lack their partners, which add to sums."""

    @property
    def speculated(self) -> bool:
        """Whether any window says something about speculation, even that there was none."""
        return bool(self.complete.windows or self.partial.windows or self.length.weight)

    def add(self, window: Window) -> None:
        """Add one normalised window."""
        self.count += 1
        drafts, accepted, generated = window.drafts, window.accepted, window.generated
        complete = drafts is not None and accepted is not None
        weight = float(drafts or window.running or 1)
        if drafts is not None and accepted is not None:
            self.complete.add(drafts, window.proposed, accepted, window.emitted or 0)
            if drafts:
                self._add_positions(window, drafts)
            if generated:
                self.covered += drafts + accepted
                self.generated += generated
                self.accepted_in_generated += accepted
        elif drafts or accepted is not None or window.proposed is not None:
            self.partial.add(drafts or 0, window.proposed, accepted, 0)
            self.fleet |= window.grain == "counter"
        if not complete and window.printed_positions:
            self._add_quoted(window.printed_positions, weight)
        if not complete and window.printed_length is not None:
            weight = generated / window.printed_length if generated else weight
            self.length.add(window.printed_length, weight)
        if window.proposed is None and window.printed_rate is not None:
            self.rate.add(window.printed_rate, weight)
        if drafts or window.proposed or window.printed_length is not None:
            self.ks.add(window.k)
        if window.estimated:
            self.estimated.update(window.estimated)
        seconds = window.seconds
        self._add_load(window, seconds)
        if generated:
            self.all_generated += generated
        if window.round_ms is not None:
            (self.round_ms if complete else self.partial_round_ms).add(window.round_ms, weight)
        if window.draft_ms is not None and drafts:
            self.draft_ms.add(window.draft_ms, drafts)

    def merge(self, other: Sums) -> None:
        """Add other sums, of a series or of an input."""
        for own, its in ((self.complete, other.complete), (self.partial, other.partial)):
            if its.windows:
                own.add(its.drafts, its.proposed, its.accepted, its.emitted)
                own.windows += its.windows - 1
        self.ks |= other.ks
        self._merge_positions(other.positions)
        for k, means in other.quoted.items():
            own_means = self.quoted.setdefault(k, [Mean() for _ in means])
            for own_mean, mean in zip(own_means, means, strict=True):
                own_mean.add(mean.value or 0.0, mean.weight)
        self.positions_known &= other.positions_known
        self.positions_exact &= other.positions_exact
        self.covered += other.covered
        self.generated += other.generated
        self.all_generated += other.all_generated
        self.accepted_in_generated += other.accepted_in_generated
        self.count += other.count
        self.fleet |= other.fleet
        self.estimated |= other.estimated
        for key, seconds in other.seconds.items():
            self.seconds[key] += seconds
        for key, mean in other.tok_s.items():
            self.tok_s[key].add(mean.value or 0.0, mean.weight)
        for name in _MEANS:
            mean = getattr(other, name)
            getattr(self, name).add(mean.value or 0.0, mean.weight)

    def window(self, like: Window) -> Window:
        """The pooled window; `like` provides the fields that do not pool."""
        complete = self.complete.windows > 0
        counts = self.complete if complete else self.partial
        known = counts.windows > 0
        drafts = counts.drafts if complete else (counts.drafts or None)
        proposed = counts.proposed if known else None
        accepted = counts.accepted if known else None
        whole = None
        if complete and self.fleet and counts.accepted is not None:
            whole = (counts.drafts, counts.proposed, counts.accepted)
            drafts = counts.drafts + self.partial.drafts
            proposed = _sum(counts.proposed, self.partial.proposed)
            accepted = _sum(counts.accepted, self.partial.accepted)
        exact = self.positions_exact and self.positions_known and bool(self.positions)
        rates = None
        if self.positions and self.positions_known and self.complete.drafts:
            rates = tuple(
                value / self.complete.drafts if value is not None else None
                for value in self.positions
            )
        elif not complete and len(self.quoted) == 1:
            rates = tuple(mean.value for means in self.quoted.values() for mean in means)
        running, waiting = self.running.value, self.waiting.value
        generated = self.generated if complete and self.generated else self.all_generated
        return replace(
            like,
            start=None,
            seconds=max(self.seconds.values(), default=None),
            k=next(iter(self.ks)) if len(self.ks) == 1 else None,
            drafts=drafts,
            proposed=proposed,
            accepted=accepted,
            whole=whole,
            came_out=counts.emitted if complete else None,
            generated=generated or None,
            covered=self.covered if complete else None,
            counted_at=tuple(round(v or 0) for v in self.positions) if exact else None,
            printed_positions=rates,
            printed_rate=self.rate.value,
            printed_length=self.length.value,
            running=round(running) if running is not None else None,
            waiting=round(waiting) if waiting is not None else None,
            throughput_tok_s=self._throughput(),
            round_ms=self.round_ms.value if complete else self.partial_round_ms.value,
            draft_ms=self.draft_ms.value,
            estimated=tuple(sorted(self.estimated)),
        )

    def _throughput(self) -> float | None:
        """Throughput: a sum over engines of one input, and a mean over inputs by their length."""
        by_input: dict[str, float] = defaultdict(float)
        for (input, _), mean in self.tok_s.items():
            by_input[input] += mean.value or 0.0
        throughput = Mean()
        for input, value in by_input.items():
            if value:
                lengths = [s for (i, _), s in self.seconds.items() if i == input]
                throughput.add(value, max(lengths, default=1.0))
        return throughput.value

    def _add_load(self, window: Window, seconds: float | None) -> None:
        key = (window.input, window.engine_index)
        if seconds:
            self.seconds[key] += seconds
        tok_s = window.throughput_tok_s
        if tok_s:  # idle windows say nothing of speed
            busy = window.generated / tok_s if window.generated else seconds
            self.tok_s[key].add(tok_s, busy or 1.0)
        if window.running is not None:
            self.running.add(window.running, seconds or 1.0)
        if window.waiting is not None:
            self.waiting.add(window.waiting, seconds or 1.0)

    def _add_positions(self, window: Window, drafts: int) -> None:
        counts = window.accepted_at
        if counts is not None:
            self._merge_positions(counts)
            return
        self.positions_exact = False
        if window.printed_positions is None:
            self.positions_known = False
            return
        self._merge_positions(
            [rate * drafts if rate is not None else None for rate in window.printed_positions]
        )

    def _add_quoted(self, rates: tuple[float | None, ...], weight: float) -> None:
        known = [rate for rate in rates if rate is not None]
        if len(known) < len(rates):
            return
        for mean, rate in zip(
            self.quoted.setdefault(len(known), [Mean() for _ in known]), known, strict=True
        ):
            mean.add(rate, weight)

    def _merge_positions(self, values: list[float | None] | tuple[int, ...]) -> None:
        positions = self.positions
        if len(positions) < len(values):
            positions += [0.0] * (len(values) - len(positions))
        for position, value in enumerate(values):
            before = positions[position]
            positions[position] = None if before is None or value is None else before + value
