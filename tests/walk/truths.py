"""Truths to be found: what traffic yields and costs, what is right to do about it, and why.

What is right is laid down here before anything runs, and held against arithmetic that shares no
code with the product (`speedups`). One run is a seed: 28 pairs of cohorts or more, every arm in
each, in random order.

right: the action named below, from evidence that may change a gate (`applicable`); a draft
length within 2 % of the best one; and, of a loss, a cause that was planted.
wrong: `applicable`, and the opposite of the truth: speculation kept or chosen where it does not
beat target-only, or the best draft length ruled out; disabled where it wins by more than 2 %;
no difference where there is one above 2 %.
open: anything else, which is an honest silence or a weaker answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np
from known_cost import Cost, CostedEngine, Machine, Replay, greedy, prompt

from specscope.evaluate.verdict import words
from specscope.evaluate.verdict.choice import Rules
from specscope.evaluate.verdict.decide import decide
from specscope.evaluate.verdict.verdict import Verdict
from specscope.evidence.read import read_blocks
from specscope.store.connection import Store
from specscope.store.roll import roll

EFFECT = Rules().smallest_effect
PRECISION = 0.005  # of what `speedups` computes
OUTPUT = 32
PROMPTS = 3  # texts of a class; acceptance does not depend on them
REPLAY = Replay(OUTPUT)


@dataclass(frozen=True)
class Stream:
    """Cohorts of one class, and the right answer for them.

    rate: chance that a proposal is kept, given that all before it were. causes: of which one
    must be named primary; empty where nothing is lost.
    """

    label: str
    action: str
    rate: float
    requests: int = 4
    context: int = 16
    causes: frozenset[str] = frozenset()
    name: str = ""

    @property
    def load(self) -> str:
        """Its load bucket."""
        return {2: "2-4", 4: "2-4", 8: "5-16", 16: "5-16"}[self.requests]


@dataclass(frozen=True)
class Truth:
    """One engine with its traffic. current: the draft length in force. us: see Cost."""

    name: str
    cost: Cost
    streams: tuple[Stream, ...]
    arms: tuple[int, ...] = (0, 2, 4)
    pairs: int = 28
    current: int | None = None


def causes(*codes: str) -> frozenset[str]:
    return frozenset(codes)


TRUTHS = (
    Truth("win", Cost(10_000, 50, 0.5, 1_500), (Stream("chat", "set_k", 0.8),), arms=(0, 1, 4)),
    Truth(
        "lose: slow draft",
        Cost(10_000, 50, 0.5, 5_300),
        (Stream("chat", "disable", 0.7, causes=causes("draft_cost", "draft_placement")),),
    ),
    Truth(
        "lose: verify not free",
        Cost(6_500, 2_000, 0.5, 100),
        (Stream("chat", "disable", 0.6, causes=causes("verify_cost", "verify_compute_bound")),),
    ),
    Truth(
        "lose: gaps",
        Cost(10_000, 50, 0.5, 400, gap=12_600),
        (Stream("chat", "disable", 0.7, causes=causes("idle", "host_sync")),),
        pairs=56,  # k4 loses 7 % in noise: at 28 pairs one run in eight asks for up to 45
    ),
    Truth(
        "lose: low acceptance",
        Cost(10_000, 50, 0.5, 400),
        (
            Stream("chat", "disable", 0.08, causes=causes("low_acceptance", "draft_mismatch")),
            Stream("sql", "set_k", 0.8),
        ),
    ),
    # Nearly all is accepted, and nothing gained: the draft takes as long as it saves.
    Truth("tie", Cost(10_000, 50, 0.5, 0.0), (Stream("chat", "no_difference", 0.95, 8),),
          arms=(0, 1), pairs=84),
    Truth("wrong k", Cost(10_000, 50, 0.5, 1_300), (Stream("chat", "set_k", 0.6),),
          arms=(0, 2, 8), current=8),
    Truth(
        "context-dependent",
        Cost(4_000, 1_000, 15, 200),
        (
            Stream("chat", "disable", 0.5, name="short",
                   causes=causes("verify_cost", "verify_compute_bound")),
            Stream("chat", "set_k", 0.5, context=1_100, name="long"),
        ),
    ),
    Truth(
        "load-dependent",
        Cost(10_000, 1_200, 0.5, 300),
        (
            Stream("chat", "set_k", 0.7, 2, name="light"),
            Stream("chat", "disable", 0.65, 16, name="heavy",
                   causes=causes("verify_cost", "verify_compute_bound")),
        ),
    ),
)  # fmt: skip


def speedups(truth: Truth, stream: Stream, cohorts: int = 3000, seed: int = 1) -> dict[int, float]:
    """Throughput of each arm over target-only: cohorts in numpy, without noise.

    A row proposes no more than its text has left, the draft runs for the longest length asked.
    """
    rate = {}
    for k in truth.arms:
        random = np.random.default_rng((seed, k))
        left = np.full((cohorts, stream.requests), OUTPUT)
        wall = 0.0
        while (busy := left > 0).any():
            width = np.minimum(k, left)
            kept = np.minimum(random.geometric(1.0 - stream.rate, left.shape) - 1, width)
            running = busy.any(axis=1)
            n_q = ((width + 1) * busy).sum(axis=1)
            n_kv = ((stream.context + OUTPUT - left) * busy).sum(axis=1)
            cost = truth.cost
            took = cost.step + cost.query * n_q + cost.context * n_kv + cost.draft * k
            wall += float(((took + (cost.gap if k else 0.0)) * running).sum())
            left = np.where(busy, left - np.minimum(kept + 1, left), 0)
        rate[k] = cohorts * stream.requests * OUTPUT / wall
    return {k: rate[k] / rate[0] for k in truth.arms}


def tied(truth: Truth) -> Truth:
    """The truth with the draft cost at which its speculative arm breaks exactly even."""
    (stream,), (_, k) = truth.streams, truth.arms
    low, high = 0.0, 50_000.0
    for _ in range(30):
        middle = (low + high) / 2
        cost = Cost(truth.cost.step, truth.cost.query, truth.cost.context, middle)
        even = Truth(truth.name, cost, truth.streams, truth.arms, truth.pairs)
        if speedups(even, stream)[k] > 1.0:
            low = middle
        else:
            high = middle
    return even


def run(truth: Truth, seed: int, rings: Path, store: Store) -> str:
    """One run; its rounds and requests are in the store afterwards. Returns its epoch."""
    name = f"{truth.name}/{seed}"
    hooked = hooked_engine(truth, name, Machine(name, drift=0.1, noise=0.03, block=0.01), rings)
    random = Random(name)
    pair = 0
    for _ in range(truth.pairs):
        for stream in random.sample(truth.streams, len(truth.streams)):
            pair += 1
            # One engine serves both streams of a class; their acceptance may differ.
            hooked.drafter.rates = {stream.label: [stream.rate] * max(truth.arms)}
            hooked.drafter.seed = random.getrandbits(31)
            for k in random.sample(truth.arms, len(truth.arms)):
                hooked.clock.machine.next_block()
                cohort(hooked, stream, k, pair)
    hooked.close(store)
    return name


def hooked_engine(truth: Truth, name: str, machine: Machine, rings: Path) -> CostedEngine:
    """An engine with the truth's cost, as large as its streams need."""
    return CostedEngine(
        rings,
        name,
        truth.cost,
        {s.label: [s.rate] * max(truth.arms) for s in truth.streams},
        machine,
        k_max=max(truth.arms),
        slots=max(s.requests for s in truth.streams),
        capacity=max(s.context for s in truth.streams) + OUTPUT,
    )


def cohort(hooked: CostedEngine, stream: Stream, k: int, pair: int) -> None:
    """One block: the stream's requests at one draft length, from empty to empty."""
    hooked.gate = lambda sequences, _: [k] * len(sequences)
    hooked.recorder.block(1, pair, f"k{k}")
    texts = {}
    for place in range(stream.requests):
        number = place % PROMPTS
        id_ = f"{pair}/{k}/{place}"
        texts[id_] = REPLAY.of(stream.context, number)
        hooked.engine.submit(
            id_, prompt(stream.context, number), greedy(OUTPUT), stream.label, f"{pair}/{place}"
        )
    hooked.drafter.completions = texts
    while hooked.engine.step():
        pass
    hooked.recorder.block(0, 0, "")


@dataclass
class Score:
    """How the runs of one stream came out."""

    speedups: Mapping[int, float]
    outcomes: Counter[str] = field(default_factory=Counter)
    actions: Counter[str] = field(default_factory=Counter)
    primaries: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)


def of_stream(verdicts: Sequence[Verdict], stream: Stream) -> Verdict:
    """The verdict on one stream; its segment is known by class, context and load."""
    context = "0-1k" if stream.context <= 1024 else "1-4k"
    (found,) = (
        v
        for v in verdicts
        if (v.segment.class_, v.segment.context, v.segment.load)
        == (stream.label, context, stream.load)
    )
    return found


def judge(stream: Stream, truth: Mapping[int, float], verdict: Verdict) -> str:
    """right, wrong or open; see the top of this file."""
    best = max(truth, key=lambda k: truth[k])
    if verdict.applicable and _contradicts(truth, best, verdict):
        return "wrong"
    if not verdict.applicable or verdict.action != stream.action:
        return "open"
    if verdict.action == "set_k" and truth[verdict.k or 0] < truth[best] / (1 + EFFECT):
        return "open"
    if verdict.action == "disable" and verdict.primary not in stream.causes:
        return "open"
    return "right"


def _contradicts(truth: Mapping[int, float], best: int, verdict: Verdict) -> bool:
    if verdict.action in ("keep", "set_k"):
        beaten = truth[verdict.k or 0] < 1.0 + PRECISION
        missed = all(truth[int(arm[1:])] < truth[best] - PRECISION for arm in verdict.best)
        return beaten or missed
    if verdict.action == "disable":
        return truth[best] > 1 + EFFECT
    if verdict.action == "no_difference":
        return truth[best] > 1 + EFFECT or all(
            value < 1 / (1 + EFFECT) for k, value in truth.items() if k
        )
    return verdict.action == "route"


def scores(
    truths: Sequence[Truth], seeds: Sequence[int], rings: Path, store: Store
) -> dict[tuple[str, str], Score]:
    """Run every truth with every seed, roll up, decide each run by itself, and judge.

    `tie` is tuned to be one first. All runs are in the store; each is an epoch of its own.
    """
    truths = [tied(truth) if truth.name == "tie" else truth for truth in truths]
    runs = [(truth, seed, run(truth, seed, rings, store)) for truth in truths for seed in seeds]
    roll(store, everything=True)
    found: dict[tuple[str, str], Score] = {}
    for truth, seed, epoch in runs:
        blocks, parts = read_blocks(store, f"epoch = '{epoch}'")
        verdicts = decide(blocks, parts, Rules(current=truth.current))
        for stream in truth.streams:
            score = found.setdefault(
                (truth.name, stream.name or stream.label), Score(speedups(truth, stream))
            )
            verdict = of_stream(verdicts, stream)
            outcome = judge(stream, score.speedups, verdict)
            score.outcomes[outcome] += 1
            score.actions[f"{verdict.action} {'' if verdict.k is None else verdict.k}".strip()] += 1
            if stream.causes:
                score.primaries[str(verdict.primary)] += 1
            if outcome != "right":
                score.notes.append(f"seed {seed}: {outcome}: {'; '.join(words.explain(verdict))}")
    return found
