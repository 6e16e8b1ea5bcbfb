"""GPU checks of speed, on synthetic pairs in bfloat16; bench/engine_gpu.py runs them.

The weights are random, so texts and acceptance mean nothing; times and bytes do. Each check gives
its figure and its bar. Has not run on a GPU.
"""

import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import torch
from engine_gpu_place import Check, Place, Record, decode, rehearse

from specscope.engine.api import Gate, RoundReport, SamplingParams, fixed_gate
from specscope.engine.bench.bench import bytes_of_pass
from specscope.engine.decode.drafters.draft_model import ModelDrafter
from specscope.engine.decode.engine import Engine
from specscope.engine.model.config import ModelConfig
from specscope.engine.model.decoder import Decoder
from specscope.engine.pair import card_of

POSITIONS = 8448
LITTLE = ModelConfig(512, 64, 2, 4, 2, 16, 128, 2048)
SIZES = {  # vocab, hidden, layers, heads, kv heads, head dim, ff, positions
    "0.2B": ModelConfig(128_256, 768, 12, 12, 4, 64, 2048, POSITIONS),
    "1B": ModelConfig(128_256, 2048, 16, 32, 8, 64, 8192, POSITIONS),
    "1.1B": ModelConfig(32_000, 2048, 22, 32, 4, 64, 5632, POSITIONS),
    "7B": ModelConfig(32_000, 4096, 32, 32, 8, 128, 14_336, POSITIONS, tied=False),
}


@dataclass(frozen=True)
class SyntheticPair:
    """A target and a draft of random weights, and the share of copy bandwidth to reach."""

    name: str
    target: Decoder
    draft: Decoder
    bar: float

    @property
    def long(self) -> int:
        """The long context, as far as the model has positions."""
        return min(8192, self.target.config.max_context // 2)


PAIRS = {"1B + 0.2B": ("1B", "0.2B", 0.6), "7B + 1B": ("7B", "1.1B", 0.75)}


def synthetic_pair(place: Place, name: str) -> SyntheticPair:
    """Built on the device itself; LITTLE twice on a CPU."""
    target, draft, bar = PAIRS[name]
    sizes = (SIZES[target], SIZES[draft]) if place.gpu else (LITTLE, LITTLE)
    return SyntheticPair(name, *(_random_model(place, size) for size in sizes), bar)


def _random_model(place: Place, config: ModelConfig) -> Decoder:
    torch.set_default_dtype(torch.bfloat16 if place.gpu else torch.float32)
    try:
        with torch.device(place.device):
            model = Decoder(config)
    finally:
        torch.set_default_dtype(torch.float32)
    return model.settle().to(place.device).ready()


def engine_of(
    place: Place,
    pair: SyntheticPair,
    k: int | Gate,
    slots: int,
    capacity: int,
    record: Record,
    graphs: bool = True,
) -> Engine:
    gate = fixed_gate(k) if isinstance(k, int) else k
    return Engine(
        pair.target, ModelDrafter(pair.draft), k_max=4, slots=slots, capacity=capacity, gate=gate,
        observers=[record], device=place.device, graphs=graphs, depth=1,
    )  # fmt: skip


def _rounds(
    place: Place, pair: SyntheticPair, k: int, prompt: int, tokens: int, **sampling: float
) -> list[RoundReport]:
    """Steady rounds of one sequence, after rehearsals."""
    record, texts = Record(), [[1 + i % 500 for i in range(prompt)]]
    tokens = tokens if place.gpu else 12
    engine = engine_of(place, pair, k, 1, prompt + tokens + 8, record)
    rehearse(engine, record, texts, tokens, **sampling)
    decode(engine, texts, tokens, **sampling)
    return record.steady


def _median(rounds: Sequence[RoundReport], part: str) -> float:
    return statistics.median(getattr(report, f"{part}_us") or 0.0 for report in rounds)


def target_only(place: Place, pair: SyntheticPair, copy: float) -> list[Check]:
    """Batch 1 without a draft: weights read over the round's wall, against a plain copy."""
    checks = []
    for context, bar in ((64, pair.bar), (pair.long, pair.bar - 0.1)):
        rounds = _rounds(place, pair, 0, context, 96)
        held = statistics.median(sum(report.contexts) for report in rounds)
        read = bytes_of_pass(pair.target) + card_of(pair.target)["kv_bytes_per_token"] * held
        wall = _median(rounds, "wall")
        share = read / wall / 1e3 / copy
        name = f"{pair.name} target-only, context {context}: share of copy bandwidth"
        note = f"{wall:.0f} us a round, {read / wall / 1e3:.0f} of {copy:.0f} GB/s"
        checks.append(place.judged(name, share, f">= {bar:.2f}", share >= bar, note))
    return checks


def speculative(place: Place, pair: SyntheticPair, copy: float) -> list[Check]:
    """Batch 1 at k = 4: idle share, and the bandwidth of drafting and of verification."""
    rounds = _rounds(place, pair, 4, 64, 96)
    idle = sum(r.idle_us or 0.0 for r in rounds) / sum(r.wall_us for r in rounds)
    name = f"{pair.name} k = 4"
    checks = [place.judged(f"{name}: idle share of a round", idle, "< 0.05", idle < 0.05)]
    for part, read, bar in (
        ("draft", 4 * bytes_of_pass(pair.draft), pair.bar - 0.35),
        ("verify", bytes_of_pass(pair.target), pair.bar - 0.1),
    ):
        share = read / max(_median(rounds, part), 1e-9) / 1e3 / copy
        line = f"{name}: {part}, share of copy bandwidth"
        checks.append(place.judged(line, share, f">= {bar:.2f}", share >= bar))
    return checks


def prompt_lengths(place: Place, pair: SyntheticPair) -> Check:
    """Twenty prompt lengths nobody has seen: an attention backend that plans anew is found."""
    record, lengths = Record(), [17 + 61 * i for i in range(20)]
    if not place.gpu:
        lengths = lengths[:4]
    engine = engine_of(place, pair, 0, 1, max(lengths) + 8, record)
    for length in (33, max(lengths) - 1):  # kernels are loaded when they first run
        decode(engine, [[1 + i % 500 for i in range(length)]], 2)
    took = []
    for attempt in range(2):
        for length in lengths:
            record.forget()
            decode(engine, [[1 + attempt + i % 500 for i in range(length)]], 2)
            took.append(sum(report.prefill_us for report in record.rounds))
    worst = max(new / known for new, known in zip(took, took[len(lengths) :], strict=False))
    name = f"{pair.name}: prefill of a new length over one seen before, worst of {len(lengths)}"
    return place.judged(name, worst, "<= 3", worst <= 3)


def gated(place: Place, pair: SyntheticPair) -> list[Check]:
    """A random k in 0..4 for each of 32 rows and each round: how many parts are replays."""
    random, rows = Random(4), 32
    record = Record()

    def gate(sequences: Sequence[object], _: int) -> list[int]:
        return [random.randint(0, 4) for _ in sequences]

    engine = engine_of(place, pair, gate, rows, 512 if place.gpu else 100, record)
    began = time.perf_counter()
    shapes = engine.warm_up(range(5), [SamplingParams(temperature=1.0)], rows=[rows])
    took, graphs = time.perf_counter() - began, engine.graphs
    assert graphs is not None
    graphs.replayed = graphs.eager = 0
    for index in range(rows):
        params = SamplingParams(1.0, seed=index, max_new_tokens=96 if place.gpu else 24)
        engine.submit(str(index), [1 + index, 2, 3], params)
    while engine.step() and len(engine.rows) == rows:
        pass
    share = graphs.replayed / max(1, graphs.replayed + graphs.eager)
    return [
        place.judged(f"{pair.name}: warm-up for any mixture of k, seconds", took, "<= 60",
                     took <= 60, f"{shapes} shapes"),
        Check(f"{pair.name}: replays under a random gate", share, ">= 0.95", share >= 0.95),
    ]  # fmt: skip


def top_p(place: Place, pair: SyntheticPair) -> list[Check]:
    """Sampling with top-p and without, at the pair's vocabulary."""
    plain = _rounds(place, pair, 4, 64, 64, temperature=1.0)
    nucleus = _rounds(place, pair, 4, 64, 64, temperature=1.0, top_p=0.9)
    ratio = _median(nucleus, "wall") / _median(plain, "wall")
    name = (
        f"{pair.name}, vocabulary {pair.target.config.vocab}: a round with top-p over one without"
    )
    return [place.judged(name, ratio, "<= 1.3", ratio <= 1.3)]


def backend(place: Place, pair: SyntheticPair) -> Check:
    """The attention kernels that really ran."""
    record, name = Record(), f"{pair.name}: attention kernels"
    engine = engine_of(place, pair, 0, 1, 128, record)
    kind = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[kind.CUDA, kind.CPU] if place.gpu else [kind.CPU]) as t:
        decode(engine, [[1, 2, 3] * 20], 4)
    words = ("fmha", "flash", "cudnn", "attention", "attn")
    names = Counter(e.key for e in t.key_averages() if any(w in e.key.lower() for w in words))
    chosen = any("fmha" in one for one in names) and not any(
        "cudnn" in one.lower() for one in names
    )
    return place.judged(name, ", ".join(sorted(names)) or "none", "fmha, none of cuDNN", chosen)
