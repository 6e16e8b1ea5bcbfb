"""The checks that need a GPU; bench/engine_gpu.py runs them. Has not run on a GPU.

Each gives lines with value, budget and verified. What a machine lacks is said, not failed.
"""

import gc
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import torch

from specscope.engine.api import RequestInfo, RoundReport, SamplingParams, fixed_gate
from specscope.engine.bench.bench import bytes_of_pass, copy_bandwidth
from specscope.engine.decode.drafters.draft_model import ModelDrafter
from specscope.engine.decode.engine import Engine
from specscope.engine.decode.graphs import CaptureFailed, CudaReplay
from specscope.engine.model.config import ModelConfig
from specscope.engine.model.decoder import Decoder
from specscope.engine.pair import Pair, load_bundled

MARGIN = {torch.float32: 1e-3, torch.bfloat16: 0.25}
REHEARSALS = 2  # shapes are captured when they come again, some as a second copy a cohort later
LITTLE = ModelConfig(512, 64, 2, 4, 2, 16, 128, 2048)
SIZES = {  # vocab, hidden, layers, heads, kv heads, head dim, ff, positions
    "1.1B": ModelConfig(32_000, 2048, 22, 32, 4, 64, 5632, 2048),
    "7B": ModelConfig(32_000, 4096, 32, 32, 8, 128, 14_336, 2048),
}
NO_GPU = "skipped: no GPU"


@dataclass
class Check:
    """One line: what was found, what was wanted, whether it holds (None: no budget, or skipped)."""

    name: str
    value: object
    budget: str = ""
    holds: bool | None = None
    note: str = ""

    def __str__(self) -> str:
        verified = {True: "PASS", False: "FAIL", None: "----"}[self.holds]
        value = f"{self.value:.4g}" if isinstance(self.value, float) else self.value
        wanted = f"  (wanted: {self.budget})" if self.budget else ""
        return f"{verified} {self.name}: {value}{wanted}  {self.note}".rstrip()


@dataclass
class Place:
    """Where, and with what."""

    device: str
    pair: Pair
    prompts: list[list[int]]
    tokens: int

    @property
    def gpu(self) -> bool:
        return self.device.startswith("cuda")

    def judged(self, name: str, value: object, budget: str, holds: bool) -> Check:
        """A check that means something on a GPU only; elsewhere its value shows that it runs."""
        return Check(name, value, budget, holds if self.gpu else None, "" if self.gpu else NO_GPU)


class Record:
    """Keeps rounds and texts."""

    def __init__(self) -> None:
        self.rounds: list[RoundReport] = []
        self.texts: dict[str, list[int]] = {}

    def forget(self) -> None:
        self.rounds, self.texts = [], {}

    def round_begins(self) -> None:
        pass

    def round_ended(self, report: RoundReport) -> None:
        self.rounds.append(report)

    def admitted(self, request: RequestInfo) -> None:
        pass

    def ended(self, end: object) -> None:
        self.texts[end.request.id] = end.token_ids

    @property
    def steady(self) -> list[RoundReport]:
        """Rounds of all rows without prefill, the first few left out."""
        most = max(len(report.requests) for report in self.rounds)
        full = [r for r in self.rounds if len(r.requests) == most and not r.prefill_tokens]
        return full[min(8, len(full) // 4) :]


def engine_for(place: Place, k: int, slots: int, record: Record, **more: object) -> Engine:
    more = {"graphs": True, "depth": 1} | more
    return Engine(
        place.pair.target, ModelDrafter(place.pair.draft), k_max=4, slots=slots, capacity=512,
        gate=fixed_gate(k), observers=[record], device=place.device, **more,
    )  # fmt: skip


def decode(engine: Engine, prompts: list[list[int]], tokens: int, temperature: float = 0.0) -> None:
    for index, prompt in enumerate(prompts):
        params = SamplingParams(temperature, seed=index, max_new_tokens=tokens)
        engine.submit(str(index), prompt, params)
    while engine.step():
        pass


def rehearsed(
    engine: Engine, record: Record, prompts: list[list[int]], tokens: int, temperature: float = 0.0
) -> None:
    """The cohort twice, so that the next time nothing of it is captured."""
    for _ in range(REHEARSALS):
        decode(engine, prompts, tokens, temperature)
    record.forget()


def captured(engine: Engine) -> int:
    """Graphs, copies counted."""
    return sum(len(shape.copies) for shape in engine.graphs.shapes.values())


def shortfall(target: Decoder, prompts: list[list[int]], texts: dict[str, list[int]]) -> float:
    """How far an emitted token's logit fell behind the largest, in one pass over each text."""
    worst = 0.0
    for index, prompt in enumerate(prompts):
        text = texts[str(index)]
        row = torch.tensor([prompt + text], device=target.embed_tokens.weight.device)
        with torch.inference_mode():
            logits = target.score(row)[0, len(prompt) - 1 : -1].float()
        said = logits.gather(1, row[0, len(prompt) :, None])
        worst = max(worst, float((logits.amax(1, keepdim=True) - said).max()))
    return worst


def equality(place: Place, dtype: torch.dtype) -> list[Check]:
    """Greedy text by the margin rule; graphs against rounds as they are, and read late."""
    own = Place(place.device, load_bundled(dtype, place.device), place.prompts, place.tokens)
    name, texts, checks = str(dtype).removeprefix("torch."), {}, []
    ways = {"eager": {"graphs": False}, "graphs": {}, "two rounds late": {"depth": 2}}
    for way, settings in ways.items():
        record = Record()
        decode(engine_for(own, 4, 8, record, **settings), own.prompts, own.tokens)
        behind = shortfall(own.pair.target, own.prompts, record.texts)
        texts[way] = record.texts
        checks.append(
            Check(f"{name} {way}: logit behind the largest", behind, f"<= {MARGIN[dtype]}",
                  behind <= MARGIN[dtype])
        )  # fmt: skip
    same = sum(texts["graphs"][i] == texts["eager"][i] for i in texts["eager"])
    holds = same == len(texts["eager"]) if dtype == torch.float32 else None
    return [*checks, Check(f"{name} texts with graphs as without", f"{same} of {len(own.prompts)}",
                           "all" if holds is not None else "", holds)]  # fmt: skip


def warm_up(place: Place) -> list[Check]:
    """What a server captures before its first request, and that a cohort then captures nothing."""
    engine = engine_for(place, 4, 8, Record())
    free = torch.cuda.mem_get_info()[0] if place.gpu else 0
    began = time.perf_counter()
    usual = [SamplingParams(), SamplingParams(temperature=1.0)]
    shapes = engine.warm_up({4}, usual)
    took, graphs = time.perf_counter() - began, captured(engine)
    taken = (free - torch.cuda.mem_get_info()[0]) / 1e6 if place.gpu else 0.0
    decode(engine, place.prompts, place.tokens)
    decode(engine, place.prompts, place.tokens, temperature=1.0)
    late = captured(engine) - graphs
    return [
        Check("warm-up", f"{shapes} shapes, {graphs} graphs, {took:.1f} s, {taken:.0f} MB"),
        Check("graphs captured after the warm-up", late, "0", late == 0),
    ]


def capture_that_fails(place: Place) -> Check:
    """A wait inside a capture is told as such, and the device works on as if nothing had been."""
    name = "a capture that must fail"
    if not place.gpu:
        return Check(name, NO_GPU)
    ones = torch.ones(4, device=place.device)
    try:
        CudaReplay(lambda _: (ones + ones.sum().item(),), torch.cuda.graph_pool_handle())
        return Check(name, "captured", "CaptureFailed", False)
    except CaptureFailed as error:
        note = str(error)[:120]
    later = torch.full((1 << 24,), 2.0, device=place.device).sum().item()
    torch.cuda.empty_cache()
    replay = CudaReplay(lambda _: (ones + 1,), torch.cuda.graph_pool_handle())
    replay.graph.replay()
    torch.cuda.synchronize()
    well = later == 2.0 * (1 << 24) and replay.outputs[0].tolist() == [2.0] * 4
    return Check(name, "CaptureFailed, then well" if well else "then wrong", "well", well, note)


def beside_another_thread(place: Place) -> Check:
    """The engine in a thread, as a server has it, while this one uses the device too."""
    own, other = Record(), Record()
    decode(engine_for(place, 4, 8, own), place.prompts, place.tokens)
    engine, failures = engine_for(place, 4, 8, other), list[str]()

    def serve() -> None:
        try:
            rehearsed(engine, other, place.prompts, place.tokens)
            decode(engine, place.prompts, place.tokens)
        except Exception as error:
            failures.append(f"{type(error).__name__}: {error}")

    thread = threading.Thread(target=serve)
    thread.start()
    while thread.is_alive():
        torch.ones(1 << 16, device=place.device).sum().item()
        time.sleep(0.001)
    if engine.graphs.broken:
        failures.append("graphs are off")
    same = sum(other.texts.get(i) == text for i, text in own.texts.items())
    if same < len(own.texts):
        failures.append(f"{same} of {len(own.texts)} texts are the same")
    found = failures[0] if failures else "same texts"
    return Check("graphs captured in a thread beside another", found, "same texts", not failures)


def syncs(place: Place) -> Check:
    """A whole cohort in sync-debug mode "error", after those that captured all it needs."""
    record = Record()
    engine = engine_for(place, 4, 8, record)
    rehearsed(engine, record, place.prompts, place.tokens, temperature=1.0)
    found = ""
    if place.gpu:
        torch.cuda.set_sync_debug_mode("error")
    try:
        decode(engine, place.prompts, place.tokens, temperature=1.0)
    except RuntimeError as error:
        found = str(error)
    finally:
        if place.gpu:
            torch.cuda.set_sync_debug_mode("default")
    return place.judged("waits for the device in a cohort", found or "none", "none", not found)


def bandwidth(place: Place, name: str, config: ModelConfig, copy: float, ask: bool) -> list[Check]:
    """Target-only decode at batch 1 on a random model, against a plain copy in this run.

    ask: whether it must reach its share. A layer's dozen small kernels cost the same on a model
    of any size, so on a fast device only a large one says something about the weights' traffic.
    """
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(place.device):
            model = Decoder(config)
    finally:
        torch.set_default_dtype(torch.float32)
    model.settle().to(place.device).ready()
    record = Record()
    engine = Engine(
        model, ModelDrafter(model), k_max=1, slots=1, capacity=256, gate=fixed_gate(0),
        observers=[record], device=place.device, graphs=True, depth=1,
    )  # fmt: skip
    rehearsed(engine, record, [[1, 2, 3]], 192)
    decode(engine, [[1, 2, 3]], 192)
    read, rounds = bytes_of_pass(model), record.steady
    wall = statistics.median(r.wall_us for r in rounds)
    share = read / wall / 1e3 / copy
    idle = sum(r.idle_us for r in rounds) / sum(r.wall_us for r in rounds)
    launch = statistics.median(r.launch_us for r in rounds)
    found = [
        place.judged(f"decode {name}: share of copy bandwidth", share, ">= 0.6", share >= 0.6),
        place.judged(f"decode {name}: idle share of a round", idle, "<= 0.1", idle <= 0.1),
        Check(f"decode {name}: launch bubble, us", launch),
    ]
    found[0].note += f" {wall:.0f} us a round, {read / wall / 1e3:.0f} of {copy:.0f} GB/s"
    for one in [] if ask else found:
        one.budget, one.holds = "", None
    return found


def gaps(place: Place) -> list[Check]:
    """Where the device was idle in speculative rounds, in microseconds at three quantiles."""
    record = Record()
    engine = engine_for(place, 4, 8, record)
    rehearsed(engine, record, place.prompts, place.tokens, temperature=1.0)
    decode(engine, place.prompts, place.tokens, temperature=1.0)
    rounds = record.steady
    found = {"launch": [r.launch_us for r in rounds]}
    for part in ("draft", "verify"):
        found[f"before {part}"] = [r.gaps_us.get(part, 0.0) for r in rounds]
    idle = sum(r.idle_us for r in rounds) / sum(r.wall_us for r in rounds)
    return [
        Check(f"gap {name}, us at 50/90/99 %", " / ".join(f"{at(v, q):.1f}" for q in (50, 90, 99)))
        for name, v in found.items()
    ] + [Check("idle share of a speculative round of the bundled pair", idle)]


def at(values: list[float], percent: int) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]


def hook(place: Place, pairs: int) -> Check:
    """Walls of the same cohort with the recorder attached and without, in random order."""
    from specscope_hook.adapters.reference import ReferenceObserver
    from specscope_hook.attach import attach
    from specscope_hook.boot import new_boot
    from specscope_hook.settings import HookSettings

    with tempfile.TemporaryDirectory() as folder:
        settings = HookSettings.from_env({"SPECSCOPE_RINGS": folder})
        boot = new_boot(settings, engine="reference", engine_version="bench", target="bundled")
        _, recorder = attach(settings, boot)
        record, random, ratios = Record(), Random(0), []
        engine = engine_for(place, 4, 8, record)
        rehearsed(engine, record, place.prompts, place.tokens)
        for _ in range(pairs):
            took = {}
            for on in random.sample((True, False), 2):
                engine.observers[:] = [ReferenceObserver(recorder)] if on else []
                began = time.perf_counter()
                decode(engine, place.prompts, place.tokens)
                took[on] = time.perf_counter() - began
            ratios.append(took[True] / took[False])
    ratio = statistics.median(ratios)
    return place.judged("hook: cohort's time over that without", ratio, "< 1.01", ratio < 1.01)


def device_samples(place: Place) -> list[Check]:
    """What the agent's sampler reads of the device while it decodes."""
    from specscope_agent.sampler import Sampler

    sampler, readings = Sampler(), []
    engine = engine_for(place, 4, 8, Record())
    sampler.start()
    until = time.monotonic() + (6 if place.gpu else 0.5)
    while time.monotonic() < until:
        decode(engine, place.prompts, place.tokens)
        readings += sampler.take()
    sampler.close()
    readings += sampler.take()
    said = {r.field: r.value if r.value is not None else r.reason for r in readings}
    active = [r.value for r in readings if r.field == "dram_active" and r.value is not None]
    power = [r.value for r in readings if r.field == "power" and r.value is not None]
    note = json.dumps(said)
    return [
        place.judged("NVML power readings", len(power), ">= 1", bool(power)),
        Check("GPM dram_active readings", len(active), note=note),
    ]


def against_a_trace(place: Place, graphs: bool) -> Check:
    """Walls by events against the profiler's own times of the same rounds' kernels."""
    name = f"time by events over time by trace, {'graphs' if graphs else 'eager'}"
    record = Record()
    engine = engine_for(place, 4, 8, record, graphs=graphs)
    rehearsed(engine, record, place.prompts, place.tokens)
    kind = torch.profiler.ProfilerActivity
    activities = [kind.CUDA, kind.CPU] if place.gpu else [kind.CPU]
    with torch.profiler.profile(activities=activities) as trace:
        decode(engine, place.prompts, place.tokens)
        if place.gpu:
            torch.cuda.synchronize()
    wanted = torch.autograd.DeviceType.CUDA if place.gpu else torch.autograd.DeviceType.CPU
    times = [e.time_range for e in trace.events() if e.device_type == wanted]
    if not times:
        return Check(name, "skipped: the profiler saw no kernel")
    span = max(t.end for t in times) - min(t.start for t in times)
    ratio = sum(report.wall_us for report in record.rounds) / span
    return place.judged(name, ratio, "0.98 .. 1.02", abs(ratio - 1) <= 0.02)


def free_memory(place: Place) -> None:
    """What the last check's engine held: a graph lives as long as its engine."""
    gc.collect()
    if place.gpu:
        torch.cuda.empty_cache()


def all_checks(place: Place) -> Sequence[tuple[str, Callable[[], list[Check] | Check]]]:
    """By what they tell, should time run out: is it right, does it wait, is it quick."""
    memory = torch.cuda.mem_get_info()[0] if place.gpu else 0
    sizes = {"small": LITTLE}
    if place.gpu:
        sizes = {n: c for n, c in SIZES.items() if n == "1.1B" or memory > 40e9}
    copy = copy_bandwidth(place.device, 1024 if place.gpu else 64)
    checks: list[tuple[str, Callable[[], list[Check] | Check]]] = [
        ("equality, float32", lambda: equality(place, torch.float32)),
        ("equality, bfloat16", lambda: equality(place, torch.bfloat16)),
        ("warm-up", lambda: warm_up(place)),
        ("waits", lambda: syncs(place)),
        ("thread", lambda: beside_another_thread(place)),
    ]
    for name, config in sizes.items():
        ask = name == [*sizes][-1]
        checks.append(
            (f"bandwidth, {name}", lambda n=name, c=config, a=ask: bandwidth(place, n, c, copy, a))
        )
    return [
        *checks,
        ("gaps", lambda: gaps(place)),
        ("trace, graphs", lambda: against_a_trace(place, True)),
        ("trace, eager", lambda: against_a_trace(place, False)),
        ("hook", lambda: hook(place, 20 if place.gpu else 2)),
        ("device", lambda: device_samples(place)),
        ("capture", lambda: capture_that_fails(place)),  # the last: it may leave traces
    ]
