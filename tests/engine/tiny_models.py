"""Random models small enough for exact laws and exact equality (float64 has no ties), and a run."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from specscope.engine.api import (
    Gate,
    RequestEnd,
    RequestInfo,
    RoundReport,
    SamplingParams,
    fixed_gate,
)
from specscope.engine.decode import graphs as graphs_module
from specscope.engine.decode.drafters.drafter import Drafter
from specscope.engine.decode.engine import Engine
from specscope.engine.model.config import ModelConfig
from specscope.engine.model.decoder import Decoder

TINY = ModelConfig(
    vocab=61, hidden=32, layers=2, heads=4, kv_heads=2, head_dim=8, ff=48, max_context=256
)


def tiny_model(
    seed: int, config: ModelConfig = TINY, dtype: torch.dtype = torch.float64, scale: float = 0.3
) -> Decoder:
    generator = torch.Generator().manual_seed(seed)
    model = Decoder(config)
    for parameter in model.parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=scale, generator=generator)
    return model.to(dtype).ready()


def near(model: Decoder, noise: float, seed: int = 9) -> Decoder:
    """A draft that resembles `model`."""
    generator = torch.Generator().manual_seed(seed)
    copy = Decoder(model.config).to(model.dtype)
    copy.load_state_dict(model.state_dict())
    with torch.no_grad():
        for parameter in copy.parameters():
            if parameter.dim() == 2:
                step = torch.randn(parameter.shape, generator=generator, dtype=model.dtype)
                parameter += noise * step
    return copy.ready()


def prompts(lengths: Sequence[int], vocab: int = TINY.vocab, seed: int = 1) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(vocab) for _ in range(length)] for length in lengths]


@dataclass
class Record:
    """An observer that keeps everything."""

    rounds: list[RoundReport] = field(default_factory=list)
    ends: dict[str, RequestEnd] = field(default_factory=dict)
    admissions: list[RequestInfo] = field(default_factory=list)

    def round_begins(self) -> None: ...

    def round_ended(self, report: RoundReport) -> None:
        self.rounds.append(report)

    def admitted(self, request: RequestInfo) -> None:
        self.admissions.append(request)

    def ended(self, end: RequestEnd) -> None:
        self.ends[end.request.id] = end

    @property
    def texts(self) -> dict[str, list[int]]:
        return {id: end.token_ids for id, end in self.ends.items()}

    @property
    def acceptance(self) -> float:
        proposed = sum(sum(report.k) for report in self.rounds)
        return sum(sum(report.accepted) for report in self.rounds) / proposed


class CountingClock:
    """A clock that a millisecond passes on whenever it is read, and more where a test says so."""

    def __init__(self) -> None:
        self.now = 0

    def monotonic_ns(self) -> int:
        self.now += 1_000_000
        return self.now

    def unix_ns(self) -> int:
        return 1_790_000_000_000_000_000 + self.monotonic_ns()


def run(
    target: Decoder,
    drafter: Drafter,
    texts: Sequence[list[int]],
    params: Callable[[int], SamplingParams] | SamplingParams,
    *,
    gate: Gate | int = 0,
    k_max: int = 4,
    slots: int = 4,
    capacity: int = 120,
    **more: object,
) -> Record:
    """Everything that happened; with graphs, in a second pass, whose rounds are all replayed."""
    record = Record()
    chosen = fixed_gate(gate) if isinstance(gate, int) else gate
    engine = Engine(
        target, drafter, k_max=k_max, slots=slots, capacity=capacity, gate=chosen,
        observers=[record], **more,
    )  # fmt: skip
    for again in (False, True) if engine.graphs else (False,):
        if again:
            engine.capture()
            engine.graphs.eager = 0
            record.rounds.clear()
            record.ends.clear()
            record.admissions.clear()
        if isinstance(chosen, RandomGate):
            chosen.reset()
        for index, text in enumerate(texts):
            own = params(index) if callable(params) else params
            engine.submit(str(index), text, own)
        while engine.step():
            pass
        if again and not engine.graphs.broken:
            assert not engine.graphs.eager or len(engine.graphs.shapes) == graphs_module.MOST_SHAPES
    return record


class RandomGate:
    """A random k in 0..k_max for every row and round, the same after every reset."""

    def __init__(self, k_max: int, seed: int) -> None:
        self.k_max, self.seed = k_max, seed
        self.reset()

    def reset(self) -> None:
        self.rng = random.Random(self.seed)

    def __call__(self, sequences: Sequence[object], waiting: int) -> list[int]:
        return [self.rng.randint(0, self.k_max) for _ in sequences]


def random_gate(k_max: int, seed: int = 3) -> RandomGate:
    return RandomGate(k_max, seed)
