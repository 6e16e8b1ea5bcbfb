"""Rank all tables of draft lengths by a model of the shared batch.

The model proposes an experiment and never decides: its levels may be wrong by 10 % even if the
order of the tables is right.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from specscope.evaluate.experiment.blocks import BlockPart
from specscope.evaluate.proposal.costs import CostData, RoundCosts, Shapes
from specscope.evaluate.proposal.rounds import RoundSums
from specscope.evaluate.proposal.traffic import Traffic, TrafficData, class_shares

Floats = NDArray[np.float64]
Lengths = tuple[int, ...]
"""A draft length for each class, in the order of their names."""

MOST_TABLES = 50_000
DRAWS = 100  # of pairs, with repetition, for the error
FEWEST_PAIRS = 4  # from which on there is an error
LEVEL = 0.95
BEYOND_ARMS = (
    2.0  # by so many times its largest error on an arm, a table that did not run may be off
)
OTHERS = "other classes"


@dataclass(frozen=True, slots=True)
class Predicted:
    """Modelled throughput of one table over another's. [ratio]

    low, high: range of 95 % of the bootstrap draws, widened by twice the model's largest error on
    an arm; None if there are too few pairs.
    """

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Proposal:
    """The table that the model ranks first, and its evidence. Grade: modelled.

    lengths: draft length by class. default_k: draft length of classes that are too small to
    distinguish. single: the best draft length for all. gain: the table over `single`. over_k0: the
    table over target-only. if_padded: the gain on an engine that pads; None if the engine's padding
    is known. padding: computed share of the padding; None if the data cannot tell. padding_range:
    range of 95 % of the bootstrap draws; None without a share or with too few pairs. told: whether
    it comes from the engine's own count. measured_off: by arm, modelled over measured time per
    token. shares: share of request-rounds, by class. tables: number of ranked tables.
    """

    lengths: Mapping[str, int]
    default_k: int
    single: int
    gain: Predicted
    over_k0: Predicted
    if_padded: float | None
    padding: float | None
    padding_range: tuple[float, float] | None
    told: bool
    measured_off: Mapping[str, float]
    shares: Mapping[str, float]
    batch: float
    pairs: int
    tables: int

    @property
    def tells_classes_apart(self) -> bool:
        """Whether two classes get different draft lengths."""
        return len({*self.lengths.values(), self.default_k}) > 1


def largest_error(measured_off: Mapping[str, float]) -> float:
    """The model's largest relative error on an arm. [share]"""
    return max((abs(ratio - 1.0) for ratio in measured_off.values()), default=0.0)


def propose(rounds: Sequence[RoundSums], parts: Sequence[BlockPart], seed: int = 1) -> Proposal:
    """Rank all tables for the mixed traffic of whole pairs.

    rounds, parts: rows of the same blocks, all of one epoch. ValueError if there are no rounds,
    fewer than two classes, or no draft.
    """
    parts, members = _grouped(parts)
    costs = CostData(rounds)
    traffic = TrafficData(parts, costs.keys)
    if len(traffic.classes) < 2 or not traffic.longest:
        raise ValueError("a table takes two classes and a draft")
    batch = mean_batch(rounds)
    every = all_tables(traffic.of())
    model = Model(costs.fit(), traffic.of(), rounds, batch)
    expected = model.throughput(every)
    same = np.flatnonzero((every == every[:, :1]).all(axis=1))
    best, single = int(np.argmax(expected)), int(same[np.argmax(expected[same])])
    off = int(same[0])
    three = every[[best, single, off]]
    draws, paddings = _draws(costs, traffic, rounds, batch, three, seed)
    lengths = dict(zip(traffic.classes, map(int, every[best]), strict=True))
    default = lengths.pop(OTHERS, int(every[single][0]))
    measured_off = model.off(rounds, costs)
    error = largest_error(measured_off)
    if_padded = None
    if not costs.known:
        padded = model.throughput(three, padding=1.0)
        if_padded = float(padded[0] / padded[1])
    return Proposal(
        lengths={name: lengths[name] for name in members if name in lengths},
        default_k=default,
        single=int(every[single][0]),
        gain=_predicted(expected[best] / expected[single], draws[:, 0] / draws[:, 1], error),
        over_k0=_predicted(expected[best] / expected[off], draws[:, 0] / draws[:, 2], error),
        if_padded=if_padded,
        padding=model.costs.padding,
        padding_range=_ends(paddings) if costs.known and paddings else None,
        told=model.costs.told,
        measured_off=measured_off,
        shares=members,
        batch=batch,
        pairs=len(costs.keys),
        tables=len(every),
    )


def mean_batch(rounds: Sequence[RoundSums]) -> float:
    """Mean rows per round. [sequences]"""
    return sum(r.rounds * r.batch for r in rounds) / sum(r.rounds for r in rounds)


def all_tables(traffic: Traffic) -> NDArray[np.int64]:
    """Every combination by class of draft lengths that ran or lie between two that ran. [tables,
    classes]

    They are sorted by length, so among equal tables the one with the shortest drafts comes first.
    """
    ladders = [
        [k for k in range(traffic.longest + 1) if math.isfinite(traffic.tokens[c, k])]
        for c in range(len(traffic.classes))
    ]
    return np.array(list(itertools.product(*ladders)), dtype=np.int64)


class Model:
    """Costs and traffic: the throughput of a table in the shared batch."""

    def __init__(
        self, costs: RoundCosts, traffic: Traffic, rounds: Sequence[RoundSums], batch: float
    ) -> None:
        self.costs, self.traffic, self.batch = costs, traffic, batch
        rows = sum(r.rounds * r.batch for r in rounds)
        self.context = sum(r.n_kv for r in rounds) / rows
        # Prompts are computed once a request, however many rounds its answer takes.
        self.prompt = sum(r.prefill_tokens for r in rounds) / sum(r.emitted for r in rounds)

    @classmethod
    def of(cls, rounds: Sequence[RoundSums], parts: Sequence[BlockPart]) -> Model:
        """Fit to whole pairs."""
        costs = CostData(rounds)
        return cls(costs.fit(), TrafficData(parts, costs.keys).of(), rounds, mean_batch(rounds))

    def throughput(self, tables: NDArray[np.int64], padding: float | None = None) -> Floats:
        """Tokens per us of each table. tables: [tables, classes]. padding: assumed if unknown."""
        traffic, batch = self.traffic, self.batch
        yields = traffic.tokens[np.arange(tables.shape[1]), tables]
        rows = traffic.share / (yields if traffic.steady == "tokens" else np.ones_like(yields))
        rows = rows / rows.sum(axis=1, keepdims=True)
        tokens = batch * (rows * yields).sum(axis=1)
        drafted = batch * (rows * tables * traffic.drafted).sum(axis=1)
        longest, drafts = _longest(tables, rows, batch, traffic.steady == "rows")
        shapes = Shapes(
            rounds=np.ones(len(tables)),
            batch=np.full(len(tables), batch),
            longest=longest,
            drafted=drafted,
            short=np.maximum(0.0, batch * longest - drafted),
            n_kv=np.full(len(tables), batch * self.context),
            prompt=self.prompt * tokens,
            drafts=drafts,
        )
        return np.asarray(tokens / self.costs.time_us(shapes, padding))

    def off(self, rounds: Sequence[RoundSums], costs: CostData) -> dict[str, float]:
        """By arm, modelled over measured time of its rounds."""
        speeds = costs.speeds
        expected: dict[str, float] = {}
        took: dict[str, float] = {}
        for row, time in zip(rounds, self.costs.time_us(Shapes.of(rounds)), strict=True):
            expected[row.arm] = expected.get(row.arm, 0.0) + float(time) * row.rounds
            took[row.arm] = took.get(row.arm, 0.0) + row.wall_us / speeds[row.key]
        return {arm: float(expected[arm] / took[arm]) for arm in sorted(took)}


def _longest(
    tables: NDArray[np.int64], rows: Floats, batch: float, always: bool
) -> tuple[Floats, Floats]:
    """Mean of the longest draft in a round, and the probability that a round drafts. [tables]

    A class with one row in eight is not in every batch of eight. always: every class with at least
    half a row has rows in every batch.
    """
    longest, drafts = np.zeros(len(tables)), np.zeros(len(tables))
    for k in range(1, int(tables.max(initial=0)) + 1):
        reaching = np.where(tables >= k, rows, 0.0)
        share = reaching.sum(axis=1).clip(0.0, 1.0)
        present = 1.0 - (1.0 - share) ** batch
        if always:
            present = np.where((reaching * batch >= 0.5).any(axis=1), 1.0, present)
        longest += present
        if k == 1:
            drafts = present
    return longest, drafts


def _draws(
    costs: CostData, traffic: TrafficData, rounds: Sequence[RoundSums], batch: float,
    tables: NDArray[np.int64], seed: int,
) -> tuple[Floats, list[float]]:  # fmt: skip
    """Bootstrap over pairs: throughput of these tables [draws, tables], and shares of padding
    [draws].

    Both are empty if there are too few pairs.
    """
    pairs = len(costs.keys)
    if pairs < FEWEST_PAIRS:
        return np.empty((0, len(tables))), []
    random = np.random.default_rng(seed)
    drawn = [random.integers(0, pairs, pairs) for _ in range(DRAWS)]
    models = [Model(costs.fit(one), traffic.of(one), rounds, batch) for one in drawn]
    return (
        np.array([model.throughput(tables) for model in models]),
        [model.costs.padding or 0.0 for model in models],
    )


def _ends(values: Sequence[float] | Floats) -> tuple[float, float]:
    """The interval that holds 95 % of the draws."""
    low, high = np.quantile(values, [(1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0])
    return float(low), float(high)


def _predicted(value: float, draws: Floats, error: float) -> Predicted:
    """error: the model's largest error on an arm; both tables share it."""
    known = draws[np.isfinite(draws) & (draws > 0.0)]
    if len(known) < DRAWS // 2:
        return Predicted(float(value))
    if (draws == 1.0).all():
        return Predicted(1.0, 1.0, 1.0)  # one table, twice
    ends = np.log(_ends(known))
    below, above = np.hypot(ends - math.log(value), BEYOND_ARMS * math.sqrt(2.0) * error)
    return Predicted(float(value), float(value * np.exp(-below)), float(value * np.exp(above)))


def _grouped(parts: Sequence[BlockPart]) -> tuple[Sequence[BlockPart], Mapping[str, float]]:
    """Merge the smallest classes if there are too many tables to rank. Returns shares of all
    classes."""
    shares = class_shares(parts)
    longest = max((part.k for part in parts), default=0)
    most = max(1, int(math.log(MOST_TABLES) / math.log(longest + 1))) if longest else len(shares)
    if len(shares) <= most:
        return parts, shares
    apart = set(list(shares)[: most - 1])
    grouped = [p if p.class_ in apart else replace(p, class_=OTHERS) for p in parts]
    return grouped, shares
