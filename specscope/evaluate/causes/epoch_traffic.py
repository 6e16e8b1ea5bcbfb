"""All traffic of an epoch: the growth of its costs, and the past of the same traffic.

The acceptance of other traffic is no reference for a class, because acceptance depends on the text.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from specscope.evaluate.costs.reread import Reread, fit_reread
from specscope.evaluate.experiment.blocks import CONTEXT_BUCKETS
from specscope.evaluate.experiment.pairs import Pair
from specscope.evaluate.experiment.segments import Segment
from specscope.evaluate.experiment.summary import ArmSummary

# Request-rounds below which acceptance in the past is no measure.
_ENOUGH = 100


@dataclass(slots=True)
class Kept:
    """Counts over request-rounds. tested, kept: of the first position."""

    rounds: int = 0
    emitted: int = 0
    tested: int = 0
    kept: int = 0

    def add(self, rounds: int, emitted: int, tested: int, kept: int) -> None:
        """Add counts."""
        self.rounds += rounds
        self.emitted += emitted
        self.tested += tested
        self.kept += kept

    @property
    def tokens(self) -> float:
        """Tokens per round; 0 if nothing ran."""
        return self.emitted / self.rounds if self.rounds else 0.0

    @property
    def first(self) -> float | None:
        """Chance that the first position is kept; None if it was never tested."""
        return self.kept / self.tested if self.tested else None


@dataclass(frozen=True, slots=True)
class Past:
    """One arm on one kind of traffic in an earlier epoch.

    tokens: tokens per round. first: acceptance rate of the first draft position; None if
    unknown."""

    tokens: float
    first: float | None


class EpochTraffic:
    """Everything that ran in one epoch."""

    def __init__(self) -> None:
        self._arms: dict[str, list[ArmSummary]] = defaultdict(list)
        self._kinds: dict[tuple[str | None, ...], list[ArmSummary]] = defaultdict(list)
        self._pairs: list[Pair] = []
        self._reread: list[Reread | None] = []

    def add(self, segment: Segment, pairs: Sequence[Pair], arms: Sequence[ArmSummary]) -> None:
        """Remember one segment."""
        self._pairs += pairs
        for arm in arms:
            self._arms[arm.arm].append(arm)
            self._kinds[_kind(segment, arm.arm)].append(arm)

    @property
    def began(self) -> int:
        """Start of the first block; 0 if there is none. [ns since 1970]"""
        starts = (b.first_at for pair in self._pairs for b in pair.blocks.values())
        return min(starts, default=0)

    def past(self, segment: Segment, arm: str) -> Past | None:
        """One arm on a segment's kind of traffic, at any load; None if it has too few rounds."""
        rows = self._kinds.get(_kind(segment, arm), [])
        rounds = sum(row.request_rounds for row in rows)
        if rounds < _ENOUGH:
            return None
        curves = [row.survival for row in rows if row.survival and len(row.survival.at_risk)]
        tested = sum(int(curve.at_risk[0]) for curve in curves)
        kept = sum(float(curve.at_risk[0]) * (curve.hazard[0] or 0.0) for curve in curves)
        return Past(sum(row.emitted for row in rows) / rounds, kept / tested if tested else None)

    def idle_by_batch(self, arm: str) -> list[tuple[float, float]]:
        """Pairs of (sequences per round, idle time per round in ms), smallest batch first."""
        rows = []
        for one in self._arms[arm]:
            idle = one.ms_per_token.get("idle")
            if idle is not None and one.rounds:
                rows.append((one.batch, idle * one.emitted / one.rounds))
        return sorted(rows)

    def by_context(self, arm: str, class_: str | None) -> list[tuple[str, Kept]]:
        """Acceptance of a class by bucket of context at admission, shortest first."""
        buckets: dict[str, Kept] = defaultdict(Kept)
        for pair in self._pairs:
            for part in pair.parts.get(arm, ()):
                if (class_ is None or part.class_ == class_) and part.k:
                    tested, kept = (part.tested or (0,))[0], (part.kept or (0,))[0]
                    buckets[part.context_bucket].add(
                        part.request_rounds, part.emitted, tested, kept
                    )
        return [(name, buckets[name]) for name in CONTEXT_BUCKETS if name in buckets]

    @property
    def reread(self) -> Reread | None:
        """Additional cost of a draft token per cached token; fitted once, on first use."""
        if not self._reread:
            blocks = (block for pair in self._pairs for block in pair.blocks.values())
            self._reread.append(fit_reread(blocks))
        return self._reread[0]


def _kind(segment: Segment, arm: str) -> tuple[str | None, ...]:
    return segment.class_, segment.context, segment.output, arm
