"""The engine's process: runs the plan's blocks, one cohort after the other, and says how far it is.

Started by `specscope demo` with a JSON job on the command line. Writes one JSON line a block
to its standard output; everything that is measured leaves through the ring alone.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from specscope.demo.plan import Block, Size, replicate

REPLICA = "demo"


@dataclass(frozen=True, slots=True)
class Job:
    """What the parent asks for. core: the processor to stay on, or None for any."""

    rings: str
    policy: int
    seed: int
    size: Size
    slots: int
    core: int | None

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Job:
        values = json.loads(text)
        return Job(**{**values, "size": Size(**values["size"])})


class FixedGate:
    """The same draft length for every sequence: what an arm of a cohort block is."""

    def __init__(self) -> None:
        self.k = 0

    def __call__(self, sequences: Sequence[Any], waiting: int) -> list[int]:
        return [self.k] * len(sequences)


def main(argv: Sequence[str]) -> int:
    """Run the job of argv[1]."""
    run(Job.from_json(argv[1]))
    return 0
