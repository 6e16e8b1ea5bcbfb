"""Rounds on the device: launched, in flight, and handed over once they have passed."""

import time
from collections import deque
from collections.abc import Collection, Sequence
from itertools import product

import torch
from torch import Tensor

from specscope.engine.buckets import Buckets
from specscope.engine.cache import KVCache
from specscope.engine.clock import Clock
from specscope.engine.drafter import Batch, Drafter
from specscope.engine.flight import Flight
from specscope.engine.graphs import MOST_SHAPES, Graphs, graphs_for
from specscope.engine.model import Decoder
from specscope.engine.parts import Durations
from specscope.engine.round import Target, rehearse_round, run_round
from specscope.engine.seats import Portion
from specscope.engine.sequence import Running
from specscope.engine.state import BatchState, Needs
from specscope.engine.timing import Measured, Timer, timer_for

POLL_SECONDS = 20e-6
"""Between two looks at a round that has not passed: short beside any round of a GPU."""


class Rounds:
    """Launches rounds of target and drafter and keeps those whose results nobody has read."""

    def __init__(
        self,
        target: Target,
        drafter: Drafter,
        state: BatchState,
        timer: Timer,
        graphs: Graphs | None,
        forced: Tensor | None,
    ) -> None:
        """forced: [k_max] acceptance by position instead of the true test, see judge."""
        self.target, self.drafter, self.state = target, drafter, state
        self.timer, self.graphs, self.forced = timer, graphs, forced
        self.flights: deque[Flight] = deque()

    @property
    def unseen(self) -> int:
        """Tokens that rounds in flight may have added to a row unknown to the host."""
        return len(self.flights) * (self.state.k_max + 1)

    def launch(
        self,
        rows: list[Running],
        ks: Sequence[int],
        started_at: int,
        waiting: int,
        portions: Sequence[Portion],
    ) -> None:
        """Run a round of `rows`, at most ks[r] proposals for each, and have its results copied.

        The rest goes into its report: when the round began (Unix ns), how many requests wait, and
        what was read of prompts before it.
        """
        needs = Needs()
        for row in rows:
            needs |= row.needs
        contexts = [len(row.text) for row in rows]
        batch = Batch(
            self.state,
            needs,
            [row.info for row in rows],
            [row.text for row in rows],
            min(max(contexts) + self.unseen, self.state.capacity),
            self.graphs,
        )
        outcome = run_round(self.target, self.drafter, batch, ks, self.timer, self.forced)
        self.drafter.advanced(ks)
        result = outcome.result.to("cpu", non_blocking=True)  # from a GPU into pinned memory
        measured = self.timer.end()
        self.flights.append(
            Flight(rows, contexts, result, outcome, measured, started_at, waiting, portions)
        )

    def land(self) -> tuple[Flight, Durations]:
        """The oldest round in flight, once it has passed, and its times."""
        flight = self.flights.popleft()
        return flight, _when_passed(flight.measured)

    def warm_up(
        self, ks: Collection[int], sampling: Collection[Needs], rows: Sequence[int], depth: int
    ) -> int:
        """Capture the graphs of rounds with all rows at one k; how many shapes there are now.

        For every size of `rows`, every extent, every one of `ks` and of `sampling`, the largest
        first, so that later graphs find room in what earlier ones took; a graph for each of the
        depth + 1 rounds that may be unread at once. At most half of all shapes that may be: the
        other half is left to the rounds that come by.

        Each is rehearsed as rounds of nobody. Nothing may be running, and no row may hold anything.
        """
        if self.graphs is None:
            return 0
        graphs, buckets = self.graphs, self.graphs.buckets
        self.state.clear()
        sizes = sorted({buckets.rows(count) for count in rows}, reverse=True)
        lengths = sorted(ks, reverse=True)
        for count, extent, k, needs in product(sizes, buckets.extents, lengths, sampling):
            if len(graphs.shapes) >= MOST_SHAPES // 2 or graphs.broken:
                break
            context = max(1, extent - (buckets.width(k + 1) - 1))
            self._rehearse(Batch(self.state, needs, (), (), context, graphs), [k] * count, depth)
        return len(graphs.shapes)

    def _rehearse(self, batch: Batch, ks: Sequence[int], depth: int) -> None:
        """As it is, and then as often as its marks may be unread: so many copies are captured."""
        launched = []
        for _ in range(1 + depth + 1):
            self.timer.begin(after_idle=True)
            rehearse_round(self.target, self.drafter, batch, ks, self.timer, self.forced)
            launched.append(self.timer.end())
        for measured in launched:
            _when_passed(measured)


def open_rounds(
    target: Decoder,
    drafter: Drafter,
    *,
    slots: int,
    capacity: int,
    k_max: int,
    device: str,
    clock: Clock,
    graphs: bool | None,
    synthetic: Sequence[float] | None,
) -> Rounds:
    """Everything that rounds need on `device`: caches, state, timer, graphs. See Engine."""
    timer = timer_for(device, clock)
    positions = capacity + k_max + 1  # a round may write behind a text of full length
    replayed = graphs_for(device, Buckets(slots, k_max, positions), timer, graphs)
    rows = slots + (replayed is not None)  # with graphs, one of nobody
    cache = KVCache(target.config, rows, positions, device, target.dtype)
    state = BatchState(rows, capacity, k_max, device)
    drafter.open(rows, capacity, k_max, device)
    forced = None if synthetic is None else torch.tensor(synthetic, device=device)
    return Rounds(Target(target, cache), drafter, state, timer, replayed, forced)


def _when_passed(measured: Measured) -> Durations:
    while not measured.ready():
        time.sleep(POLL_SECONDS)
    return measured.read()
