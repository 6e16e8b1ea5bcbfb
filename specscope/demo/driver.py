"""The engine's process: run the plan's blocks, one cohort after the other.

`specscope demo` starts it with a JSON job on the command line. It writes one JSON line per block to
standard output for the progress; all measurements leave through the ring.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from specscope.demo.job import Job
from specscope.demo.plan import LOADS, PlannedBlock, replicate
from specscope.engine.api import EngineInfo, SamplingParams
from specscope.engine.decode.drafters.draft_model import ModelDrafter
from specscope.engine.decode.engine import Engine
from specscope.engine.pair import Pair, bundled_prompts, load_bundled, model_card
from specscope_hook.adapters.reference import ReferenceObserver
from specscope_hook.adapters.reference_plugin import boot_of
from specscope_hook.attach import attach
from specscope_hook.recorder import Recorder
from specscope_hook.settings import HookSettings

PROMPT_TOKENS = 48
CAPACITY = 256  # tokens of a sequence: prompt, output and the longest draft, with room
TEMPERATURE = 1.0  # coupled sampling: natural text, and the same text in every arm


class ArmGate:
    """One draft length for every sequence: the arm of a cohort block."""

    def __init__(self) -> None:
        self.k = 0

    def __call__(self, sequences: Sequence[Any], _waiting: int) -> list[int]:
        """k for each sequence."""
        return [self.k] * len(sequences)


class Cohorts:
    """The bundled engine with the hook, and the held-out prompts of its cohorts."""

    def __init__(self, job: Job, settings: HookSettings) -> None:
        torch.set_num_threads(1)
        pair = load_bundled()
        assert pair.draft is not None, "the bundled pair has a draft model"
        self.prompts: dict[str, list[list[int]]] = {}
        for prompt in bundled_prompts():
            self.prompts.setdefault(prompt.label, []).append(
                pair.encode(prompt.text)[:PROMPT_TOKENS]
            )
        self._job = job
        self._gate = ArmGate()
        boot = boot_of(_info(pair, max(job.size.arms)), settings)
        self.ring, self._recorder = attach(settings, boot)
        self._engine = Engine(
            pair.target,
            ModelDrafter(pair.draft),
            k_max=max(job.size.arms),
            slots=max(load.requests for load in LOADS),
            capacity=CAPACITY,
            gate=self._gate,
            observers=(ReferenceObserver(self._recorder),),
        )

    def run(self, block: PlannedBlock, policy: int) -> None:
        """Run one block; the engine is idle before and after it."""
        self._gate.k = block.k
        self._recorder.block(policy, block.pair if policy else 0, block.arm if policy else "")
        texts = self.prompts[block.label]
        for place, (prompt, seed) in enumerate(zip(block.prompts, block.seeds, strict=True)):
            self._engine.submit(
                f"{block.pair}/{block.load.name}/{place}/{block.arm}",
                texts[prompt],
                SamplingParams(
                    temperature=TEMPERATURE,
                    mode="coupled",
                    seed=seed,
                    max_new_tokens=block.load.output_tokens,
                ),
                label=block.label,
                session=f"{block.pair}/{place}",
            )
        while self._engine.step():
            pass
        self._recorder.block(0, 0, "")

    def warm_up(self) -> None:
        """Run each arm once under each load, outside the experiment, to warm up buffers, caches and
        clocks."""
        for block in replicate(-1, self.sizes, seed=self._job.seed, arms=self._job.size.arms):
            if block.label == min(self.prompts):
                self.run(replace(block, pair=0), policy=0)

    @property
    def sizes(self) -> dict[str, int]:
        """Number of prompts by class."""
        return {label: len(prompts) for label, prompts in self.prompts.items()}

    @property
    def recorder(self) -> Recorder:
        """The hook of this engine."""
        return self._recorder


def blocks(job: Job, sizes: dict[str, int]) -> Iterator[tuple[int, PlannedBlock]]:
    """Blocks with their replicate, in complete replicates, until there are enough or the time is
    over."""
    began = time.monotonic()
    for number in range(job.size.replicates):
        ends = (time.monotonic() - began) * (number + 1) / max(1, number)
        if number >= job.size.at_least and ends > job.size.seconds:
            return
        for block in replicate(number, sizes, seed=job.seed, arms=job.size.arms):
            yield number, block


def main(argv: Sequence[str]) -> int:
    """Run the job of argv[1]."""
    job = Job.from_json(argv[1])
    if job.core is not None:
        os.sched_setaffinity(0, {job.core})
    cohorts = Cohorts(job, HookSettings.from_env(os.environ))
    _say(event="ready", classes=sorted(cohorts.prompts))
    cohorts.warm_up()
    for number, block in blocks(job, cohorts.sizes):
        cohorts.run(block, job.policy)
        _say(
            event="block", replicate=number, label=block.label, load=block.load.name, arm=block.arm
        )
    cohorts.recorder.close()
    _say(event="done")
    return 0


def _info(pair: Pair, k_max: int) -> EngineInfo:
    card = model_card(pair)
    return EngineInfo(
        target=f"bundled target, {card['target']['parameters'] / 1e6:.1f} M parameters",
        draft=f"bundled draft, {card['draft']['parameters'] / 1e6:.2f} M parameters",
        method="model",
        k=0,
        k_max=k_max,
        dtype="float32",
        device="cpu",
        card=card,
    )


def _say(**values: Any) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv))
