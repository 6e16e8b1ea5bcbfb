"""The loop: admit, ask the gate, run a round, read what came out.

Rows are dense: when a sequence leaves, the last row takes its place. Results are read `depth`
rounds late, so that on a GPU the host prepares the next round while this one runs; a sequence
that ended meanwhile rides along for `depth` rounds and emits nothing.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence

import torch

from specscope.engine.api import Gate, Observer, RequestInfo, SamplingParams
from specscope.engine.checks import check_engine, check_gate, check_request
from specscope.engine.clock import Clock, SystemClock
from specscope.engine.draft import Batch, Drafter
from specscope.engine.errors import BadRequest
from specscope.engine.flight import Flight, Part, report_of
from specscope.engine.model import Decoder, KVCache
from specscope.engine.round import Outcome, Target, run_round
from specscope.engine.sequence import Detokenize, Running
from specscope.engine.state import BatchState, Needs
from specscope.engine.timing import timer_for

PREFILL_CHUNK = 256


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
        clock: Clock | None = None,
    ) -> None:
        """k_max: longest draft. slots: sequences at once. capacity: tokens of one sequence.

        detokenize: needed for stop strings only.
        synthetic: conditional acceptance by position, forced upon the verifier: load is real,
        text is not the target's.
        depth: rounds in flight when results are read; 0 on a CPU, 1 on a GPU, if not given.
        clock: what all times are read from; the machine's, if not given.

        Raises BadSetting where these do not fit the models.
        """
        check_engine(target, k_max, slots, capacity, synthetic)
        drafter.check(target, capacity + k_max + 1)
        self.k_max, self.slots, self.capacity, self.gate = k_max, slots, capacity, gate
        self.observers, self.device, self.detokenize = list(observers), device, detokenize
        cache = KVCache(target.config, slots, capacity + k_max + 1, device, target.dtype)
        self.target, self.drafter = Target(target, cache), drafter
        self.state = BatchState(slots, capacity, k_max, device)
        drafter.open(slots, capacity, k_max, device)
        wanted = int(device.startswith("cuda")) if depth is None else depth
        self.depth = 0 if drafter.reads_texts else wanted
        self.forced = None if synthetic is None else torch.tensor(synthetic, device=device)
        self.clock = clock or SystemClock()
        self.timer = timer_for(device, self.clock)
        self.rows: list[Running] = []
        self.queue: deque[Running] = deque()
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
        check_request(prompt_ids, params, self)
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
        self.rested = False
        prefilled = self._admit()
        if self.drafter.reads_texts:
            self._read(0)
        ks = self._ask_gate()
        outcome = self._run(ks)
        self._launch(outcome, started_at, prefilled)
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
        self._leave({place: "abort" for place, row in enumerate(self.rows) if row.info.id in gone})

    def _admit(self) -> int:
        """Give waiting requests the free rows and read their prompts; tokens read."""
        first = len(self.rows)
        while self.queue and len(self.rows) < self.slots:
            running = self.queue.popleft()
            running.admitted = self.clock.monotonic_ns()
            self.drafter.admitted(len(self.rows), running.text)
            self.rows.append(running)
            for observer in self.observers:
                observer.admitted(running.info)
        new = self.rows[first:]
        if not new:
            return 0
        began = self.clock.monotonic_ns()
        with self.timer.part("prefill"), torch.inference_mode():
            self.state.admit(first, [(running.text, running.info.params) for running in new])
            lengths = [running.info.prompt_tokens for running in new]
            read = self.target.prefill(self.state, first, lengths, PREFILL_CHUNK)
        for running in new:
            running.prefill = self.clock.monotonic_ns() - began
        return read

    def _ask_gate(self) -> list[int]:
        ks = list(self.gate([row.state() for row in self.rows], len(self.queue)))
        check_gate(ks, len(self.rows), self.k_max)
        return ks

    def _run(self, ks: list[int]) -> Outcome:
        needs = Needs()
        for row in self.rows:
            needs |= row.needs
        batch = Batch(
            self.state,
            needs,
            [row.info for row in self.rows],
            [row.text for row in self.rows],
            min(max(len(row.text) for row in self.rows) + self._unseen(), self.capacity),
        )
        outcome = run_round(self.target, self.drafter, batch, ks, self.timer, self.forced)
        self.drafter.advanced(ks)
        return outcome

    def _unseen(self) -> int:
        """Tokens that rounds in flight may have added to a row unknown to the host."""
        return len(self.flights) * (self.k_max + 1)

    def _launch(self, outcome: Outcome, started_at: int, prefilled: int) -> None:
        result = outcome.result.to("cpu", non_blocking=True)
        contexts = [len(row.text) for row in self.rows]
        measured, waiting = self.timer.end(), len(self.queue)
        self.ended_at = self.clock.unix_ns()
        rows = list(self.rows)
        self.flights.append(
            Flight(rows, contexts, result, outcome, measured, started_at, waiting, prefilled)
        )

    def _read(self, depth: int) -> None:
        """Take in the results of all but the newest `depth` rounds."""
        while len(self.flights) > depth:
            flight = self.flights.popleft()
            while not flight.measured.ready():
                time.sleep(20e-6)
            self._account(flight)

    def _account(self, flight: Flight) -> None:
        present, parts = {id(row) for row in self.rows}, []
        for row, context, k, (accepted, emitted, *block) in zip(
            flight.rows, flight.contexts, flight.outcome.widths, flight.result.tolist(), strict=True
        ):
            if id(row) in present:
                kept, end = row.extend(block[:emitted], self.detokenize)
                parts.append(Part(row, context, k, accepted, kept, end))
                if row.listener is not None:
                    row.listener(block[:kept])
        if parts and self.observers:
            report = report_of(flight, parts, self.timer.source)
            for observer in self.observers:
                observer.round_ended(report)
        ends = {id(part.row): part.end for part in parts if part.end != "none"}
        self._leave(
            {place: ends[id(row)] for place, row in enumerate(self.rows) if id(row) in ends}
        )

    def _leave(self, reasons: dict[int, str]) -> None:
        """Free rows, given by place with the reason; rows from the back fill the gaps."""
        if not reasons:
            return
        staying = len(self.rows) - len(reasons)
        gaps = [place for place in sorted(reasons) if place < staying]
        movers = [place for place in range(staying, len(self.rows)) if place not in reasons]
        left = [(self.rows[place], reason) for place, reason in reasons.items()]
        if movers:
            self.state.move(movers, gaps)
        for source, place in zip(movers, gaps, strict=True):
            positions = min(len(self.rows[source].text) + self._unseen(), self.capacity)
            self.target.cache.move(source, place, positions)
            self.drafter.moved(source, place, positions)
            self.rows[place] = self.rows[source]
        del self.rows[staying:]
        for row, reason in left:
            self._tell_end(row, reason)

    def _tell_end(self, row: Running, reason: str) -> None:
        self.known.discard(row.info.id)
        end = row.end(reason)
        for observer in self.observers:
            observer.ended(end)
