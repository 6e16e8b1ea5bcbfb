"""What the hook costs real vLLM: the same requests with the plug-in on, detached and off.

    export VLLM_TARGET_DEVICE=cpu SPECSCOPE_RINGS=/dev/shm/rings
    PYTHON_OF_VLLM bench/vllm_overhead.py MODEL [ROUNDS [BATCH...]]

Runs inside vLLM's environment, see tests/vllm/environment.sh; MODEL is a directory. Scheduler and
worker run in this process, and the wrappers of both are put in and taken out between stretches
of the same requests, so that stretches of a triple are seconds apart and differ in nothing else:

    on        records every round
    detached  the wrappers are there, the hook is off, as after a fault
    off       vLLM's own methods

Compared is the CPU time of the thread that schedules, computes and records, which a neighbour on
the machine moves less than the wall's, and beside it the wall's. Printed is the slowdown as ratio
of sums with a 95 % interval over triples, and what each wrapper of the scheduler spends a step.
Not in it: some bytes more on the output that a worker process sends.
"""

from __future__ import annotations

import math
import os
import random
import statistics
import sys
import time
from collections import defaultdict

from specscope_hook.adapters.vllm import _SCHEDULER
from specscope_hook.layout import Cursor
from specscope_hook.reader import RingReader

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # scheduler and worker in this process
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "0")  # one thread: nobody waits for another

TRIPLES = 60
TOKENS = 96
STATES = ("on", "detached", "off")
PARTS = (
    "before_schedule",
    "limit",
    "after_schedule",
    "trim",
    "before_update",
    "after_update",
    "admitted",
    "finished",
)


class Hook:
    """The wrappers of one engine, put in and taken out."""

    def __init__(self, llm) -> None:  # type: ignore[no-untyped-def]
        core = llm.llm_engine.engine_core.engine_core
        self.scheduler = core.scheduler
        self.owner = next(c for c in type(self.scheduler).__mro__ if "_specscope" in vars(c))
        assert self.scheduler._specscope, "the hook is not attached: is SPECSCOPE_RINGS set?"
        self.probe = self.scheduler._specscope
        self.reader = RingReader.open(self.probe._ring.path)
        self.cursor = Cursor()
        self.wrapped = {name: vars(self.owner)[name] for name in _SCHEDULER}
        runner = core.model_executor.driver_worker.worker.model_runner
        self.runner = runner
        timed = {
            name: v for name, v in vars(runner).items() if getattr(v, "__name__", "") == "timed"
        }
        assert len(timed) == 6, timed
        self.timed = timed
        self.timer = next(
            cell.cell_contents
            for cell in timed["execute_model"].__closure__
            if type(cell.cell_contents).__name__ == "WorkerProbe"
        )

    def put(self, state: str) -> None:
        """Be in a state until the next call; the ring is emptied, as a sidecar does."""
        self.cursor = self.reader.pull(self.cursor, 1 << 40)[1]
        self.reader.release(self.cursor)
        self.scheduler._specscope = self.probe if state == "on" else False
        self.timer.on = state == "on"
        for name, value in self.wrapped.items():
            setattr(self.owner, name, value.__wrapped__ if state == "off" else value)
        for name, value in self.timed.items():
            if state != "off":
                setattr(self.runner, name, value)
            elif name in vars(self.runner):
                delattr(self.runner, name)


def stretch(llm, batch: int) -> tuple[float, float]:  # type: ignore[no-untyped-def]
    """CPU and wall seconds that so many requests take."""
    from vllm import SamplingParams

    sampling = SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True)
    prompts = [{"prompt_token_ids": [5 + n % 200, 6, 7, 5 + n % 200, 6, 7]} for n in range(batch)]
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


def profile(llm, hook: Hook, batch: int) -> None:  # type: ignore[no-untyped-def]
    """What each wrapper of the scheduler spends a step, itself included."""
    spent: dict[str, int] = defaultdict(int)

    def timed(name):  # type: ignore[no-untyped-def]
        call = getattr(hook.probe, name)

        def wrapper(*args):  # type: ignore[no-untyped-def]
            began = time.perf_counter_ns()
            call(*args)
            spent[name] += time.perf_counter_ns() - began

        return wrapper

    hook.put("on")
    steps = hook.timer._tag
    for name in PARTS:
        setattr(hook.probe, name, timed(name))
    for name in PARTS:
        assert name in vars(hook.probe)
    for _ in range(3):
        stretch(llm, batch)
    for name in PARTS:
        delattr(hook.probe, name)
    steps = hook.timer._tag - steps
    told = ", ".join(f"{name} {ns / steps / 1e3:.1f}" for name, ns in spent.items())
    print(f"  us a step in the scheduler: {told}", flush=True)


def main() -> None:
    """Measure at batch 1 and 64, or those that are named, and print."""
    from vllm import LLM

    triples = int(sys.argv[2]) if len(sys.argv) > 2 else TRIPLES
    ngram = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 3}
    llm = LLM(
        model=sys.argv[1],
        speculative_config=ngram,
        enforce_eager=True,
        max_model_len=256,
        max_num_seqs=64,
        enable_prefix_caching=False,
    )
    hook = Hook(llm)
    draw = random.Random(0)
    for batch in map(int, sys.argv[3:] or ("1", "64")):
        took: dict[str, list[tuple[float, float]]] = {state: [] for state in STATES}
        for state in STATES:
            hook.put(state)
            stretch(llm, batch)
        hook.put("on")
        steps = hook.timer._tag
        stretch(llm, batch)
        steps = hook.timer._tag - steps
        for _ in range(triples):
            for state in draw.sample(STATES, len(STATES)):
                hook.put(state)
                took[state].append(stretch(llm, batch))
        assert hook.probe, "the hook detached itself"
        assert hook.reader.dropped == 0
        off_cpu, off_wall = (list(column) for column in zip(*took["off"], strict=True))
        step_ms = 1e3 * sum(off_cpu) / triples / steps
        print(f"batch {batch}: {step_ms:.2f} ms CPU a step, {triples} triples", flush=True)
        for state in ("on", "detached"):
            cpu, wall = (list(column) for column in zip(*took[state], strict=True))
            us = 1e6 * (sum(cpu) - sum(off_cpu)) / triples / steps
            print(
                f"  {state:8s} CPU {slowdown(cpu, off_cpu)}, {us:+.0f} us a step;"
                f" wall {slowdown(wall, off_wall)}"
            )
        profile(llm, hook, batch)


if __name__ == "__main__":
    main()
