"""The loop: admit, ask the gate, run a round, read what came out.

Results are read `depth` rounds late, so that on a GPU the host prepares the next round while this
one runs; a sequence that ended meanwhile rides along for `depth` rounds and emits nothing.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from specscope.engine.api import Gate, Observer, RequestInfo, SamplingParams
from specscope.engine.buckets import Buckets
from specscope.engine.budget import CacheBudget
from specscope.engine.cache import KVCache
from specscope.engine.checks import check_engine, check_gate, check_request
from specscope.engine.clock import Clock, SystemClock
from specscope.engine.drafter import Batch, Drafter
from specscope.engine.errors import BadRequest
from specscope.engine.flight import Flight, extend_texts, report_of
from specscope.engine.graphs import graphs_for
from specscope.engine.model import Decoder
from specscope.engine.round import Outcome, Target, run_round
from specscope.engine.seats import Portion, Seats
from specscope.engine.sequence import Detokenize, Running
from specscope.engine.state import BatchState, Needs
from specscope.engine.timing import timer_for

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
        detokenize: Detokenize | None = None,
        synthetic: Sequence[float] | None = None,
        depth: int | None = None,
        prefill_tokens: int = PREFILL_TOKENS,
        cache_tokens: int | None = None,
        clock: Clock | None = None,
        graphs: bool | None = None,
    ) -> None:
        """k_max: longest draft. slots: sequences at once. capacity: tokens of one sequence.

        detokenize: needed for stop strings only.
        synthetic: conditional acceptance by position, forced upon the verifier: load is real,
        text is not the target's.
        depth: rounds in flight when results are read; 0 on a CPU, 1 on a GPU, if not given.
        prefill_tokens: tokens of prompts that are read between two rounds, at most, while
        sequences run.
        cache_tokens: that all sequences together may hold, the k_max + 1 places that a round may
        write included; when they would hold more, the youngest go back to the queue. Enough for
        all slots, if not given.
        clock: what all times are read from; the machine's, if not given.
        graphs: whether rounds are filled up to few shapes and replayed as CUDA graphs; on a GPU,
        if not given. On a CPU they are filled up and replayed without a graph, for tests.

        Raises BadSetting where these do not fit the models.
        """
        whole = slots * (capacity + k_max + 1)
        budget = CacheBudget(whole if cache_tokens is None else cache_tokens, k_max + 1)
        check_engine(target, k_max, slots, capacity, prefill_tokens, budget.tokens, synthetic)
        drafter.check(target, capacity + k_max + 1)
        self.k_max, self.slots, self.capacity, self.gate = k_max, slots, capacity, gate
        self.observers, self.device, self.detokenize = list(observers), device, detokenize
        self.clock = clock or SystemClock()
        self.timer = timer_for(device, self.clock)
        buckets = Buckets(slots, k_max, capacity + k_max + 1)
        self.graphs = graphs_for(device, buckets, self.timer, graphs)
        rows = slots + (self.graphs is not None)
        cache = KVCache(target.config, rows, capacity + k_max + 1, device, target.dtype)
        self.target, self.drafter = Target(target, cache), drafter
        self.state = BatchState(rows, capacity, k_max, device)
        self.budget, self.prefill_tokens = budget, prefill_tokens
        self.seats = Seats(slots, budget, self.state, self.target, drafter)
        self.rows, self.queue = self.seats.rows, self.seats.queue
        drafter.open(rows, capacity, k_max, device)
        wanted = int(device.startswith("cuda")) if depth is None else depth
        self.depth = 0 if drafter.reads_texts else wanted
        self.forced = None if synthetic is None else torch.tensor(synthetic, device=device)
        self.flights: deque[Flight] = deque()
        self.aborts: deque[str] = deque()
        self.known: set[str] = set()
        self.rested, self.ended_at = True, 0

    @property
    def idle(self) -> bool:
        """Whether nothing runs and nothing waits."""
        return not (self.rows or self.queue or self.flights)

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
        vocab, detokenizes = self.target.model.config.vocab, self.detokenize is not None
        check_request(prompt_ids, params, vocab, self.capacity, detokenizes)
        if id in self.known:
            raise BadRequest(f"request {id!r} is running already")
        self.known.add(id)
        prompt = tuple(prompt_ids)
        info = RequestInfo(id, label, len(prompt), params, self.clock.unix_ns(), session, prompt)
        limit = min(len(prompt_ids) + params.max_new_tokens, self.capacity)
        self.queue.append(Running(info, list(prompt_ids), limit, listener, self.clock))

    def abort(self, id: str) -> None:
        """End a request before the next round; unknown or ended ones are ignored.

        May be called from any thread. The round that was running still counts; an aborted
        sequence is in no later one.
        """
        self.aborts.append(id)

    def step(self) -> bool:
        """Run one round; False if there was nothing to run."""
        self._drop_aborted()
        if not self.rows and not self.queue:
            self._read(0)
            self.rested = True
            return False
        started_at = self.clock.unix_ns() if self.rested else self.ended_at
        for observer in self.observers:
            observer.round_begins()
        self.timer.begin(self.rested)
        portions = self._read_prompts()
        running = self.seats.running
        self.rested = not running
        if running:
            outcome = self._run(running)
            self._launch(running, outcome, started_at, portions)
            self._read(self.depth)
        if not self.rows and not self.queue:
            self._read(0)
            self.rested = True
        return True

    def _drop_aborted(self) -> None:
        gone = set()
        while self.aborts:
            gone.add(self.aborts.popleft())
        if not gone:
            return
        for row in [row for row in list(self.queue) if row.info.id in gone]:
            self.queue.remove(row)
            self._tell_end(row, "abort")
        leaving = [place for place, row in enumerate(self.rows) if row.info.id in gone]
        for row in self.seats.leave(leaving, self._unseen()):
            self._tell_end(row, "abort")

    def _read_prompts(self) -> list[Portion]:
        """Read a budget of prompts; what was read.

        While nothing runs nobody is kept waiting: the text in front is read to its end.
        """
        portions = self._admit(self.prefill_tokens)
        while self.rows and not self.seats.running:
            self._drop_aborted()
            if self.rows:
                portions += self._admit(min(self.prefill_tokens, self.rows[-1].unread))
        return portions

    def _admit(self, most: int) -> list[Portion]:
        """Read at most so many tokens of prompts, giving waiting requests the free rows."""
        portions = self.seats.portions(most, self._unseen())
        for portion in portions:
            if portion.new and not portion.row.preemptions:
                for observer in self.observers:
                    observer.admitted(portion.row.info)
        if portions:
            with self.timer.part("prefill"), torch.inference_mode():
                self.seats.read(portions)
        return portions

    def _run(self, running: list[Running]) -> Outcome:
        ks = list(self.gate([row.state() for row in running], len(self.queue)))
        check_gate(ks, len(running), self.k_max)
        needs = Needs()
        for row in running:
            needs |= row.needs
        batch = Batch(
            self.state,
            needs,
            [row.info for row in running],
            [row.text for row in running],
            min(max(len(row.text) for row in running) + self._unseen(), self.capacity),
            self.graphs,
        )
        outcome = run_round(self.target, self.drafter, batch, ks, self.timer, self.forced)
        self.drafter.advanced(ks)
        return outcome

    def _unseen(self) -> int:
        """Tokens that rounds in flight may have added to a row unknown to the host."""
        return len(self.flights) * (self.k_max + 1)

    def _launch(
        self, rows: list[Running], outcome: Outcome, started_at: int, portions: list[Portion]
    ) -> None:
        result = outcome.result.to("cpu", non_blocking=True)
        contexts = [len(row.text) for row in rows]
        measured, waiting = self.timer.end(), len(self.queue)
        self.ended_at = self.clock.unix_ns()
        self.flights.append(
            Flight(rows, contexts, result, outcome, measured, started_at, waiting, portions)
        )

    def _read(self, depth: int) -> None:
        """Take in the results of all but the newest `depth` rounds; of all where room is short."""
        while len(self.flights) > depth or (
            self.flights and self.budget.crowded(self.rows, self._unseen())
        ):
            flight = self.flights.popleft()
            while not flight.measured.ready():
                time.sleep(20e-6)
            self._account(flight)

    def _account(self, flight: Flight) -> None:
        durations = flight.measured.read()
        for row in {portion.row for portion in flight.portions if portion.tokens}:
            row.prefill += round(1e3 * durations.parts["prefill"])
        parts = extend_texts(flight, set(self.rows), self.detokenize)
        ends = {part.row: part.end for part in parts if part.end != "none"}
        # Who must go is known once nothing is in flight; the texts are then as long as they are.
        staying = [row for row in self.rows if row not in ends]
        victims = [] if self.flights else self.budget.victims(staying)
        ends |= dict.fromkeys(victims, "preempt")
        parts = [replace(part, end=ends.get(part.row, "none")) for part in parts]
        if parts and self.observers:
            report = report_of(flight, durations, parts, len(victims), self.timer.source)
            for observer in self.observers:
                observer.round_ended(report)
        leaving = [place for place, row in enumerate(self.rows) if row in ends]
        for row in self.seats.leave(leaving, self._unseen()):
            if ends[row] != "preempt":
                self._tell_end(row, ends[row])
        self.seats.put_back(victims)

    def _tell_end(self, row: Running, reason: str) -> None:
        self.known.discard(row.info.id)
        end = row.end(reason)
        for observer in self.observers:
            observer.ended(end)
