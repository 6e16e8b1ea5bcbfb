"""How much slower the decode loop runs with the hook and a sidecar at work.

    python bench/decode_loop.py [PAIRS]

The bundled engine decodes the same cohort with and without the observer, in pairs of random
order, while a sidecar drains the ring on another processor. Prints the median of the pairs'
ratios with a bootstrap interval, at batch 1 and 16. Budget: under 1.01. Exits 1 where the
interval lies above it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from statistics import median

import torch

from specscope.engine.api import SamplingParams
from specscope.engine.decode.drafters.draft_model import ModelDrafter
from specscope.engine.decode.engine import Engine
from specscope.engine.pair import bundled_prompts, load_bundled
from specscope_hook.adapters.reference import ReferenceObserver
from specscope_hook.attach import attach
from specscope_hook.boot import new_boot
from specscope_hook.settings import HookSettings

BUDGET = 1.01
RESAMPLES = 2000


def seconds(engine: Engine, prompts: list[list[int]], tokens: int) -> float:
    """Processor time of this thread for one cohort, which a busy machine does not stretch."""
    for place, prompt in enumerate(prompts):
        params = SamplingParams(temperature=1.0, seed=place, max_new_tokens=tokens)
        engine.submit(f"{place}", prompt, params, label="bench")
    began = time.thread_time()
    while engine.step():
        pass
    return time.thread_time() - began


def measure(batch: int, tokens: int, pairs: int, observer: ReferenceObserver) -> list[float]:
    """Ratios of time with the observer over time without, one a pair."""
    pair = load_bundled()
    assert pair.draft is not None
    engine = Engine(
        pair.target,
        ModelDrafter(pair.draft),
        k_max=4,
        slots=batch,
        capacity=192,
        gate=lambda rows, _: [4] * len(rows),
    )
    prompts = [pair.encode(p.text)[:48] for p in bundled_prompts() if p.label == "sql"][:batch]
    random = Random(batch)
    seconds(engine, prompts, tokens)
    ratios = []
    for _ in range(pairs):
        spent = {}
        for on in random.sample((True, False), 2):
            engine.observers[:] = [observer] if on else []
            spent[on] = seconds(engine, prompts, tokens)
        ratios.append(spent[True] / spent[False])
    return ratios


def interval(ratios: list[float]) -> tuple[float, float]:
    """A 95 % bootstrap interval of the median."""
    random = Random(1)
    medians = sorted(median(random.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return medians[RESAMPLES // 40], medians[-RESAMPLES // 40]


def main(pairs: int) -> int:
    """Print a line a batch size; 1 where the budget is surely missed."""
    torch.set_num_threads(1)
    missed = 0
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        environment = dict(os.environ) | {
            "SPECSCOPE_RINGS": folder,
            "SPECSCOPE_SPOOL": str(Path(folder) / "spool"),
            "SPECSCOPE_SERVICE": "127.0.0.1:1",
        }
        Path(folder, "spool").mkdir()
        settings = HookSettings.from_env(environment)
        boot = new_boot(settings, engine="reference", engine_version="bench", target="bundled")
        _, recorder = attach(settings, boot)
        observer = ReferenceObserver(recorder)
        agent = subprocess.Popen(
            [sys.executable, "-m", "specscope", "agent"], env=environment, stderr=subprocess.DEVNULL
        )
        try:
            for batch, tokens in ((1, 64), (16, 32)):
                ratios = measure(batch, tokens, pairs, observer)
                low, high = interval(ratios)
                sys.stdout.write(
                    f"batch {batch}: {median(ratios):.4f} of the time without "
                    f"(95 % {low:.4f} to {high:.4f}, {pairs} pairs)\n"
                )
                missed |= low > BUDGET
        finally:
            agent.terminate()
            agent.wait()
        assert recorder.on, "the hook detached during the measurement"
    return int(missed)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 40))
