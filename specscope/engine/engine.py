"""The loop: admit, ask the gate, run a round, read what came out.

Results are read `depth` rounds late, so that on a GPU the host prepares the next round while this
one runs; a sequence that ended meanwhile rides along for `depth` rounds and emits nothing.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence

import torch

from specscope.engine.api import Gate, Observer, RequestInfo, SamplingParams
from specscope.engine.budget import CacheBudget
from specscope.engine.checks import check_engine, check_gate, check_request
from specscope.engine.clock import Clock, SystemClock
from specscope.engine.device import is_gpu, on_device
from specscope.engine.drafter import Drafter
from specscope.engine.errors import BadRequest, BadSetting
from specscope.engine.flight import Flight, extend_texts, report_of
from specscope.engine.model import Decoder
from specscope.engine.parts import Durations
from specscope.engine.rounds import open_rounds
from specscope.engine.seats import Portion, Seats
from specscope.engine.sequence import Detokenize, Running
from specscope.engine.state import needs_of

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
        self.observers, self.detokenize = list(observers), detokenize
        self.budget, self.prefill_tokens = budget, prefill_tokens
        self.clock = clock or SystemClock()
        self.on_device = on_device(device)
        self.rounds = open_rounds(
            target, drafter, slots=slots, capacity=capacity, k_max=k_max, device=device,
            clock=self.clock, graphs=graphs, synthetic=synthetic,
        )  # fmt: skip
        self.target, self.drafter, self.state = self.rounds.target, drafter, self.rounds.state
        self.timer, self.graphs = self.rounds.timer, self.rounds.graphs
        self.seats = Seats(slots, budget, self.state, self.target, drafter)
        self.rows, self.queue = self.seats.rows, self.seats.queue
        wanted = int(is_gpu(device)) if depth is None else depth
        self.depth = 0 if drafter.reads_texts else wanted
        self.aborts: deque[str] = deque()
        self.known: set[str] = set()
        self.rested, self.ended_at = True, 0

    @property
    def idle(self) -> bool:
        """Whether nothing runs and nothing waits."""
        return not (self.rows or self.queue or self.rounds.flights)

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
        vocab = self.target.model.config.vocab
        check_request(prompt_ids, params, vocab, self.capacity, self.detokenize is not None)
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

    def warm_up(
        self,
        ks: Collection[int],
        sampling: Sequence[SamplingParams] = (),
        rows: Sequence[int] | None = None,
    ) -> int:
        """Capture CUDA graphs before the first request; how many there are, 0 without graphs.

        For rounds in which all rows draft the same number of tokens, one of `ks`, of all lengths,
        sampled as in `sampling` (greedy, if not given), of as many rows as `rows` says or of any
        number. Others are captured when they come by the second time, while requests wait.

        Raises BadSetting where requests are there already.
        """
        if not self.idle:
            raise BadSetting("graphs are captured before the first request, or while none is there")
        counts = range(1, self.slots + 1) if rows is None else rows
        needs = list(dict.fromkeys(needs_of(own) for own in sampling or [SamplingParams()]))
        with self.on_device:
            return self.rounds.warm_up(ks, needs, counts, self.depth)

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
            self._read(0)
            self.rested = True
        return anything

    def _run_round(self) -> None:
        started_at = self.clock.unix_ns() if self.rested else self.ended_at
        for observer in self.observers:
            observer.round_begins()
        self.timer.begin(self.rested)
        portions = self._read_prompts()
        running = self.seats.running
        self.rested = not running
        if not running:
            return
        waiting = len(self.queue)
        ks = list(self.gate([row.state() for row in running], waiting))
        check_gate(ks, len(running), self.k_max)
        self.rounds.launch(running, ks, started_at, waiting, portions)
        self.ended_at = self.clock.unix_ns()
        self._read(self.depth)

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
        for row in self.seats.leave(leaving, self.rounds.unseen):
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
        portions = self.seats.portions(most, self.rounds.unseen)
        for portion in portions:
            if portion.new and not portion.row.preemptions:
                for observer in self.observers:
                    observer.admitted(portion.row.info)
        if portions:
            with self.timer.part("prefill"), torch.inference_mode():
                self.seats.read(portions)
        return portions

    def _read(self, depth: int) -> None:
        """Take in the results of all but the newest `depth` rounds; of all where room is short."""
        flights = self.rounds.flights
        while len(flights) > depth or (
            flights and self.budget.crowded(self.rows, self.rounds.unseen)
        ):
            self._account(*self.rounds.land())

    def _account(self, flight: Flight, durations: Durations) -> None:
        for row in {portion.row for portion in flight.portions if portion.tokens}:
            row.prefill += round(1e3 * durations.parts["prefill"])
        parts = extend_texts(flight, set(self.rows), self.detokenize)
        ends = {part.row: part.end for part in parts if part.end != "none"}
        # Who must go is known once nothing is in flight; the texts are then as long as they are.
        staying = [row for row in self.rows if row not in ends]
        victims = [] if self.rounds.flights else self.budget.victims(staying)
        ends |= dict.fromkeys(victims, "preempt")
        if parts and self.observers:
            report = report_of(flight, durations, parts, ends, self.timer.source)
            for observer in self.observers:
                observer.round_ended(report)
        leaving = [place for place, row in enumerate(self.rows) if row in ends]
        for row in self.seats.leave(leaving, self.rounds.unseen):
            if ends[row] != "preempt":
                self._tell_end(row, ends[row])
        self.seats.put_back(victims)

    def _tell_end(self, row: Running, reason: str) -> None:
        self.known.discard(row.info.id)
        end = row.end(reason)
        for observer in self.observers:
            observer.ended(end)
