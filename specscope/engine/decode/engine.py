"""The engine's loop: prefill, ask the gate, launch a round, collect results.

Results are collected `depth` rounds late, so that the host prepares a round while the GPU runs the
one before. A request that ended meanwhile stays in up to `depth` more rounds and emits nothing."""

from collections import deque
from collections.abc import Callable, Collection, Sequence

import torch

from specscope.engine.api import Gate, Observer, RequestInfo, SamplingParams
from specscope.engine.decode.batch import sampling_needs
from specscope.engine.decode.checks import check_engine, check_gate, check_request
from specscope.engine.decode.drafters.drafter import Drafter
from specscope.engine.decode.in_flight import (
    RoundInFlight,
    append_tokens,
    build_report,
    open_pipeline,
)
from specscope.engine.decode.scheduler import (
    Decode,
    KVBudget,
    PrefillChunk,
    Request,
    Scheduler,
    budget_of,
)
from specscope.engine.decode.timing import Clock, Durations, SystemClock
from specscope.engine.errors import BadRequest, BadSetting
from specscope.engine.model.decoder import Decoder
from specscope.engine.model.device import is_gpu, on_device

PREFILL_TOKENS = 2048
"""What other engines take; on a CPU 256 cost hardly more a token and keep others waiting less."""


class Engine:
    """Runs requests through target and drafter until they end."""

    def __init__(
        self,
        target: Decoder,
        drafter: Drafter,
        *,
        k_max: int,
        slots: int,
        capacity: int,
        gate: Gate,
        observers: Sequence[Observer] = (),
        device: str = "cpu",
        detokenize: Decode | None = None,
        synthetic: Sequence[float] | None = None,
        depth: int | None = None,
        prefill_tokens: int = PREFILL_TOKENS,
        cache_tokens: int | None = None,
        clock: Clock | None = None,
        graphs: bool | None = None,
    ) -> None:
        """k_max: longest draft. slots: sequences at once. capacity: tokens of one sequence.

        detokenize: needed for stop strings only.
        synthetic: conditional acceptance by position, forced upon the verifier: the load is real,
        the text is not the target's.
        depth: rounds in flight when results are read (default: 0 on a CPU, 1 on a GPU).
        prefill_tokens: maximum of prompt tokens that are prefilled between two rounds while
        sequences run.
        cache_tokens: maximum of tokens in all caches, including the k_max + 1 positions that a
        round may write; beyond it the youngest sequences are preempted (default: enough for all
        slots).
        clock: source of all times (default: the machine's).
        graphs: pad rounds to few shapes and replay them as CUDA graphs (default: on a GPU). On a
        CPU, rounds are padded and replayed without a graph, for tests.

        Raises BadSetting if these do not fit the models.
        """
        budget = KVBudget(budget_of(slots, capacity, k_max, cache_tokens), k_max + 1)
        check_engine(target, k_max, slots, capacity, prefill_tokens, budget.tokens, synthetic)
        drafter.check(target, capacity + k_max + 1)
        self.k_max, self.slots, self.capacity, self.gate = k_max, slots, capacity, gate
        self.observers, self.detokenize = list(observers), detokenize
        self.budget, self.prefill_tokens = budget, prefill_tokens
        self.clock = clock or SystemClock()
        self.on_device = on_device(device)
        self.pipeline = open_pipeline(
            target, drafter, slots=slots, capacity=capacity, k_max=k_max, device=device,
            clock=self.clock, graphs=graphs, synthetic=synthetic,
        )  # fmt: skip
        self.target, self.drafter, self.state = self.pipeline.target, drafter, self.pipeline.state
        self.timer, self.graphs = self.pipeline.timer, self.pipeline.graphs
        self.scheduler = Scheduler(slots, budget, self.state, self.target, drafter)
        self.rows, self.queue = self.scheduler.rows, self.scheduler.queue
        wanted = int(is_gpu(device)) if depth is None else depth
        self.depth = 0 if drafter.reads_texts else wanted
        self.aborts: deque[str] = deque()
        self.known: set[str] = set()
        self.was_idle, self.ended_at = True, 0

    @property
    def idle(self) -> bool:
        """Whether no request runs or waits."""
        return not (self.rows or self.queue or self.pipeline.in_flight)

    def submit(
        self,
        id: str,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        label: str = "",
        session: str = "",
        listener: Callable[[Sequence[int]], None] | None = None,
    ) -> None:
        """Queue a request; may be called from any thread, and from observers.

        `listener` is given each round's tokens, in the engine's thread.

        Raises BadRequest if it can never run or its id is in use.
        """
        self.check(prompt_ids, params)
        if id in self.known:
            raise BadRequest(f"request {id!r} is running already")
        self.known.add(id)
        prompt = tuple(prompt_ids)
        info = RequestInfo(id, label, len(prompt), params, self.clock.unix_ns(), session, prompt)
        limit = min(len(prompt_ids) + params.max_new_tokens, self.capacity)
        self.queue.append(Request(info, list(prompt_ids), limit, listener, self.clock))

    def check(self, prompt_ids: Sequence[int], params: SamplingParams) -> None:
        """Raises BadRequest if such a request can never run."""
        vocab = self.target.model.config.vocab
        check_request(prompt_ids, params, vocab, self.capacity, self.detokenize is not None)

    def abort(self, id: str) -> None:
        """End a request before the next round; unknown or ended ones are ignored.

        May be called from any thread. The round that was running still counts; an aborted
        sequence is in no later one.
        """
        self.aborts.append(id)

    def warm_up(
        self,
        ks: Collection[int],
        sampling: Sequence[SamplingParams] = (),
        rows: Sequence[int] | None = None,
    ) -> int:
        """Capture CUDA graphs before the first request; how many there are, 0 without graphs.

        It captures rounds that draft `ks` or any mixture of them, for all context lengths, with the
        settings in `sampling` (default: greedy), for the given numbers of `rows` (default: any).
        Other rounds run eagerly until `capture` is called.

        Raises BadSetting if there are requests already.
        """
        if not self.idle:
            raise BadSetting("graphs are captured before the first request, or while none is there")
        counts = range(1, self.slots + 1) if rows is None else rows
        needs = list(dict.fromkeys(sampling_needs(own) for own in sampling or [SamplingParams()]))
        with self.on_device:
            return self.pipeline.warm_up(ks, needs, counts, self.depth)

    def capture(self, most: int | None = None) -> int:
        """Capture at most `most` missing CUDA graphs; returns their number.

        Does nothing while a request runs or waits.
        """
        if self.graphs is None or not self.idle:
            return 0
        with self.on_device:
            return self.graphs.capture(most)

    def step(self) -> bool:
        """Run one round; False if there was nothing to run."""
        with self.on_device:
            return self._step()

    def _step(self) -> bool:
        self._drop_aborted()
        anything = bool(self.rows or self.queue)
        if anything:
            self._run_round()
        if not self.rows and not self.queue:
            self._collect(0)
            self.was_idle = True
        return anything

    def _run_round(self) -> None:
        started_at = self.clock.unix_ns() if self.was_idle else self.ended_at
        for observer in self.observers:
            observer.round_begins()
        self.timer.begin(self.was_idle)
        chunks = self._prefill()
        running = self.scheduler.running
        self.was_idle = not running
        if not running:
            return
        waiting = len(self.queue)
        ks = list(self.gate([request.state() for request in running], waiting))
        check_gate(ks, len(running), self.k_max)
        if self.pipeline.exact:
            ks = self.scheduler.gather_drafts(ks, self.pipeline.tokens_in_flight)
            running = self.scheduler.running
        self.pipeline.launch(running, ks, started_at, waiting, chunks)
        self.ended_at = self.clock.unix_ns()
        self._collect(self.depth)

    def _drop_aborted(self) -> None:
        ids = set()
        while self.aborts:
            ids.add(self.aborts.popleft())
        if not ids:
            return
        for request in [request for request in list(self.queue) if request.info.id in ids]:
            self.queue.remove(request)
            self._report_end(request, "abort")
        leaving = [row for row, request in enumerate(self.rows) if request.info.id in ids]
        for request in self.scheduler.release(leaving, self.pipeline.tokens_in_flight):
            self._report_end(request, "abort")

    def _prefill(self) -> list[PrefillChunk]:
        """Prefill up to the budget. While nothing decodes, finish the prompt in front."""
        chunks = self._prefill_at_most(self.prefill_tokens)
        while self.rows and not self.scheduler.running:
            self._drop_aborted()
            if self.rows:
                most = min(self.prefill_tokens, self.rows[-1].unread)
                chunks += self._prefill_at_most(most)
        return chunks

    def _prefill_at_most(self, tokens: int) -> list[PrefillChunk]:
        chunks = self.scheduler.next_chunks(tokens, self.pipeline.tokens_in_flight)
        for chunk in chunks:
            if chunk.new and not chunk.request.preemptions:
                for observer in self.observers:
                    observer.admitted(chunk.request.info)
        if chunks:
            with self.timer.part("prefill"), torch.inference_mode():
                self.scheduler.prefill(chunks)
        return chunks

    def _collect(self, depth: int) -> None:
        """Collect all but the newest `depth` rounds; all of them if the cache may be full."""
        in_flight = self.pipeline.in_flight
        while len(in_flight) > depth or (
            in_flight and self.budget.exceeded(self.rows, self.pipeline.tokens_in_flight)
        ):
            self._account(*self.pipeline.collect())

    def _account(self, launched: RoundInFlight, durations: Durations) -> None:
        """Append tokens, report the round, and release or preempt rows."""
        for request in {chunk.request for chunk in launched.chunks if chunk.tokens}:
            request.prefill += round(1e3 * durations.parts["prefill"])
        shares = append_tokens(launched, set(self.rows), self.detokenize)
        ends = {share.request: share.end for share in shares if share.end != "none"}
        # Texts have their final length only when no round is in flight.
        staying = [request for request in self.rows if request not in ends]
        preempted = [] if self.pipeline.in_flight else self.budget.to_preempt(staying)
        ends |= dict.fromkeys(preempted, "preempt")
        if shares and self.observers:
            report = build_report(launched, durations, shares, ends, self.timer.source)
            for observer in self.observers:
                observer.round_ended(report)
        leaving = [row for row, request in enumerate(self.rows) if request in ends]
        for request in self.scheduler.release(leaving, self.pipeline.tokens_in_flight):
            if ends[request] != "preempt":
                self._report_end(request, ends[request])
        self.scheduler.requeue(preempted)

    def _report_end(self, request: Request, reason: str) -> None:
        self.known.discard(request.info.id)
        end = request.end(reason)
        for observer in self.observers:
            observer.ended(end)
