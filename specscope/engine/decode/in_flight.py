"""Rounds in flight: launched, collected once the device has finished them, and reported.

With a pipeline depth of 1 the host prepares the next round while the device runs this one.
"""

import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from specscope.engine.api import RoundReport
from specscope.engine.decode.batch import Batch, BatchState, SamplingNeeds
from specscope.engine.decode.drafters.drafter import Drafter, DummyDrafter
from specscope.engine.decode.graphs import MOST_SHAPES, Graphs, graphs_for
from specscope.engine.decode.model_runner import ModelRunner
from specscope.engine.decode.round import Outcome, run_round
from specscope.engine.decode.scheduler import Decode, PrefillChunk, Request
from specscope.engine.decode.timing import LAUNCH, Clock, Durations, Measured, Timer, timer_for
from specscope.engine.model.decoder import Decoder
from specscope.engine.model.device import is_gpu
from specscope.engine.model.kv_cache import KVCache, rounded
from specscope.engine.model.layout import Buckets


@dataclass(frozen=True, slots=True)
class RoundInFlight:
    """A launched round whose results the host has not read yet."""

    requests: list[Request]
    contexts: list[int]
    result: Tensor  # [rows, K + 3], see commit
    outcome: Outcome
    measured: Measured
    started_at: int  # Unix ns
    waiting: int
    chunks: Sequence[PrefillChunk]


@dataclass(frozen=True, slots=True)
class RequestRound:
    """One request's share of a round; `end` is "none" while the request goes on."""

    request: Request
    context: int
    k: int
    accepted: int
    emitted: int
    end: str


def append_tokens(
    launched: RoundInFlight, present: Collection[Request], decode: Decode | None
) -> list[RequestRound]:
    """Append a round's tokens to the requests that are still `present`; call their listeners."""
    shares = []
    for request, context, k, (accepted, emitted, *block) in zip(
        launched.requests,
        launched.contexts,
        launched.outcome.widths,
        launched.result.tolist(),
        strict=True,
    ):
        if request in present:
            kept, end = request.extend(block[:emitted], decode)
            shares.append(RequestRound(request, context, k, accepted, kept, end))
            if request.listener is not None:
                request.listener(block[:kept])
    return shares


def build_report(
    launched: RoundInFlight,
    durations: Durations,
    shares: list[RequestRound],
    ends: Mapping[Request, str],
    timing_source: str,
) -> RoundReport:
    """The report of a round whose results are known; ends: of those who leave, and how."""
    took = durations.parts
    return RoundReport(
        started_at=launched.started_at,
        wall_us=durations.wall,
        draft_us=took["draft"],
        verify_us=took["verify"],
        sample_us=took["sample"],
        idle_us=durations.idle,
        catchup_us=took["catchup"],
        prefill_us=took["prefill"],
        timing_source=timing_source,
        waiting=launched.waiting,
        prefill_tokens=sum(chunk.tokens for chunk in launched.chunks),
        padded_tokens=launched.outcome.padding,
        preempted=sum(end == "preempt" for end in ends.values()),
        requests=[share.request.info.id for share in shares],
        contexts=[share.context for share in shares],
        k=[share.k for share in shares],
        accepted=[share.accepted for share in shares],
        emitted=[share.emitted for share in shares],
        ends=[ends.get(share.request, "none") for share in shares],
        launch_us=max(0.0, took[LAUNCH]),
        gaps_us=durations.gaps,
    )


POLL_SECONDS = 20e-6
"""Between two looks at a round that has not passed: short beside any round of a GPU."""


class RoundPipeline:
    """Launch rounds of target and drafter, and keep those with unread results."""

    def __init__(
        self,
        target: ModelRunner,
        drafter: Drafter,
        state: BatchState,
        timer: Timer,
        graphs: Graphs | None,
        forced: Tensor | None,
    ) -> None:
        """forced: [k_max] acceptance by position instead of the true test, see verify_proposals."""
        self.target, self.drafter, self.state = target, drafter, state
        self.timer, self.graphs, self.forced = timer, graphs, forced
        self.in_flight: deque[RoundInFlight] = deque()
        # Views at exact positions, and rows in the order of their drafts, spare a CPU work; a GPU
        # wants aligned extents, and reads a few padding queries in the time of one.
        self.exact = graphs is None and not is_gpu(state.device)

    @property
    def tokens_in_flight(self) -> int:
        """Tokens that rounds in flight may have added to a row unknown to the host."""
        return len(self.in_flight) * (self.state.k_max + 1)

    def launch(
        self,
        requests: list[Request],
        ks: Sequence[int],
        started_at: int,
        waiting: int,
        chunks: Sequence[PrefillChunk],
    ) -> None:
        """Run a round of `requests`, at most ks[r] proposals for each, and have its results copied.

        The rest goes into its report: when the round began (Unix ns), how many requests wait, and
        what was read of prompts before it.
        """
        needs = SamplingNeeds()
        for request in requests:
            needs |= request.needs
        contexts = [len(request.text) for request in requests]
        batch = Batch(
            self.state,
            needs,
            [request.info for request in requests],
            [request.text for request in requests],
            min(max(contexts) + self.tokens_in_flight, self.state.capacity),
            self.graphs,
            contexts if self.exact and not self.in_flight else None,
        )
        outcome = run_round(self.target, self.drafter, batch, ks, self.timer, self.forced)
        self.drafter.advanced(ks)
        result = outcome.result.to("cpu", non_blocking=True)  # from a GPU into pinned memory
        measured = self.timer.end()
        self.in_flight.append(
            RoundInFlight(
                requests, contexts, result, outcome, measured, started_at, waiting, chunks
            )
        )

    def collect(self) -> tuple[RoundInFlight, Durations]:
        """The oldest round in flight after its end, with its times."""
        launched = self.in_flight.popleft()
        return launched, _when_passed(launched.measured)

    def warm_up(
        self,
        ks: Collection[int],
        sampling: Collection[SamplingNeeds],
        rows: Sequence[int],
        depth: int,
    ) -> int:
        """Capture the graphs of rounds before the first request; how many shapes there are now.

        For every bucket of `rows`, every extent, all of `sampling`, and batches that draft each
        of `ks` or, if there are several, any mixture of them. The largest come first, so that
        later graphs fit into the memory of earlier ones. Each shape gets a copy for all rounds
        that may be unread at once, depth + 1. At most half of MOST_SHAPES is captured.

        Each is rehearsed on empty rows. No request may be running.
        """
        if self.graphs is None:
            return 0
        graphs, buckets = self.graphs, self.graphs.buckets
        self.state.clear()
        for row in range(buckets.slots):
            self.drafter.admitted(row, [0])
        sizes = sorted({buckets.rows(count) for count in rows}, reverse=True)
        for count, extent, needs in product(sizes, buckets.extents, sampling):
            for lengths in _mixtures(buckets, count, ks, self.drafter.draws):
                if len(graphs.shapes) >= MOST_SHAPES // 2 or graphs.broken:
                    return len(graphs.shapes)
                context = max(1, extent - (self.state.k_max if any(lengths) else 0))
                batch = Batch(self.state, needs, (), (), context, graphs)
                with graphs.capturing():
                    self._rehearse(batch, lengths, depth)
        return len(graphs.shapes)

    def _rehearse(self, batch: Batch, ks: Sequence[int], depth: int) -> None:
        """Run eagerly, then as often as its results may be unread: so many copies are captured."""
        drafter = self.drafter if self.drafter.draws else DummyDrafter(self.state.device)
        launched = []
        for _ in range(1 + depth + 1):
            self.timer.begin(after_idle=True)
            run_round(self.target, drafter, batch, ks, self.timer, self.forced)
            launched.append(self.timer.end())
        for measured in launched:
            _when_passed(measured)


def _mixtures(buckets: Buckets, rows: int, ks: Collection[int], exact: bool) -> list[list[int]]:
    """Draft lengths of `rows` rows, one list for each shape that a mixture of `ks` can have.

    exact: whether a row at k proposes k tokens, and never fewer.
    """
    most = max(ks)
    if most == 0 or (exact and len(ks) == 1):
        return [[most] * rows]
    mixtures = []
    for tokens in buckets.all_tokens(rows, most + 1):
        drafts = min(tokens - rows, most * rows)
        full, rest = divmod(drafts, most)
        mixtures.append(([most] * full + [rest] + [0] * rows)[:rows])
    drafting = [lengths for lengths in mixtures if any(lengths)]
    return drafting + ([[0] * rows] if 0 in ks or not exact else [])


def open_pipeline(
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
) -> RoundPipeline:
    """Everything that rounds need on `device`: caches, state, timer, graphs. See Engine."""
    timer = timer_for(device, clock)
    positions = rounded(capacity + k_max + 1)  # a round may write behind a text of full length
    replayed = graphs_for(device, Buckets(slots, k_max, positions), timer, graphs)
    rows = slots + (replayed is not None)  # with graphs, a padding row
    cache = KVCache(target.config, rows, positions, device, target.dtype)
    state = BatchState(rows, capacity, k_max, device)
    drafter.open(rows, capacity, k_max, device)
    forced = None if synthetic is None else torch.tensor(synthetic, device=device)
    runner = ModelRunner(target, cache, drafter.features)
    return RoundPipeline(runner, drafter, state, timer, replayed, forced)


def _when_passed(measured: Measured) -> Durations:
    while not measured.ready():
        time.sleep(POLL_SECONDS)
    return measured.read()
