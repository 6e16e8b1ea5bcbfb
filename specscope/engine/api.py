"""The engine's interface: sampling parameters, reports, observers, the gate, and plug-ins."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any, Literal, Protocol, get_args

Mode = Literal["greedy", "rejection", "coupled"]
MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """The sampling settings and limits of one request.

    temperature 0 is greedy whatever `mode` says; top_k 0 and top_p 1 do not filter. Filters apply
    to target and draft alike, top-k before top-p; tokens that tie with the last kept stay.
    rejection: exactly the target's distribution, highest acceptance; the text depends on k.
    coupled: exactly the target's distribution, and the same text with speculation on or off.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    max_new_tokens: int = 128
    mode: Mode = "coupled"
    stop: tuple[str, ...] = ()
    eos: tuple[int, ...] = ()

    @property
    def greedy(self) -> bool:
        """Whether the most probable token is always taken."""
        return self.mode == "greedy" or self.temperature == 0


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """A request for the gate and the observers."""

    id: str
    label: str
    prompt_tokens: int
    params: SamplingParams
    arrived_ns: int
    """Unix time in nanoseconds."""
    session: str = ""
    """What the client says belongs together: a conversation, or one prompt in several arms."""
    prompt: tuple[int, ...] = ()
    """Token ids."""


@dataclass(frozen=True, slots=True)
class SequenceState:
    """The input of a gate before a round."""

    request: RequestInfo
    context: int
    """Tokens of the sequence so far, prompt included, the newest not yet in the KV cache too."""
    output_tokens: int


@dataclass(frozen=True, slots=True)
class RoundReport:
    """One round: its time by part, and each sequence's proposed, accepted and emitted tokens.

    wall_us runs from the end of the previous round's acceptance to the end of this one's, so the
    walls of a busy engine add up to its time; after the engine had been idle it runs from the
    start of the step. It holds prefill, host work and the caller's own time between two steps.

    idle_us is wall less prefill, catch-up, draft, verify and sample. catchup_us is the draft
    model's prefill of unseen text: the prompt before a sequence's first draft, and tokens emitted
    by rounds at k = 0. A sequence without drafts has none.

    k is the number of proposed tokens, at most the gate's limit. accepted is the verifier's count;
    emitted is accepted + 1, or fewer if the text ended inside the block.
    """

    started_at: int
    """Unix time in nanoseconds at the wall's beginning."""
    wall_us: float
    draft_us: float
    verify_us: float
    sample_us: float
    idle_us: float | None
    catchup_us: float
    prefill_us: float
    timing_source: str
    """host or cuda."""
    waiting: int
    prefill_tokens: int
    """Read by the target: of prompts, and of texts that were put back and came in again."""
    padded_tokens: int
    """Query positions of draft and verify passes that attention computed for nothing."""
    preempted: int
    """Sequences put back into the queue when the round had ended, as the next would not fit."""
    requests: list[str]
    contexts: list[int]
    k: list[int]
    accepted: list[int]
    emitted: list[int]
    ends: list[str]
    """none, eos, length, stop or preempt for each sequence; preempt is not the request's end."""
    launch_us: float = 0.0
    """Of idle_us, what launching CUDA graphs left idle before their first node or after their last;
    0 if no graph is."""
    gaps_us: Mapping[str, float] = field(default_factory=dict)
    """Idle before each part, since the one before or the round's beginning."""


@dataclass(frozen=True, slots=True)
class RequestEnd:
    """A finished request. Times in ms start at arrival, except prefill, and decode, which lasts
    from the first token to the last. A request without output has no ttft and no decode. queue ends
    when the request first gets a row; prefill includes repeats after preemptions."""

    request: RequestInfo
    output_tokens: int
    token_ids: list[int]
    queue_ms: float
    prefill_ms: float
    ttft_ms: float | None
    decode_ms: float | None
    e2e_ms: float
    preemptions: int
    reason: str


class Observer(Protocol):
    """Receives all events in the engine's thread; its exceptions end the step."""

    def round_begins(self) -> None:
        """Called before the gate and all computation."""

    def round_ended(self, report: RoundReport) -> None:
        """Called after a round's results are known on the host."""

    def admitted(self, request: RequestInfo) -> None:
        """Called when a request first gets a row, before its prefill."""

    def ended(self, end: RequestEnd) -> None:
        """Called when a request ends for any reason."""


Gate = Callable[[Sequence[SequenceState], int], Sequence[int]]
"""(sequences, waiting) -> k per sequence, each in 0..k_max."""


def fixed_gate(k: int) -> Gate:
    """The gate that answers `k` for every sequence."""
    return lambda sequences, _: [k] * len(sequences)


PLUGINS = "specscope.engine_plugins"
"""Entry point group. A package that wants to watch a served engine names a function here: it is
given what defines the engine, and answers with what should be attached, or None."""


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """The definition of a served engine."""

    target: str
    draft: str
    """Empty if no model drafts."""
    method: str
    """model, eagle, ngram or none."""
    k: int
    """Draft length where no gate says another."""
    k_max: int
    dtype: str
    device: str
    card: dict[str, dict[str, float | int]]
    """See model_card."""
    slots: int | None = None
    """Sequences that it runs at once, at most."""
    cache_tokens: int | None = None
    """Tokens that all sequences together may hold."""


Plugin = Callable[[EngineInfo], "tuple[Sequence[Observer], Gate | None] | None"]


def attach_plugins(info: EngineInfo, gate: Gate) -> tuple[list[Observer], Gate]:
    """All plug-ins' observers, and the last gate of a plug-in, or `gate`."""
    observers: list[Observer] = []
    for entry in entry_points(group=PLUGINS):
        plugin: Any = entry.load()
        answer = plugin(info)
        if answer is not None:
            found, own = answer
            observers += found
            gate = own or gate
    return observers, gate
