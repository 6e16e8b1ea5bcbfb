"""The engine's process: runs the plan's blocks, one cohort after the other, and says how far it is.

Started by `specscope demo` with a JSON job on the command line. Writes one JSON line a block
to its standard output; everything that is measured leaves through the ring alone.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from specscope.demo.plan import ARMS, LOADS, Block, Size, replicate
from specscope_hook.adapters.reference import ReferenceObserver
from specscope_hook.attach import attach
from specscope_hook.boot import new_boot
from specscope_hook.recorder import Recorder
from specscope_hook.settings import HookSettings

PROMPT_TOKENS = 64
CAPACITY = 256  # tokens of a sequence: prompt, output and the longest draft, with room
TEMPERATURE = 1.0  # coupled sampling: natural text, and the same text in every arm


@dataclass(frozen=True, slots=True)
class Job:
    """What the parent asks for. core: the processor to stay on, or None for any."""

    policy: int
    seed: int
    size: Size
    core: int | None

    def to_json(self) -> str:
        """For the command line of the engine's process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        """Read what `to_json` wrote."""
        values = json.loads(text)
        return cls(**{**values, "size": Size(**values["size"])})


class ArmGate:
    """The same draft length for every sequence, which is what an arm of a cohort block is."""

    def __init__(self) -> None:
        self.k = 0

    def __call__(self, sequences: Sequence[Any], _waiting: int) -> list[int]:
        """k for each sequence."""
        return [self.k] * len(sequences)


class Cohorts:
    """The bundled engine, hooked, and the held-out prompts that its cohorts are made of."""

    def __init__(self, job: Job, settings: HookSettings) -> None:
        import torch

        from specscope.engine.bundled import bundled_prompts, load_bundled
        from specscope.engine.draft import ModelDrafter
        from specscope.engine.engine import Engine

        torch.set_num_threads(1)
        pair = load_bundled()
        self.prompts: dict[str, list[list[int]]] = {}
        for prompt in bundled_prompts():
            ids = pair.tokenizer.encode(prompt.text).ids[:PROMPT_TOKENS]
            self.prompts.setdefault(prompt.label, []).append(ids)
        self._job = job
        self._gate = ArmGate()
        self.ring, self._recorder = attach(settings, _boot(settings, pair))
        self._engine = Engine(
            pair.target,
            ModelDrafter(pair.draft),
            k_max=max(ARMS),
            slots=max(load.requests for load in LOADS),
            capacity=CAPACITY,
            gate=self._gate,
            observers=(ReferenceObserver(self._recorder),),
        )

    def run(self, block: Block, policy: int) -> None:
        """One block, from empty to empty."""
        from specscope.engine.api import SamplingParams

        self._gate.k = block.k
        self._recorder.block(policy, block.pair if policy else 0, block.arm if policy else "")
        texts = self.prompts[block.label]
        for place, (prompt, seed) in enumerate(zip(block.prompts, block.seeds, strict=True)):
            self._engine.submit(
                f"{block.pair}/{place}/{block.arm}",
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
        """Each arm once under each load, outside the experiment: buffers, caches, clocks."""
        for block in replicate(-1, self.sizes, seed=self._job.seed):
            if block.label == min(self.prompts):
                self.run(replace(block, pair=0), policy=0)

    @property
    def sizes(self) -> dict[str, int]:
        """How many prompts each class has."""
        return {label: len(prompts) for label, prompts in self.prompts.items()}

    @property
    def recorder(self) -> Recorder:
        """The hook of this engine."""
        return self._recorder


def blocks(job: Job, sizes: dict[str, int]) -> Iterator[tuple[int, Block]]:
    """Blocks with their replicate, whole replicates only, until there are enough or time is up."""
    began = time.monotonic()
    for number in range(job.size.replicates):
        if number and time.monotonic() - began > job.size.seconds * number / (number + 1):
            return
        for block in replicate(number, sizes, seed=job.seed):
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


def _boot(settings: HookSettings, pair: Any) -> Any:
    from specscope.engine.bundled import model_card

    return new_boot(
        settings,
        engine="reference",
        engine_version="0.1.0",
        target="bundled target, 6.4 M parameters",
        draft="bundled draft, 0.45 M parameters",
        method="draft_model",
        k_max=max(ARMS),
        **model_card(pair),
    )


def _say(**values: Any) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv))
