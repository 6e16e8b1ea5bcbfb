"""What the hook costs real vLLM, piece by piece, and in pairs of stretches with it on and off.

    export VLLM_TARGET_DEVICE=cpu SPECSCOPE_RINGS=/dev/shm/rings
    PYTHON_OF_VLLM bench/vllm_overhead.py MODEL [--triples N] [--batch N ...] [--tokens N]
        [--dtype TYPE] [--before PACKAGE ...]

Runs inside vLLM's environment, see tests/vllm/environment.sh; MODEL is a directory. Scheduler and
worker run in this process.

Pieces: each wrapper's whole time less that of the method beneath it, per step, with what its
requests cost spread over their steps. What `schedule`
and `update_from_output` take, and the worker's wrappers, lies on vLLM's critical path; what
`get_grammar_bitmask` takes passes while the worker computes, if it is a process of its own or a
device. Budgets: 30 us on the critical path and 60 in all at batch 1, 100 in all at 64.

Pairs: the wrappers are put in and taken out between stretches of the same requests, so that
stretches of a triple are seconds apart and differ in nothing else:

    on        records every round
    detached  the wrappers are there, the hook is off, as after a fault
    off       vLLM's own methods

Compared is the CPU time of the thread that schedules, computes and records, which a neighbour on
the machine moves less than the wall's, and beside it the wall's. Printed is the slowdown as ratio
of sums with a 95 % interval over triples. Not in it: the bytes that a worker process sends.

--before names other builds of the hook (copies of the package under these names), whose pieces are
measured in turn with this one's, in the same run. vLLM's own statistics are on, as in a server.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import math
import os
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # scheduler and worker in this process
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "0")  # one thread: nobody waits for another
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GOMP_SPINCOUNT", "0")  # its threads do not spin for each other on one core

STATES = ("on", "detached", "off")
RUNNER = (
    "execute_model",
    "sample_tokens",
    "_model_forward",
    "_sample",
    "_bookkeeping_sync",
    "propose_draft_token_ids",
)
BLANK = "make_stats"  # of the scheduler, once a step, wrapped by nobody
WORKER_BLANK = "worker _sample"  # of the runner, the same: between two passes clocks cost more
PROFILES = 6  # stretches of each build, in turn


class Pieces:
    """Time that our wrappers spend: between a clock above each and one beneath it."""

    def __init__(self) -> None:
        self.calls: dict[str, list[int]] = defaultdict(list)
        self._beneath: dict[str, int] = defaultdict(int)

    def beneath(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """vLLM's own method, whose time is none of ours."""
        beneath, clock = self._beneath, time.perf_counter_ns

        @functools.wraps(method)
        def timed(*args: Any, **kwargs: Any) -> Any:
            began = clock()
            result = method(*args, **kwargs)
            beneath[name] += clock() - began
            return result

        return timed

    def above(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """Our wrapper of it."""
        beneath, calls, clock = self._beneath, self.calls[name], time.perf_counter_ns

        @functools.wraps(method)
        def timed(*args: Any, **kwargs: Any) -> Any:
            beneath[name] = 0
            began = clock()
            result = method(*args, **kwargs)
            calls.append(clock() - began - beneath[name])
            return result

        return timed

    def us(self, steps: int) -> dict[str, float]:
        """Of each wrapper a step, in microseconds, over the cheapest 99 % of its calls: in the
        others a neighbour on the machine had the core. What the clocks themselves cost is known
        from the blanks, which have nothing of ours between them, and taken off."""
        blanks = {name: statistics.median(self.calls[name]) for name in (BLANK, WORKER_BLANK)}
        costs = {}
        for name, calls in self.calls.items():
            cheapest = sorted(calls)[: math.ceil(0.99 * len(calls))]
            if cheapest and name not in blanks:
                mean = sum(cheapest) / len(cheapest)
                blank = blanks[WORKER_BLANK if name.startswith("worker") else BLANK]
                costs[name] = (mean - blank) * len(calls) / steps / 1e3
        return costs


class Hook:
    """One build of the hook on one engine: put in, taken out, or put in between clocks."""

    def __init__(self, core: Any, package: str) -> None:
        self.adapter = importlib.import_module(f"{package}.adapters.vllm")
        self.scheduler, self.flag = core.scheduler, self.adapter._PROBE
        self.runner = core.model_executor.driver_worker.worker.model_runner
        self.owner = next(c for c in type(self.scheduler).__mro__ if c.__name__ == "Scheduler")
        names = self.adapter._SCHEDULER
        self.blank = unwrapped(vars(self.owner)[BLANK])
        self.plain = {name: unwrapped(vars(self.owner)[name]) for name in names}
        self.pieces = Pieces()
        settings = importlib.import_module(f"{package}.settings").HookSettings
        boots = importlib.import_module(f"{package}.adapters.vllm_boot")
        probes = importlib.import_module(f"{package}.adapters.vllm_scheduler")
        values = settings.from_env(os.environ)
        config, cache = self.scheduler.vllm_config, self.scheduler.kv_cache_config
        boot = boots.vllm_boot(config, cache, values, "bench")
        self.probe = probes.SchedulerProbe(self.scheduler, values, boot)
        self.worker_module = importlib.import_module(f"{package}.adapters.vllm_worker")
        reader = importlib.import_module(f"{package}.reader")
        layout = importlib.import_module(f"{package}.layout")
        self.reader = reader.RingReader.open(self.probe._ring.path)
        self.cursor = layout.Cursor()
        self.worker: Any = None

    def drain(self) -> None:
        """Empty the ring, as a sidecar does."""
        self.cursor = self.reader.pull(self.cursor, 1 << 40)[1]
        self.reader.release(self.cursor)

    def take_out(self) -> None:
        """vLLM's own methods again."""
        setattr(self.owner, BLANK, self.blank)
        for name, method in self.plain.items():
            setattr(self.owner, name, method)
            vars(self.scheduler).pop(name, None)
        for name in RUNNER:
            vars(self.runner).pop(name, None)
        setattr(self.scheduler, self.flag, False)

    def put_in(self, *, on: bool = True, between_clocks: bool = False) -> None:
        """Wrap both sides anew; `on` is whether they record."""
        self.take_out()
        self.drain()
        pieces = self.pieces
        if between_clocks:
            for name, method in self.plain.items():
                setattr(self.owner, name, pieces.beneath(name, method))
            for name in RUNNER:
                method = getattr(self.runner, name)
                setattr(self.runner, name, pieces.beneath(f"worker {name}", method))
            blank = pieces.beneath(BLANK, self.blank)
            setattr(self.owner, BLANK, pieces.above(BLANK, blank))
            beneath = vars(self.runner) | vars(self.owner)
        self.adapter._wrap_scheduler(self.owner)
        self.worker = self.worker_module.WorkerProbe(
            self.runner, self.worker_module._timer_for(self.runner)
        )
        self.worker._wrap_runner()
        self.worker.on = on
        setattr(self.scheduler, self.flag, self.probe if on else False)
        if between_clocks:
            for name in self.plain:
                if vars(self.owner)[name] is not beneath[name]:
                    setattr(self.owner, name, pieces.above(name, vars(self.owner)[name]))
            for name in RUNNER:
                wrapped = vars(self.runner)[name] is not beneath[name]
                if not wrapped and f"worker {name}" != WORKER_BLANK:
                    delattr(self.runner, name)
                    continue
                clocked = pieces.above(f"worker {name}", vars(self.runner)[name])
                setattr(self.runner, name, clocked)


def unwrapped(method: Any) -> Any:
    """vLLM's own method beneath wrappers."""
    while hasattr(method, "__wrapped__"):
        method = method.__wrapped__
    return method


def stretch(llm: Any, batch: int, tokens: int, requests: int | None = None) -> tuple[float, float]:
    """CPU and wall seconds that so many requests take; with more than a batch, in turn."""
    from vllm import SamplingParams

    prompts = [
        {"prompt_token_ids": [5 + n % 200, 6, 7, 5 + n % 200, 6, 7]}
        for n in range(requests or batch)
    ]
    sampling = [
        SamplingParams(
            temperature=0.0,
            max_tokens=tokens if requests is None else tokens // 2 + number * 37 % tokens,
            ignore_eos=True,
        )
        for number in range(len(prompts))
    ]
    cpu, wall = time.thread_time(), time.perf_counter()
    llm.generate(prompts, sampling, use_tqdm=False)
    return time.thread_time() - cpu, time.perf_counter() - wall


def slowdown(ones: list[float], others: list[float]) -> str:
    """Ratio of sums less one, with the interval that its linearisation over triples gives."""
    ratio = sum(ones) / sum(others)
    residuals = [one - ratio * other for one, other in zip(ones, others, strict=True)]
    half = 1.96 * statistics.stdev(residuals) * math.sqrt(len(ones)) / sum(others)
    low, middle, high = (100 * (ratio + part - 1) for part in (-half, 0.0, half))
    return f"{middle:+5.2f} % ({low:+.2f} to {high:+.2f})"


def profile(
    llm: Any, hooks: dict[str, Hook], batch: int, tokens: int, requests: int | None
) -> None:
    """Print each build's pieces per step, stretches of the builds in turn."""
    steps: dict[str, int] = defaultdict(int)
    for hook in hooks.values():
        hook.pieces.calls.clear()
    for _ in range(PROFILES):
        for name, hook in hooks.items():
            hook.put_in(between_clocks=True)
            stretch(llm, batch, tokens, requests)
            steps[name] += hook.worker._tag
            assert hook.reader.fault_text == "", hook.reader.fault_text
            hook.take_out()
    in_turn = f", {requests} requests in turn" if requests else ""
    for name, hook in hooks.items():
        us = hook.pieces.us(steps[name])
        worker = sum(value for piece, value in us.items() if piece.startswith("worker"))
        shadow = us.get("get_grammar_bitmask", 0.0)
        path = sum(us.values()) - shadow
        print(
            f"batch {batch}{in_turn}, {name}: {path:.1f} us a step on the critical path "
            f"(scheduler {path - worker:.1f}, worker {worker:.1f}), {shadow:.1f} while the worker "
            f"computes, {path + shadow:.1f} in all; {steps[name]} steps"
        )
        print("  " + ", ".join(f"{piece} {value:.1f}" for piece, value in us.items()), flush=True)


def pairs(llm: Any, hook: Hook, batch: int, tokens: int, triples: int) -> None:
    """Print the slowdown over triples of stretches."""
    draw = random.Random(0)
    took: dict[str, list[tuple[float, float]]] = {state: [] for state in STATES}

    def be(state: str) -> None:
        hook.take_out() if state == "off" else hook.put_in(on=state == "on")

    be("on")
    stretch(llm, batch, tokens)
    steps = hook.worker._tag
    for _ in range(triples):
        for state in draw.sample(STATES, len(STATES)):
            be(state)
            took[state].append(stretch(llm, batch, tokens))
    assert hook.reader.fault_text == "", hook.reader.fault_text
    assert hook.reader.dropped == 0
    off_cpu, off_wall = (list(column) for column in zip(*took["off"], strict=True))
    step_ms = 1e3 * sum(off_cpu) / triples / steps
    print(f"batch {batch}: {step_ms:.2f} ms CPU a step, {triples} triples", flush=True)
    for state in ("on", "detached"):
        cpu, wall = (list(column) for column in zip(*took[state], strict=True))
        us = 1e6 * (sum(cpu) - sum(off_cpu)) / triples / steps
        print(
            f"  {state:8s} CPU {slowdown(cpu, off_cpu)}, {us:+.0f} us a step;"
            f" wall {slowdown(wall, off_wall)}",
            flush=True,
        )
    hook.take_out()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--triples", type=int, default=60)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--tokens", type=int, default=384, help="output of a request")
    parser.add_argument("--dtype", default="auto", help="of vLLM; float32 is faster on most CPUs")
    parser.add_argument("--before", metavar="PACKAGE", nargs="+", default=[])
    arguments = parser.parse_args()
    from vllm import LLM

    ngram = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 3}
    llm = LLM(
        model=arguments.model,
        speculative_config=ngram,
        dtype=arguments.dtype,
        enforce_eager=True,
        max_model_len=512,
        max_num_seqs=64,
        enable_prefix_caching=False,
        disable_log_stats=False,  # as a server
    )
    core = llm.llm_engine.engine_core.engine_core
    assert core.scheduler._specscope, "the hook is not attached: is SPECSCOPE_RINGS set?"
    core.scheduler._specscope.close()
    hooks = {package: Hook(core, package) for package in arguments.before}
    hooks["now"] = Hook(core, "specscope_hook")
    for hook in hooks.values():
        hook.take_out()
    tokens = arguments.tokens
    for batch in arguments.batch:
        stretch(llm, batch, tokens)
        profile(llm, hooks, batch, tokens, None)
        if batch > 1:
            profile(llm, hooks, batch, tokens, 3 * batch)
        if arguments.triples:
            pairs(llm, hooks["now"], batch, tokens, arguments.triples)


if __name__ == "__main__":
    main()
