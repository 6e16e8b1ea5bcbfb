"""A request's life on the host: its text so far, its times, and how it ends."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from specscope.engine.api import RequestEnd, RequestInfo, SequenceState
from specscope.engine.clock import Clock
from specscope.engine.state import Needs, needs_of

Detokenize = Callable[[Sequence[int]], str]


@dataclass(slots=True, eq=False)
class Running:
    """One request, from submission to its end."""

    info: RequestInfo
    text: list[int]
    limit: int  # tokens at which it ends for length
    listener: Callable[[Sequence[int]], None] | None
    clock: Clock
    needs: Needs = field(init=False)
    submitted: int = field(init=False)  # this and what follows in ns of the clock
    admitted: int | None = None
    prefill: int = 0
    unread: int = 0  # tokens but the last that are not in the target's cache; the host's plan
    seat: int = 0  # rises with every row that was given out, so the youngest has the highest
    preemptions: int = 0
    first_token: int | None = None
    last_token: int | None = None

    def __post_init__(self) -> None:
        self.needs = needs_of(self.info.params)
        self.submitted = self.clock.monotonic_ns()

    @property
    def output(self) -> list[int]:
        """What was emitted."""
        return self.text[self.info.prompt_tokens :]

    def state(self) -> SequenceState:
        """What a gate may see."""
        return SequenceState(self.info, len(self.text), len(self.text) - self.info.prompt_tokens)

    def be_seated(self, seat: int, unread: int) -> None:
        """A row is given to it, for the first time or after it was put back."""
        self.seat, self.unread = seat, unread
        if self.admitted is None:
            self.admitted = self.clock.monotonic_ns()

    def extend(self, block: Sequence[int], detokenize: Detokenize | None) -> tuple[int, str]:
        """Append a round's tokens; how many were kept, and how the text ended ("none" if not)."""
        self.last_token = self.clock.monotonic_ns()
        self.first_token = self.last_token if self.first_token is None else self.first_token
        params = self.info.params
        for count, token in enumerate(block, 1):
            self.text.append(token)
            if token in params.eos:
                return count, "eos"
            if params.stop and detokenize is not None and self._stops(detokenize):
                return count, "stop"
        return len(block), "length" if len(self.text) >= self.limit else "none"

    def end(self, reason: str) -> RequestEnd:
        """The account of its life, as of now."""
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

    def _stops(self, detokenize: Detokenize) -> bool:
        """Whether a stop string has just been completed."""
        # A token writes a byte at least, so this many tokens hold the longest stop string.
        reach = max(len(stop.encode()) for stop in self.info.params.stop) + 1
        output = self.text[max(self.info.prompt_tokens, len(self.text) - reach) :]
        tail = detokenize(output)
        return any(stop in tail for stop in self.info.params.stop)
