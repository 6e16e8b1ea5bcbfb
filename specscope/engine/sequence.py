"""A request's life on the host: its text so far, its times, and how it ends."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from specscope.engine.api import RequestEnd, RequestInfo, SequenceState
from specscope.engine.state import Needs, needs_of

Detokenize = Callable[[Sequence[int]], str]


@dataclass(slots=True, eq=False)
class Running:
    """One request, from submission to its end."""

    info: RequestInfo
    text: list[int]
    limit: int  # tokens at which it ends for length
    listener: Callable[[Sequence[int]], None] | None = None
    needs: Needs = field(init=False)
    submitted: float = field(default_factory=time.perf_counter)
    admitted: float | None = None
    prefill_s: float = 0.0
    first_token: float | None = None
    last_token: float | None = None

    def __post_init__(self) -> None:
        self.needs = needs_of(self.info.params)

    @property
    def output(self) -> list[int]:
        """What was emitted."""
        return self.text[self.info.prompt_tokens :]

    def state(self) -> SequenceState:
        """What a gate may see."""
        return SequenceState(self.info, len(self.text), len(self.text) - self.info.prompt_tokens)

    def extend(self, block: Sequence[int], detokenize: Detokenize | None) -> tuple[int, str]:
        """Append a round's tokens; how many were kept, and how the text ended ("none" if not)."""
        self.last_token = time.perf_counter()
        self.first_token = self.first_token or self.last_token
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
        now = time.perf_counter()
        first, last = self.first_token, self.last_token
        decoded = first is not None and last is not None
        return RequestEnd(
            request=self.info,
            output_tokens=len(self.text) - self.info.prompt_tokens,
            token_ids=self.output,
            queue_ms=1e3 * ((self.admitted or now) - self.submitted),
            prefill_ms=1e3 * self.prefill_s,
            ttft_ms=1e3 * (first - self.submitted) if first is not None else 0.0,
            decode_ms=1e3 * (last - first) if decoded and last and first else 0.0,
            e2e_ms=1e3 * (now - self.submitted),
            preemptions=0,
            reason=reason,
        )

    def _stops(self, detokenize: Detokenize) -> bool:
        """Whether a stop string has just been completed."""
        # A token writes a byte at least, so this many tokens hold the longest stop string.
        reach = max(len(stop.encode()) for stop in self.info.params.stop) + 1
        output = self.text[max(self.info.prompt_tokens, len(self.text) - reach) :]
        tail = detokenize(output)
        return any(stop in tail for stop in self.info.params.stop)
