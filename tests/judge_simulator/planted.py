"""Scenarios with a known truth: what is in force for ever, under the same traffic."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial

import numpy as np
from plans import Array, Cost, Kind, Noise, Recorded, Traffic
from worlds import coin_flips, run

Draw = Callable[[int, int, np.random.Generator], Array]
"""(blocks, worlds, source of chance) -> a number, or a share of each class, a block and world."""

CHAT = Kind("chat", (0.72, 0.68, 0.64, 0.60, 0.57, 0.55, 0.53, 0.5))
EASY = Kind("sql", (0.92, 0.90, 0.89, 0.88, 0.87, 0.86, 0.85, 0.84), output=120)
HARD = Kind("prose", (0.40, 0.34, 0.30, 0.27, 0.25, 0.24, 0.23, 0.22), output=80)


@dataclass(frozen=True)
class Scenario:
    """design: how traffic reaches the blocks; metric: what its speedup is of."""

    name: str
    design: str
    metric: str
    kinds: tuple[Kind, ...] = (CHAT,)
    cost: Cost = field(default_factory=Cost)
    noise: Noise = field(default_factory=Noise)
    rate: Draw | None = None
    share: Draw | None = None
    slots: int = 48
    lengths: tuple[int, ...] = (0, 4)
    pairs: int = 48
    own_truth: bool = False  # the traffic that ran is counted beside the long run
    seen: dict[int, tuple[float, ...]] = field(default_factory=dict)
    more: dict[int, float] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Of all that it plants."""
        plan = {**asdict(self), "rate": _named(self.rate), "share": _named(self.share)}
        return hashlib.sha256(repr(plan).encode()).hexdigest()[:12]

    def traffic(self, blocks: int, worlds: int, seed: int) -> Traffic:
        """The same for every arm: its own source of chance."""
        random = np.random.default_rng(seed + 7)
        if self.share is None:
            shares = np.full((blocks, worlds, len(self.kinds)), 1.0 / len(self.kinds))
        else:
            shares = self.share(blocks, worlds, random)
        return Traffic(
            rate=None if self.rate is None else self.rate(blocks, worlds, random),
            share=shares,
            slots=self.slots,
            seen={k: np.array(row) for k, row in self.seen.items()},
            more=self.more,
        )

    def experiment(self, worlds: int, seed: int, pairs: int | None = None) -> Recorded:
        """Pairs of blocks in random order."""
        count = (pairs or self.pairs) * len(self.lengths)
        arms = coin_flips(pairs or self.pairs, worlds, self.lengths, seed + 1)
        return run(
            arms, self.kinds, self.cost, self.traffic(count, worlds, seed), self.noise, seed + 2
        )

    def alone(self, k: int, worlds: int, seed: int, pairs: int | None = None) -> Recorded:
        """One draft length for ever, under the traffic that `experiment` of this seed meets.

        Without the noise that arms share, which would blur the truth.
        """
        count = (pairs or self.pairs) * len(self.lengths)
        arms = np.full((count, worlds), k)
        quiet = replace(self.noise, block=0.0, drift=0.0)
        return run(
            arms, self.kinds, self.cost, self.traffic(count, worlds, seed), quiet, seed + 3 + k
        )


def performance(recorded: Recorded, metric: str, axis: int | None = None) -> Array:
    """What a speedup is of: more is better. axis 0: of each world; None: of all together."""
    if metric == "latency":
        return recorded.timed.sum(axis=axis) / recorded.time_ms.sum(axis=axis)
    return recorded.sums["emitted"].sum(axis=axis) / recorded.sums["wall"].sum(axis=axis)


def true_log_ratio(scenario: Scenario, k: int, worlds: int, seed: int, own: bool) -> Array:
    """log of what k gives over k0, by world where own, else of all worlds together."""
    axis = 0 if own else None
    one, base = (scenario.alone(length, worlds, seed) for length in (k, 0))
    found = np.log(
        performance(one, scenario.metric, axis) / performance(base, scenario.metric, axis)
    )
    return np.broadcast_to(found, (worlds,))


def steady(rate: float) -> Draw:
    """Arrivals of one rate. [requests/s]"""
    return partial(_steady, rate)


def bursts(rate: float) -> Draw:
    """A rate that doubles in bursts of one block, and varies beside."""
    return partial(_varying, rate, 0.0, 1, 0.15)


def daily(rate: float, day: int = 40) -> Draw:
    """A rate that follows a day of so many blocks."""
    return partial(_varying, rate, 0.4, day, 0.0)


def bursts_of_a_day(rate: float, day: int = 40) -> Draw:
    """A rate that follows a day, doubles in bursts, and varies beside."""
    return partial(_varying, rate, 0.4, day, 0.15)


def wandering(scale: float, memory: float) -> Draw:
    """The mix of two classes: log odds that wander from block to block."""
    return partial(_wandering, scale, memory)


def _steady(rate: float, blocks: int, worlds: int, random: np.random.Generator) -> Array:
    return np.full((blocks, worlds), rate)


def _varying(
    rate: float, swing: float, day: int, often: float, blocks: int, worlds: int,
    random: np.random.Generator,
) -> Array:  # fmt: skip
    phase = random.uniform(0, 2 * np.pi, worlds)
    cycle = 1.0 + swing * np.sin(phase + 2 * np.pi * np.arange(blocks)[:, None] / day)
    burst = np.where(random.random((blocks, worlds)) < often, 1.8, 0.9)
    return rate * cycle * burst * np.exp(random.normal(0, 0.1, (blocks, worlds)))


def _named(draw: Draw | None) -> str:
    return f"{draw.func.__name__}{draw.args}" if isinstance(draw, partial) else repr(draw)


def _wandering(
    scale: float, memory: float, blocks: int, worlds: int, random: np.random.Generator
) -> Array:
    odds = np.zeros((blocks, worlds))
    odds[0] = random.normal(0, scale, worlds)
    for number in range(1, blocks):
        fresh = np.sqrt(1 - memory**2) * random.normal(0, scale, worlds)
        odds[number] = memory * odds[number - 1] + fresh
    first = 1.0 / (1.0 + np.exp(-odds))
    return np.stack([first, 1.0 - first], axis=2)


LATENCY = Scenario("latency, plain", "switchback", "latency", rate=steady(12.0), slots=32)
CLOSED = Scenario("closed loop, plain", "closed_loop", "throughput", slots=24)
UNEQUAL = Noise(effect=0.15, heavy=True)
SCENARIOS = (
    LATENCY,
    replace(LATENCY, name="latency, stalls", noise=Noise(stalls=0.02)),
    replace(LATENCY, name="latency, bursts", rate=bursts(12.0), slots=48),
    replace(LATENCY, name="latency, daily cycle", rate=daily(14.0), slots=48),
    replace(LATENCY, name="latency, bursts, daily, mix wanders", kinds=(EASY, HARD), slots=48,
            rate=bursts_of_a_day(12.0), share=wandering(0.8, 0.5)),
    replace(LATENCY, name="latency, unequal effects", noise=UNEQUAL),
    replace(LATENCY, name="latency, nothing differs", kinds=(replace(CHAT, hazard=(0.0,) * 8),),
            cost=Cost(draft=0.0, draft_per_sequence=0.0)),
    CLOSED,
    replace(CLOSED, name="closed loop, stalls and unequal effects",
            noise=replace(UNEQUAL, stalls=0.02)),
    replace(CLOSED, name="closed loop, mix wanders", kinds=(EASY, HARD), share=wandering(1.2, 0.7),
            own_truth=True),
    replace(CLOSED, name="closed loop, mix wanders slowly", kinds=(EASY, HARD),
            share=wandering(1.2, 0.84), own_truth=True),
    replace(CLOSED, name="closed loop, slow wander under stalls", kinds=(EASY, HARD),
            share=wandering(0.4, 0.84), noise=replace(UNEQUAL, stalls=0.02), own_truth=True),
    Scenario("saturated in both", "switchback", "throughput", rate=steady(45.0), slots=24),
)  # fmt: skip
PARTLY_SATURATED = Scenario(
    "only k0 saturates", "switchback", "throughput", rate=steady(30.0), slots=24
)
