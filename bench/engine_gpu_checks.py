"""The checks that need a GPU; bench/engine_gpu.py runs them. Has not run on a GPU.

Each gives lines with figure and bar.
"""

import contextlib
import gc
import json
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from random import Random

import torch
from engine_gpu_place import Check, Place, Record, decode, rehearse
from engine_gpu_speed import (
    PAIRS,
    SyntheticPair,
    backend,
    engine_of,
    gated,
    prompt_lengths,
    speculative,
    synthetic_pair,
    target_only,
    top_p,
)

from specscope.engine.api import SamplingParams, fixed_gate
from specscope.engine.bench.bench import copy_bandwidth
from specscope.engine.decode.drafters.draft_model import ModelDrafter
from specscope.engine.decode.engine import Engine
from specscope.engine.decode.graphs import CaptureFailed, CudaReplay
from specscope.engine.model.decoder import Decoder
from specscope.engine.pair import load_bundled

MARGIN = {torch.float32: 1e-3, torch.bfloat16: 0.25}


def engine_for(place: Place, k: int, slots: int, record: Record, **more: object) -> Engine:
    more = {"graphs": True, "depth": 1} | more
    return Engine(
        place.pair.target, ModelDrafter(place.pair.draft), k_max=4, slots=slots, capacity=512,
        gate=fixed_gate(k), observers=[record], device=place.device, **more,
    )  # fmt: skip


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
    # In bfloat16 passes of other sizes round differently, and near ties may fall either way.
    least = len(own.prompts) if dtype == torch.float32 else len(own.prompts) // 2
    return [*checks, Check(f"{name} texts with graphs as without", same, f">= {least}",
                           same >= least)]  # fmt: skip


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
        Check("warm-up, seconds", took, "<= 30", took <= 30,
              f"{shapes} shapes, {graphs} graphs, {taken:.0f} MB"),
        Check("graphs captured after the warm-up", late, "0", late == 0),
    ]  # fmt: skip


def capture_that_fails(place: Place) -> Check:
    """A wait inside a capture is told as such, and the device works on as if nothing had been."""
    name = "a capture that must fail"
    if not place.gpu:
        return place.judged(name, "not tried", "CaptureFailed, then well", False)
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
    bar = "CaptureFailed, then well"
    return Check(name, bar if well else "CaptureFailed, then wrong", bar, well, note)


def beside_another_thread(place: Place) -> Check:
    """The engine in a thread, as a server has it, while this one uses the device too."""
    own, other = Record(), Record()
    decode(engine_for(place, 4, 8, own), place.prompts, place.tokens)
    engine, failures = engine_for(place, 4, 8, other), list[str]()

    def serve() -> None:
        try:
            rehearse(engine, other, place.prompts, place.tokens)
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
    rehearse(engine, record, place.prompts, place.tokens, temperature=1.0)
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


def gaps(place: Place) -> list[Check]:
    """Where the device was idle in speculative rounds, in microseconds at three quantiles."""
    record = Record()
    engine = engine_for(place, 4, 8, record)
    rehearse(engine, record, place.prompts, place.tokens, temperature=1.0)
    decode(engine, place.prompts, place.tokens, temperature=1.0)
    found = {"launch": [r.launch_us for r in record.steady]}
    for part in ("draft", "verify"):
        found[f"before {part}"] = [r.gaps_us.get(part, 0.0) for r in record.steady]
    return [
        place.judged(f"gap {name}, us, median", at(v, 50), "<= 50", at(v, 50) <= 50,
                     f"90 %: {at(v, 90):.1f}, 99 %: {at(v, 99):.1f}")
        for name, v in found.items()
    ]  # fmt: skip


def at(values: list[float], percent: int) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]


def hook(place: Place, pair: SyntheticPair) -> list[Check]:
    """Recorder and agent's sampler beside a decoding engine: what they read, and what they cost.

    The recorder is attached and detached in random order; the walls of the same cohort are
    compared. Every round must arrive on the ring with the times that the engine measured.
    """
    from specscope_agent.sampler import Sampler
    from specscope_hook.adapters.reference import ReferenceObserver
    from specscope_hook.attach import attach
    from specscope_hook.boot import new_boot
    from specscope_hook.ring import RingReader
    from specscope_hook.settings import HookSettings

    record, random, ratios = Record(), Random(0), []
    texts, tokens = [[1, 2, 3]] * 4, place.tokens
    sampler, readings = Sampler(), []
    with tempfile.TemporaryDirectory() as folder:
        settings = HookSettings.from_env({"SPECSCOPE_RINGS": folder})
        boot = new_boot(settings, engine="reference", engine_version="bench", target=pair.name)
        ring, recorder = attach(settings, boot)
        reader, observer = RingReader.open(ring.path), ReferenceObserver(recorder)
        engine = engine_of(place, pair, 4, 4, 64 + tokens, record)
        rehearse(engine, record, texts, tokens)
        sampler.start()
        for _ in range(10 if place.gpu else 2):
            took = {}
            for on in random.sample((True, False), 2):
                engine.observers[:] = [record, observer] if on else [record]
                began = time.perf_counter()
                decode(engine, texts, tokens)
                took[on] = time.perf_counter() - began
                readings += sampler.take()
            ratios.append(took[True] / took[False])
        if place.gpu:
            time.sleep(2)  # a window of the device's counters
        sampler.close()
        readings += sampler.take()
        recorder.close()
        sources = {report.timing_source for report in record.rounds}
        fault = reader.fault_text
    ratio = statistics.median(ratios)
    said = {r.field: r.value if r.value is not None else r.reason for r in readings}
    power = [r.value for r in readings if r.field == "power" and r.value is not None]
    active = [r.value for r in readings if r.field == "dram_active" and r.value is not None]
    reason = next((r.reason for r in readings if r.field == "dram_active" and r.reason), "")
    source = "cuda" if place.gpu else "host"
    return [
        place.judged(
            f"{pair.name}: hook's cohort over that without", ratio, "< 1.01", ratio < 1.01
        ),
        Check("hook: fault", fault or "none", "none", not fault),
        Check("hook: timing source", ", ".join(sources), source, sources == {source}),
        place.judged("agent: NVML power readings", len(power), ">= 1", bool(power)),
        place.judged("agent: GPM dram_active readings, or why there are none",
                     len(active) or reason or "none", ">= 1, or a reason",
                     bool(active or reason), json.dumps(said)),
    ]  # fmt: skip


class Annotated:
    """A timer that also names its parts in a profiler's trace."""

    def __init__(self, timer: object) -> None:
        self.timer = timer

    def __getattr__(self, name: str) -> object:
        return getattr(self.timer, name)

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        with torch.profiler.record_function(f"part:{name}"), self.timer.part(name):
            yield


def traced(place: Place, run: Callable[[], None]) -> list:
    """What a profiler saw of `run` on the device."""
    kind, types = torch.profiler.ProfilerActivity, torch.autograd.DeviceType
    with torch.profiler.profile(activities=[kind.CUDA, kind.CPU] if place.gpu else [kind.CPU]) as t:
        run()
        if place.gpu:
            torch.cuda.synchronize()
    wanted = types.CUDA if place.gpu else types.CPU
    return [event for event in t.events() if event.device_type == wanted]


def parts_against_a_trace(place: Place, pair: SyntheticPair) -> list[Check]:
    """The time of each part by events, against the spans that a profiler saw on the device.

    Eagerly, since a profiler names no part of a graph, and with many rows, so that the device and
    not the host sets the pace.
    """
    record, tokens = Record(), 24 if place.gpu else 8
    texts = [[1 + row, 2, 3] for row in range(32 if place.gpu else 4)]
    engine = engine_of(place, pair, 4, len(texts), 64, record, graphs=False)
    decode(engine, texts, tokens)
    record.forget()
    engine.pipeline.timer = engine.timer = Annotated(engine.timer)
    spans: Counter[str] = Counter()
    for event in traced(place, lambda: decode(engine, texts, tokens)):
        if event.name.startswith("part:"):
            spans[event.name[5:]] += event.time_range.elapsed_us()
    checks = []
    for part, slack in (("draft", 0.05), ("verify", 0.05), ("sample", 0.1)):
        ours = sum(getattr(report, f"{part}_us") for report in record.rounds)
        name, bar = f"{pair.name}: {part} by events over {part} by trace", f"1 +- {slack}"
        if not spans[part]:
            checks.append(place.judged(name, "the profiler named no part", bar, False))
            continue
        ratio = ours / spans[part]
        checks.append(place.judged(name, ratio, bar, abs(ratio - 1) <= slack))
    return checks


def against_a_trace(place: Place, graphs: bool) -> Check:
    """Walls by events against the span of the profiler's own times of the same rounds' kernels."""
    name = f"time by events over time by trace, {'graphs' if graphs else 'eager'}"
    record, tokens = Record(), 400 if place.gpu else place.tokens
    engine = engine_for(place, 4, 8, record, graphs=graphs)
    rehearse(engine, record, place.prompts[:8], tokens)
    times = [e.time_range for e in traced(place, lambda: decode(engine, place.prompts[:8], tokens))]
    if not times:
        return place.judged(name, "the profiler saw no kernel", "1 +- 0.02", False)
    span = max(t.end for t in times) - min(t.start for t in times)
    ratio = sum(report.wall_us for report in record.rounds) / span
    return place.judged(name, ratio, "1 +- 0.02", abs(ratio - 1) <= 0.02)


def free_memory(place: Place) -> None:
    """What the last check's engine held: a graph lives as long as its engine."""
    gc.collect()
    if place.gpu:
        torch.cuda.empty_cache()


def all_checks(place: Place) -> Iterator[tuple[str, Callable[[], list[Check] | Check]]]:
    """By what they tell, should time run out: is it right, does it wait, is it quick."""
    yield "equality, bfloat16", lambda: equality(place, torch.bfloat16)
    yield "equality, float32", lambda: equality(place, torch.float32)
    yield "warm-up", lambda: warm_up(place)
    yield "waits", lambda: syncs(place)
    yield "thread", lambda: beside_another_thread(place)
    copy = copy_bandwidth(place.device, 1024 if place.gpu else 64)
    memory = torch.cuda.mem_get_info()[0] if place.gpu else 0
    for name in PAIRS if memory > 40e9 else list(PAIRS)[:1]:
        pair = synthetic_pair(place, name)
        for check in (target_only, speculative):
            yield f"{name}, {check.__name__}", partial(check, place, pair, copy)
        for check in (backend, prompt_lengths, gated, top_p, parts_against_a_trace, hook):
            yield f"{name}, {check.__name__}", partial(check, place, pair)
        del pair
        free_memory(place)
    yield "gaps", lambda: gaps(place)
    yield "trace, graphs", lambda: against_a_trace(place, True)
    yield "trace, eager", lambda: against_a_trace(place, False)
    yield "capture", lambda: capture_that_fails(place)  # the last: it may leave traces
