"""A serving engine in numpy: every request of a step waits for the same step.

Closed loop: a slot is refilled at once. Requests draw their own acceptance rate from a beta
distribution, their output from 20 + Exp(180) tokens and their context from U(500, 1500).
A step costs 6.94 + 0.0184 n_q + 4.86e-5 n_kv ms, k (0.35 + 0.001 B) + 0.2 ms more where any
request speculates, and 3 ms a request that it admits.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from specscope.evaluate.experiment.blocks import BlockTime


@dataclass
class Stretch:
    """What ran between two moments."""

    tokens: int = 0
    wall_ms: float = 0.0
    rounds: int = 0
    admitted: int = 0


@dataclass
class Engine:
    """batch slots; rates from Beta(a, b); k for requests that speculate."""

    batch: int
    a: float
    b: float
    k: int
    seed: int
    share: float = 1.0  # of requests that speculate, drawn at admission
    random: np.random.Generator = field(init=False)
    finished: list[tuple[bool, float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.rate = np.zeros(self.batch)
        self.left = np.zeros(self.batch)
        self.context = np.zeros(self.batch)
        self.speculates = np.zeros(self.batch, dtype=bool)
        self.began = np.zeros(self.batch)
        self.length = np.zeros(self.batch)
        self.clock_ms = 0.0
        self._admit(np.ones(self.batch, dtype=bool))
        # A running engine is not full of requests that all have just begun.
        self.left = np.ceil(self.left * self.random.random(self.batch))

    def _admit(self, places: np.ndarray) -> int:
        count = int(places.sum())
        self.rate[places] = self.random.beta(self.a, self.b, count)
        self.left[places] = self.length[places] = np.ceil(20 + self.random.exponential(180, count))
        self.context[places] = self.random.uniform(500, 1500, count)
        self.speculates[places] = self.random.random(count) < self.share
        self.began[places] = self.clock_ms
        return count

    def run(self, seconds: float, k: int | None = None, record: bool = False) -> Stretch:
        """Advance; k overrides the draft length of every request that speculates."""
        length = self.k if k is None else k
        until = self.clock_ms + 1e3 * seconds
        done = Stretch()
        while self.clock_ms < until:
            drafts = np.where(self.speculates, length, 0)
            drawn = np.log(self.random.random(self.batch)) / np.log(self.rate)
            accepted = np.minimum(np.floor(drawn), drafts)
            out = np.minimum(accepted + 1, self.left)
            wall = 6.94 + 0.0184 * (self.batch + drafts.sum()) + 4.86e-5 * self.context.sum()
            if length and self.speculates.any():
                wall += length * (0.35 + 0.001 * self.batch) + 0.2
            self.left -= out
            self.context += out
            ended = self.left <= 0
            self.clock_ms += wall
            if ended.any():
                if record:
                    self.finished += zip(
                        self.speculates[ended].tolist(),
                        (self.clock_ms - self.began[ended]).tolist(),
                        self.length[ended].tolist(),
                        strict=True,
                    )
                count = self._admit(ended)
                wall += 3.0 * count
                self.clock_ms += 3.0 * count
                done.admitted += count
            done.tokens += int(out.sum())
            done.wall_ms += wall
            done.rounds += 1
        return done


def as_block(stretch: Stretch, arm: str, k: int, pair: int, batch: int) -> BlockTime:
    """A stretch as a row of the evaluator."""
    return BlockTime(
        epoch="e",
        policy=1,
        replica="r",
        boot="b",
        pair=pair,
        arm=arm,
        requests=stretch.admitted,
        rounds=stretch.rounds,
        request_rounds=stretch.rounds * batch,
        classes=("all",),
        k=k,
        wall_us=1e3 * stretch.wall_ms,
        emitted=stretch.tokens,
        proposed=k * stretch.rounds * batch,
    )


def switchback(engine: Engine, pairs: int, seconds: float, burn_in: float) -> list[BlockTime]:
    """Pairs of blocks in random order on one running engine; the burn-in is not recorded."""
    order = np.random.default_rng(engine.seed + 1)
    rows = []
    for pair in range(1, pairs + 1):
        arms = [("k0", 0), (f"k{engine.k}", engine.k)]
        for arm, k in order.permutation(np.array(arms, dtype=object)):
            engine.run(burn_in * seconds, k)
            stretch = engine.run((1 - burn_in) * seconds, k)
            rows.append(as_block(stretch, arm, int(k), pair, engine.batch))
    return rows
