"""An inference engine under an experiment, in numpy: many independent worlds at once.

It shares no code with the evaluator. Time advances in steps of a quarter of a second. In a step
every running sequence advances by the rounds that fit, each of which costs

    fixed + max(weights, per_query n_q) + per_context n_kv (1 + reread k)
          + k (draft + draft_per_sequence n + draft_per_context n_kv) + idle + sample n [ms]

for n sequences, n_q = n (k + 1) query tokens and n_kv cached tokens, all of it times a noise that
the arm does not influence. Requests arrive by a Poisson process whose rate the traffic sets, or
take the place of the one that ended (closed loop). They run on into the next block.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from plans import (
    BINS,
    GROWTH,
    K_MOST,
    PARTS,
    QUALITIES,
    SUMS,
    Array,
    Cost,
    Kind,
    Noise,
    Recorded,
    Traffic,
)  # fmt: skip
from queues import Counts, Queues

Floats = NDArray[np.float32]
Random = np.random.Generator

STEP_S = 0.25


def run(
    arms: Counts,
    kinds: tuple[Kind, ...],
    cost: Cost,
    traffic: Traffic,
    noise: Noise,
    seed: int,
    block_s: float = 12.0,
    burn_in: float = 0.25,
) -> Recorded:
    """Run blocks one after the other. arms: [blocks, worlds] draft length of each block."""
    random = np.random.default_rng(seed)
    blocks, worlds = arms.shape
    slots = Slots(kinds, worlds, traffic.slots)
    books = Books(blocks, worlds, len(kinds))
    queues = Queues(worlds)
    stall, drift = np.zeros(worlds), np.zeros(worlds)
    steps = round(block_s / STEP_S)
    settled = round(burn_in * steps)
    for number in range(blocks):
        k = arms[number]
        slots.draft(k)
        drift = 0.9 * drift + random.normal(0, noise.drift, worlds)
        own = np.exp(drift + random.normal(0, noise.block, worlds))
        if number % 2 == 0:
            tail = random.standard_t(3, worlds) if noise.heavy else random.normal(0, 1, worlds)
            gift = np.exp(noise.effect * np.clip(tail, -4, 4))
        chances, rate = _asked_of(traffic, number, k)
        for step in range(steps):
            recorded = step >= settled
            timed_in = number if settled <= step <= steps - settled else blocks
            if step == settled:
                books.sums["first"][number] += queues.waiting
            free = slots.left <= 0
            if rate is None:  # a client asks when its request has ended
                arrived = free.sum(axis=1)
                at = np.flatnonzero(free)
                who = at // traffic.slots
                picks = came = _classes(chances, who, random)
                into = np.full(len(who), timed_in)
                from_worlds = who
            else:
                arrived = random.poisson(rate * STEP_S)
                from_worlds = np.repeat(np.arange(worlds), arrived)
                came = _classes(chances, from_worlds, random)
                queues.put(arrived, from_worlds, came, timed_in)
                admitted = np.minimum(free.sum(axis=1), queues.waiting)
                free &= np.cumsum(free, axis=1, dtype=np.int32) <= admitted[:, None]
                at = np.flatnonzero(free)
                who = at // traffic.slots
                picks, into = queues.take(admitted, who)
            asked = slots.admit(at, k[who], into, picks, random)
            books.asked(number, recorded, arrived, (from_worlds, came), (who, *asked))
            if noise.stalls:
                hit = random.random(worlds) < noise.stalls
                lengths = noise.shortest_s * (1.0 - random.random(worlds)) ** (-1.0 / noise.shape)
                stall = stall + np.where(hit, np.minimum(lengths, noise.longest_s), 0.0)
            lost = np.minimum(STEP_S, stall)
            stall = stall - lost
            slow = own * np.exp(random.normal(0, noise.step, worlds))
            took = _took(slots, cost, k, arrived, lost, slow)
            made = slots.advance(took["rounds"], k, gift if noise.effect else None, random)
            books.end(slots.end())
            if recorded:
                books.step(number, took, made, slots.kind, k, queues.waiting)
        books.sums["last"][number] += queues.waiting
    tested, kept = _positions(arms, slots, books)
    return Recorded(arms, books.sums, books.by_class, tested, kept, *books.times())


def _asked_of(traffic: Traffic, number: int, k: Counts) -> tuple[Array, Array | None]:
    """Cumulative chances of the classes [worlds, classes], and arrivals [1/s] of a block."""
    worlds, classes = len(k), traffic.share.shape[2]
    share = np.broadcast_to(traffic.share[number], (worlds, classes)).copy()
    more = np.ones(worlds)
    for arm, other in traffic.seen.items():
        share[k == arm] = other
    for arm, factor in traffic.more.items():
        more[k == arm] = factor
    chances = np.cumsum(share, axis=1)
    chances /= chances[:, -1:]
    return chances, None if traffic.rate is None else traffic.rate[number] * more


class Slots:
    """The sequences that run, [worlds, slots]. One without tokens left is free: all its sums are 0.

    accept, wobble: mean and spread of what a round of the draft length in force keeps.
    """

    def __init__(self, kinds: tuple[Kind, ...], worlds: int, slots: int) -> None:
        self.survival = np.stack([kind.survival() for kind in kinds])  # class, quality, position
        none = np.zeros((len(kinds), QUALITIES, 1))
        self.mean = np.concatenate([none, np.cumsum(self.survival, axis=2)], axis=2)
        weights = 2 * np.arange(K_MOST) + 1
        square = np.concatenate([none, np.cumsum(self.survival * weights, axis=2)], axis=2)
        self.spread = np.sqrt(np.maximum(0.0, square - self.mean**2))
        self.output = np.array([kind.output for kind in kinds])
        self.prompt = np.array([kind.prompt for kind in kinds])
        names = ("left", "size", "ran", "context", "accept", "wobble")
        self.left, self.size, self.ran, self.context, self.accept, self.wobble = (
            np.zeros((worlds, slots), np.float32) for _ in names
        )
        self.kind, self.quality, self.born = (np.zeros((worlds, slots), np.int32) for _ in range(3))

    def draft(self, k: Counts) -> None:
        """From now on with draft lengths k. [worlds]"""
        self.accept[:] = self.mean[self.kind, self.quality, k[:, None]]
        self.wobble[:] = self.spread[self.kind, self.quality, k[:, None]]
        self.accept[self.left <= 0] = 0.0

    def admit(
        self, at: Counts, k: Counts, into: Counts, what: Counts, random: Random
    ) -> tuple[Array, Array]:
        """Fill slots, counted row by row; k: of their worlds. Returns outputs and prompts."""
        count = len(what)
        quality = random.integers(0, QUALITIES, count)
        asked = np.ceil(random.exponential(0.8 * self.output[what]) + 0.2 * self.output[what])
        prompts = random.lognormal(0.0, 0.4, count) * self.prompt[what]
        values: tuple[tuple[NDArray[Any], ArrayLike], ...] = (
            (self.kind, what), (self.quality, quality), (self.left, asked), (self.size, asked),
            (self.context, prompts), (self.ran, 0.0), (self.born, into),
            (self.accept, self.mean[what, quality, k]),
            (self.wobble, self.spread[what, quality, k]),
        )  # fmt: skip
        for column, value in values:
            column.reshape(-1)[at] = value
        return asked, prompts

    def advance(
        self, rounds: Array, k: Counts, gift: Array | None, random: Random
    ) -> dict[str, Floats]:
        """So many rounds of each world. Returns of each slot its own rounds and its tokens."""
        each = rounds.astype(np.float32)[:, None]
        accept = self.accept
        if gift is not None:
            accept = accept * np.where(k > 0, gift, 1.0).astype(np.float32)[:, None]
            accept = np.minimum(accept, k[:, None].astype(np.float32))
        out = random.standard_normal(self.left.shape, np.float32)
        out *= self.wobble
        out *= np.sqrt(each)
        out += accept * each
        np.clip(out, 0.0, k[:, None].astype(np.float32) * each, out=out)
        out += each
        part = np.minimum(1.0, self.left / np.maximum(out, 1e-9))
        np.minimum(out, self.left, out=out)
        running = self.left > 0
        self.ran += np.float32(1e3 * STEP_S) * part
        self.context += out
        self.left -= out
        self.ended = running & (self.left <= 1e-4)
        return {"rounds": each * part, "emitted": out}

    def end(self) -> tuple[Counts, Counts, Array]:
        """Free the slots that are done. Returns their blocks, worlds, and times per token. [ms]"""
        at = np.flatnonzero(self.ended)
        per_token = self.ran.reshape(-1)[at].astype(float) / self.size.reshape(-1)[at]
        for column in (self.left, self.context, self.accept, self.wobble):
            column.reshape(-1)[at] = 0.0
        return self.born.reshape(-1)[at].astype(np.int64), at // self.left.shape[1], per_token


class Books:
    """What is recorded, by block and world."""

    def __init__(self, blocks: int, worlds: int, classes: int) -> None:
        self.sums = {name: np.zeros((blocks, worlds)) for name in SUMS}
        names = ("rounds", "emitted", "accepted", "requests")
        self.by_class = {name: np.zeros((blocks, worlds, classes)) for name in names}
        self.ended: list[tuple[Counts, Array]] = []

    def asked(
        self, block: int, recorded: bool, arrived: Counts, came: tuple[Counts, Counts],
        admitted: tuple[Counts, Array, Array],
    ) -> None:  # fmt: skip
        """came: world and class of each that arrived. admitted: worlds, outputs, prompts."""
        _, worlds, classes = self.by_class["requests"].shape
        who, outputs, prompts = admitted
        self.sums["arrived"][block] += arrived
        self.sums["asked"][block] += np.bincount(who, weights=outputs, minlength=worlds)
        self.sums["prompts"][block] += np.bincount(who, weights=prompts, minlength=worlds)
        if recorded:
            flat = np.bincount(came[0] * classes + came[1], minlength=worlds * classes)
            self.by_class["requests"][block] += flat.reshape(worlds, classes)

    def end(self, ended: tuple[Counts, Counts, Array]) -> None:
        """Requests that ended: the blocks that time them, their worlds, their times per token."""
        blocks, worlds, per_token = ended
        self.ended.append((blocks * self.sums["wall"].shape[1] + worlds, per_token))

    def step(
        self, block: int, took: dict[str, Array], made: dict[str, Floats],
        kind: NDArray[np.int32], k: Counts, waiting: Counts,
    ) -> None:  # fmt: skip
        """The rounds of a step. took: times and sums by world; made: by slot."""
        own, emitted = (made[name].sum(axis=1, dtype=float) for name in ("rounds", "emitted"))
        rounds = took["rounds"]
        totals = {**{name: took[name] for name in PARTS}, "rounds": rounds}
        totals |= {"request_rounds": own, "emitted": emitted, "accepted": emitted - own}
        totals |= {"n_q": own * (k + 1), "proposed": own * k, "waiting": rounds * waiting}
        for name, value in totals.items():
            self.sums[name][block] += value
        classes = self.by_class["rounds"].shape[2]
        rest_rounds, rest_emitted = own, emitted
        for place in range(classes):
            if place == classes - 1:
                class_rounds, class_emitted = rest_rounds, rest_emitted
            else:
                one = kind == place
                class_rounds = np.where(one, made["rounds"], 0.0).sum(axis=1, dtype=float)
                class_emitted = np.where(one, made["emitted"], 0.0).sum(axis=1, dtype=float)
                rest_rounds, rest_emitted = rest_rounds - class_rounds, rest_emitted - class_emitted
            self.by_class["rounds"][block, :, place] += class_rounds
            self.by_class["emitted"][block, :, place] += class_emitted
            self.by_class["accepted"][block, :, place] += class_emitted - class_rounds

    def times(self) -> tuple[NDArray[np.int32], Array, Array]:
        """Histogram, sum and number of times per token of the requests that blocks time."""
        blocks, worlds = self.sums["wall"].shape
        where = np.concatenate([at for at, _ in self.ended])
        value = np.concatenate([each for _, each in self.ended])
        bins = np.ceil(np.log(np.maximum(value, 1e-3)) / np.log(GROWTH)).astype(np.int64)
        cells, size = where * BINS + np.clip(bins, 0, BINS - 1), (blocks + 1) * worlds
        counts = np.bincount(cells, minlength=size * BINS).astype(np.int32)
        total = np.bincount(where, weights=value, minlength=size).reshape(-1, worlds)
        number = np.bincount(where, minlength=size).astype(float).reshape(-1, worlds)
        return counts.reshape(-1, worlds, BINS)[:-1], total[:-1], number[:-1]


def _took(
    slots: Slots, cost: Cost, k: Counts, arrived: Counts, lost: Array, slow: Array
) -> dict[str, Array]:
    """What the rounds of one step cost, by world: their number and their parts. [ms]"""
    n = (slots.left > 0).sum(axis=1)
    n_kv = slots.context.sum(axis=1, dtype=float)
    n_q = n * (k + 1.0)
    padded = np.zeros(len(n))
    if cost.ragged:
        # Rows that keep less than the longest wait for it.
        padded = cost.ragged * (n * k - slots.accept.sum(axis=1, dtype=float))
    if cost.tile:
        padded = padded + np.ceil((n_q + padded) / cost.tile) * cost.tile - n_q - padded
    verify = (
        cost.fixed
        + np.maximum(cost.weights, cost.per_query * (n_q + padded))
        + cost.per_context * n_kv * (1.0 + cost.reread * k)
    )
    draft = k * (cost.draft + cost.draft_per_sequence * n + cost.draft_per_context * n_kv)
    idle = np.where(k > 0, cost.idle, 0.0)
    sample = cost.sample * n
    some = n > 0
    prefill = np.minimum(0.8 * 1e3 * STEP_S, cost.prefill * arrived)
    catchup = np.where(k > 0, np.minimum(100.0, cost.draft_prefill * arrived), 0.0)
    budget = np.maximum(0.0, 1e3 * (STEP_S - lost) - prefill - catchup)
    rounds = np.where(some, budget / ((verify + draft + idle + sample) * slow), 0.0)
    busy = rounds * slow
    return {
        "rounds": rounds, "wall": np.where(some, 1e3 * STEP_S, 0.0), "draft": busy * draft,
        "verify": busy * verify, "sample": busy * sample, "idle": busy * idle,
        "prefill": np.where(some, prefill, 0.0), "catchup": np.where(some, catchup, 0.0),
        "padded": rounds * padded, "n_kv": rounds * n_kv,
    }  # fmt: skip


def _positions(arms: Counts, slots: Slots, books: Books) -> tuple[Array, Array]:
    """Rounds that tested and that kept each draft position, [blocks, worlds, classes, K_MOST]."""
    tested = np.zeros((*books.by_class["rounds"].shape, K_MOST))
    kept = np.zeros_like(tested)
    for place in range(tested.shape[2]):
        rounds = books.by_class["rounds"][:, :, place]
        mean = books.by_class["accepted"][:, :, place] / np.maximum(rounds, 1e-9)
        curve = slots.survival[place].mean(axis=0)
        planned = np.cumsum(curve)[np.maximum(arms - 1, 0)]
        scale = np.where(planned > 0, mean / np.maximum(planned, 1e-9), 1.0)
        before = rounds
        for j in range(K_MOST):
            tested[:, :, place, j] = np.where(arms > j, before, 0.0)
            before = np.where(arms > j, np.minimum(before, rounds * curve[j] * scale), 0.0)
            kept[:, :, place, j] = before
    return tested, kept


def _classes(
    chances: Array, who: NDArray[np.int64], random: np.random.Generator
) -> NDArray[np.int64]:
    """A class for a request of each world in `who`."""
    if chances.shape[1] == 1:
        return np.zeros(len(who), np.int64)
    drawn = random.random(len(who))[:, None]
    return np.minimum((chances[who] < drawn).sum(axis=1), chances.shape[1] - 1)


def coin_flips(pairs: int, worlds: int, lengths: tuple[int, ...], seed: int) -> NDArray[np.int64]:
    """[pairs * arms, worlds] draft lengths: each pair runs every arm once, in random order."""
    random = np.random.default_rng(seed)
    order = random.permuted(
        np.broadcast_to(np.array(lengths)[None, :, None], (pairs, len(lengths), worlds)), axis=1
    )
    # `permuted` shuffles each column by itself.
    return order.reshape(pairs * len(lengths), worlds).astype(np.int64)
