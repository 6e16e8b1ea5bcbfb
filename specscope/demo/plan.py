"""The plan of the demonstration: cohorts of one class, with every arm in each pair.

The plan depends only on a seed, so it can be printed before a run and compared with the blocks that
ran.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Load:
    """The number of concurrent requests, and the output length of each."""

    name: str
    requests: int
    output_tokens: int


LOADS = (Load("light", 2, 64), Load("heavy", 32, 24))
"""Two requests side by side, where a target-only step wastes much, and as many as fill the engine.

Two, since twenty replicates of one would stay below the requests that a gate asks for."""


@dataclass(frozen=True, slots=True)
class Size:
    """The amount of evidence.

    arms: tried draft lengths; 0 is target-only through the same code. replicates: maximum number.
    seconds: limit of the whole run. After `at_least` replicates, none starts that would exceed it.
    """

    arms: tuple[int, ...]
    replicates: int
    seconds: float
    at_least: int = 3


FULL = Size(arms=(0, 2, 4, 8), replicates=20, seconds=420.0)
QUICK = Size(arms=(0, 4), replicates=8, seconds=50.0)


@dataclass(frozen=True, slots=True)
class PlannedBlock:
    """One arm of one pair: the same requests with the same seeds as the pair's other arms."""

    pair: int
    arm: str
    k: int
    label: str
    load: Load
    prompts: tuple[int, ...]  # indices into the class's prompts
    seeds: tuple[int, ...]  # one a request


def arm_name(k: int) -> str:
    """`k0` is the target-only arm of a speculative engine; `k4` drafts four tokens for everyone."""
    return f"k{k}"


def replicate(
    number: int,
    prompts_of: dict[str, int],
    *,
    seed: int,
    arms: Sequence[int],
    loads: Sequence[Load] = LOADS,
) -> Iterator[PlannedBlock]:
    """Blocks of one replicate: a pair for each class and load; pairs and arms in random order.

    number: from 0; prompts_of: how many prompts each class has.
    Each replicate takes the next prompts of a class in turn, so that twenty replicates see
    different texts and not one text twenty times.
    """
    random = Random(f"{seed}/{number}")
    segments = [(label, load) for label in sorted(prompts_of) for load in loads]
    random.shuffle(segments)
    for place, (label, load) in enumerate(segments):
        first = number * load.requests
        prompts = tuple((first + i) % prompts_of[label] for i in range(load.requests))
        seeds = tuple(random.getrandbits(31) for _ in range(load.requests))
        order = list(arms)
        random.shuffle(order)
        for k in order:
            yield PlannedBlock(
                pair=number * len(segments) + place + 1,
                arm=arm_name(k),
                k=k,
                label=label,
                load=load,
                prompts=prompts,
                seeds=seeds,
            )
