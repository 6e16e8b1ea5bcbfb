"""What a simulated engine costs, what asks of it, what disturbs it, and what is recorded of it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

QUALITIES = 6  # requests of a class differ in how often the target keeps their drafts
GROWTH = 1.01 / 0.99  # of a bin of the store's histograms
BINS = 400
K_MOST = 8


@dataclass(frozen=True)
class Kind:
    """A class of requests. hazard: chance that draft position j is kept, given all before it.

    spread: how far requests differ; 0 for not at all. output: mean tokens. prompt: mean tokens.
    """

    name: str
    hazard: tuple[float, ...] = (0.7,) * K_MOST
    spread: float = 0.25
    output: float = 100.0
    prompt: float = 800.0

    def survival(self) -> Array:
        """[QUALITIES, K_MOST] chance that position j and all before it are kept, by quality."""
        power = np.exp(self.spread * np.linspace(-1.5, 1.5, QUALITIES))
        return np.cumprod(np.array(self.hazard)[None, :K_MOST] ** power[:, None], axis=1)


@dataclass(frozen=True)
class Cost:
    """What a round costs. [ms], by query token, cached token, sequence or draft step."""

    fixed: float = 2.0
    weights: float = 5.0
    per_query: float = 0.02
    per_context: float = 2e-5
    reread: float = 0.0
    draft: float = 0.9
    draft_per_sequence: float = 0.002
    draft_per_context: float = 0.0
    idle: float = 0.0
    sample: float = 0.01
    prefill: float = 1.0  # a request
    draft_prefill: float = 0.0  # a request, where drafts are made
    ragged: float = 0.0  # share of lost positions that are paid for as padding
    tile: int = 0  # query tokens are padded to a multiple of it


@dataclass(frozen=True)
class Traffic:
    """What asks. rate: requests a second of each block [blocks, worlds]; None for a closed loop of
    `slots` clients. share: of each class [blocks, worlds, classes]. slots: most that run at once.
    seen, more: what an arm's blocks are sent by a router that is not blind: another share, and so
    many times the requests.
    """

    rate: Array | None
    share: Array
    slots: int = 48
    seen: dict[int, Array] = field(default_factory=dict)
    more: dict[int, float] = field(
        default_factory=dict
    )  # arrivals of an arm's blocks, times so many


@dataclass(frozen=True)
class Noise:
    """Times a round's cost: by block, by step, and stalls in seconds with a Pareto tail.

    effect: what a pair's own drafts are worth, times exp(effect x); heavy: x is of Student's t with
    3 degrees of freedom. stalls: a step's chance of one.
    """

    block: float = 0.01
    drift: float = 0.01  # of a wander over blocks, which pairs cancel
    step: float = 0.05
    stalls: float = 0.0
    shape: float = 1.5
    shortest_s: float = 0.05
    longest_s: float = 4.0
    effect: float = 0.0
    heavy: bool = False


@dataclass
class Recorded:
    """Sums by block and world, [blocks, worlds] unless said otherwise.

    by_class: rounds, emitted, accepted, and requests that arrived after the burn-in, with a last
    axis of classes. tested, kept: with a
    last axis of positions. times: of requests that began well within the block, [.., BINS].
    """

    arms: NDArray[np.int64]
    sums: dict[str, Array]
    by_class: dict[str, Array]
    tested: Array
    kept: Array
    times: NDArray[np.int32]
    time_ms: Array  # of these requests, exact
    timed: Array


SUMS = ("rounds", "request_rounds", "wall", "draft", "verify", "sample", "idle", "prefill",
        "catchup", "n_q", "padded", "n_kv", "proposed", "accepted", "emitted", "waiting", "first",
        "last", "arrived", "asked", "prompts")  # fmt: skip
PARTS = ("wall", "draft", "verify", "sample", "idle", "prefill", "catchup", "padded", "n_kv")
