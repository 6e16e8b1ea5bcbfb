"""The scheduler: assigns cache rows to requests, prefills their prompts, and preempts.

Rows are dense and first come, first served; on a CPU those that draft come before the others. All
rows decode, except possibly the last one, whose prompt is still being prefilled in chunks, so that
a long prompt delays the others by one chunk.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from specscope.engine.api import RequestEnd, RequestInfo, SequenceState
from specscope.engine.decode.batch import BatchState, SamplingNeeds, sampling_needs
from specscope.engine.decode.drafters.drafter import Drafter
from specscope.engine.decode.model_runner import ModelRunner
from specscope.engine.decode.timing import Clock

Decode = Callable[[Sequence[int]], str]
"""Token ids to text."""

HEADROOM_ROUNDS = 4
"""A request is admitted only if every row has room for this many full rounds. Preempting a request
right after its prefill costs more than letting it wait."""

PREFILL_CHUNK = 256
"""Tokens of one row in one prefill pass; the attention cost grows with its square."""

SETTLED_ROUNDS = 8
"""A row that drafts is moved before one that does not after so many rounds: about as long as a
place among its like takes to earn what the move costs."""


@dataclass(slots=True, eq=False)
class Request:
    """One request on the host, from submission to its end. Times are ns of the clock."""

    info: RequestInfo
    text: list[int]
    limit: int  # length of `text` at which the request ends
    listener: Callable[[Sequence[int]], None] | None
    clock: Clock
    needs: SamplingNeeds = field(init=False)
    submitted: int = field(init=False)
    admitted: int | None = None
    prefill: int = 0
    unread: int = 0  # tokens, without the last, that still have to be prefilled
    order: int = 0  # of row assignments; the youngest row has the highest
    preemptions: int = 0
    drafts: bool = False  # whether the last round drafted for it
    settled: int = 0  # rounds before the last that were alike in that
    first_token: int | None = None
    last_token: int | None = None

    def __post_init__(self) -> None:
        self.needs = sampling_needs(self.info.params)
        self.submitted = self.clock.monotonic_ns()

    @property
    def output(self) -> list[int]:
        """The emitted tokens."""
        return self.text[self.info.prompt_tokens :]

    def state(self) -> SequenceState:
        """The view that the gate gets."""
        return SequenceState(self.info, len(self.text), len(self.text) - self.info.prompt_tokens)

    def assign_row(self, order: int, unread: int) -> None:
        """Note that the request got a row, for the first time or after a preemption."""
        self.order, self.unread = order, unread
        if self.admitted is None:
            self.admitted = self.clock.monotonic_ns()

    def extend(self, block: Sequence[int], decode: Decode | None) -> tuple[int, str]:
        """Append a round's tokens. Returns how many were kept and the end reason or "none"."""
        self.last_token = self.clock.monotonic_ns()
        self.first_token = self.last_token if self.first_token is None else self.first_token
        params = self.info.params
        for count, token in enumerate(block, 1):
            self.text.append(token)
            if token in params.eos:
                return count, "eos"
            if params.stop and decode is not None and self._stops(decode):
                return count, "stop"
        return len(block), "length" if len(self.text) >= self.limit else "none"

    def end(self, reason: str) -> RequestEnd:
        """The report of the request, as of now."""
        now = self.clock.monotonic_ns()
        first, last = self.first_token, self.last_token
        admitted = now if self.admitted is None else self.admitted
        return RequestEnd(
            request=self.info,
            output_tokens=len(self.text) - self.info.prompt_tokens,
            token_ids=self.output,
            queue_ms=1e-6 * (admitted - self.submitted),
            prefill_ms=1e-6 * self.prefill,
            ttft_ms=None if first is None else 1e-6 * (first - self.submitted),
            decode_ms=None if first is None or last is None else 1e-6 * (last - first),
            e2e_ms=1e-6 * (now - self.submitted),
            preemptions=self.preemptions,
            reason=reason,
        )

    def _stops(self, decode: Decode) -> bool:
        """Whether the last token completed a stop string."""
        # A token writes at least one byte, so this many tokens hold the longest stop string.
        reach = max(len(stop.encode()) for stop in self.info.params.stop) + 1
        output = self.text[max(self.info.prompt_tokens, len(self.text) - reach) :]
        tail = decode(output)
        return any(stop in tail for stop in self.info.params.stop)


@dataclass(frozen=True, slots=True)
class KVBudget:
    """A bound on the sum of all sequences' lengths. Every row has cache memory of its own.

    tokens: positions that all rows together may hold, at least one full sequence
    slack: positions behind a text that one round may write: k_max + 1
    """

    tokens: int
    slack: int

    def held(self, request: Request, ahead: int = 0) -> int:
        """Positions that `request` needs for its next round after it grows by `ahead` tokens."""
        return min(len(request.text) + ahead, request.limit) + self.slack

    def exceeded(self, requests: Sequence[Request], ahead: int = 0) -> bool:
        """Whether the next round of `requests` might not fit."""
        return sum(self.held(request, ahead) for request in requests) > self.tokens

    def admits(self, running: Sequence[Request], new: Request, ahead: int = 0) -> bool:
        """Whether `new` may join `running`; see HEADROOM_ROUNDS."""
        return not self.exceeded([*running, new], ahead + HEADROOM_ROUNDS * self.slack)

    def to_preempt(self, requests: Sequence[Request]) -> list[Request]:
        """The requests to preempt so that the others' next round fits, youngest first.

        The oldest is never preempted, so every request ends eventually.
        """
        excess = sum(self.held(request) for request in requests) - self.tokens
        if excess <= 0:
            return []
        youngest_first = sorted(requests, key=lambda request: request.order, reverse=True)
        preempted: list[Request] = []
        while excess > 0:
            preempted.append(youngest_first[len(preempted)])
            excess -= self.held(preempted[-1])
        return preempted


def budget_of(slots: int, capacity: int, k_max: int, cache_tokens: int | None) -> int:
    """`cache_tokens`, or if that is not given enough for all slots."""
    return slots * (capacity + k_max + 1) if cache_tokens is None else cache_tokens


@dataclass(frozen=True, slots=True)
class PrefillChunk:
    """The tokens of one request to prefill now. `new`: its row was assigned just now."""

    request: Request
    tokens: int
    new: bool


class Scheduler:
    """The rows and the waiting queue."""

    def __init__(
        self, slots: int, budget: KVBudget, state: BatchState, target: ModelRunner, drafter: Drafter
    ) -> None:
        self.slots, self.budget = slots, budget
        self.state, self.target, self.drafter = state, target, drafter
        self.rows: list[Request] = []
        self.queue: deque[Request] = deque()
        self.assigned = 0

    @property
    def running(self) -> list[Request]:
        """The requests that decode, in row order."""
        return [request for request in self.rows if not request.unread]

    def next_chunks(self, most: int, ahead: int) -> list[PrefillChunk]:
        """The next chunks to prefill, at most `most` tokens; assigns rows to new requests.

        ahead: tokens that rounds in flight may have added to each row.
        """
        row, chunks = len(self.running), list[PrefillChunk]()
        while True:
            new = row == len(self.rows)
            if new and not self._assign_row(most, ahead):
                return chunks
            request = self.rows[row]
            tokens = min(request.unread, most)
            chunks.append(PrefillChunk(request, tokens, new))
            if tokens < request.unread:
                return chunks
            row, most = row + 1, most - tokens

    def prefill(self, chunks: Sequence[PrefillChunk]) -> None:
        """Prefill `chunks`. A request whose prompt is complete decodes from now on."""
        first = len(self.rows) - len(chunks)
        new = [chunk.request for chunk in chunks if chunk.new]
        if new:
            self.state.admit(
                len(self.rows) - len(new),
                [(request.text, request.limit, request.info.params) for request in new],
            )
        done = [len(chunk.request.text) - 1 - chunk.request.unread for chunk in chunks]
        counts = [chunk.tokens for chunk in chunks]
        self.target.prefill(self.state, first, done, counts, PREFILL_CHUNK)
        for chunk in chunks:
            chunk.request.unread -= chunk.tokens

    def release(self, leaving: Collection[int], ahead: int) -> list[Request]:
        """Free rows, given by number; running rows from the end move into the gaps."""
        if not leaving:
            return []
        running = len(self.running)
        staying = running - sum(row < running for row in leaving)
        gaps = [row for row in range(staying) if row in leaving]
        movable = [row for row in range(staying, running) if row not in leaving]
        moves = list(zip(movable, gaps, strict=True))
        if running < len(self.rows) and running not in leaving:
            # The row that is being prefilled stays the last.
            moves += [(running, staying)] if running > staying else []
            staying += 1
        released = [self.rows[row] for row in sorted(leaving)]
        self._move(moves, ahead)
        del self.rows[staying:]
        return released

    def gather_drafts(self, ks: Sequence[int], ahead: int) -> list[int]:
        """Move rows that draft before those that do not; returns `ks` in the new order.

        Attention then reads the rows at k = 0 apart, without padding. Only rows that have drafted,
        or not, for SETTLED_ROUNDS rounds are swapped, so that a gate that changes its mind at
        every round moves nothing.
        """
        running = self.running
        for request, k in zip(running, ks, strict=True):
            request.settled = request.settled + 1 if request.drafts == (k > 0) else 0
            request.drafts = k > 0
        if all(ks) or not any(ks):
            return list(ks)
        order = list(range(len(ks)))
        settled = [row for row in order if running[row].settled >= SETTLED_ROUNDS]
        resting = [row for row in settled if not ks[row]]
        drafting = [row for row in reversed(settled) if ks[row]]
        for front, back in zip(resting, drafting, strict=False):
            if front < back:
                order[front], order[back] = back, front
        self._move([(own, row) for row, own in enumerate(order) if own != row], ahead)
        return [ks[row] for row in order]

    def _move(self, moves: Sequence[tuple[int, int]], ahead: int) -> None:
        """Copy rows over others, all at once, with everything that belongs to them."""
        if not moves:
            return
        sources, targets = zip(*moves, strict=True)
        requests = [self.rows[row] for row in sources]
        positions = max(min(len(own.text) + ahead, own.limit) for own in requests)
        self.state.move(sources, targets)
        self.target.cache.move(sources, targets, positions)
        self.drafter.moved(sources, targets, positions)
        for row, request in zip(targets, requests, strict=True):
            self.rows[row] = request

    def requeue(self, requests: Sequence[Request]) -> None:
        """Put preempted requests, youngest first, at the front of the queue with their output."""
        for request in requests:
            request.preemptions += 1
            self.queue.appendleft(request)

    def _assign_row(self, most: int, ahead: int) -> bool:
        """Assign a row to the first waiting request if row, cache and prefill budget allow it."""
        if not self.queue or len(self.rows) == self.slots:
            return False
        request = self.queue[0]
        unread = len(request.text) - 1
        if (unread and not most) or not self.budget.admits(self.rows, request, ahead):
            return False
        self.queue.popleft()
        self.assigned += 1
        request.assign_row(self.assigned, unread)
        self.drafter.admitted(len(self.rows), request.text)
        self.rows.append(request)
        return True
