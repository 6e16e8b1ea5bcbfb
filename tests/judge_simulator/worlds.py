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

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

STEP_S = 0.25
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


def run(
    arms: NDArray[np.int64],
    kinds: tuple[Kind, ...],
    cost: Cost,
    traffic: Traffic,
    noise: Noise,
    seed: int,
    block_s: float = 16.0,
    burn_in: float = 0.25,
) -> Recorded:
    """Run blocks one after the other. arms: [blocks, worlds] draft length of each block."""
    random = np.random.default_rng(seed)
    blocks, worlds = arms.shape
    classes, slots = len(kinds), traffic.slots
    steps = round(block_s / STEP_S)
    settled = round(burn_in * steps)
    survival = np.stack([kind.survival() for kind in kinds])  # class, quality, position
    mean = np.concatenate(
        [np.zeros((classes, QUALITIES, 1)), np.cumsum(survival, axis=2)], axis=2
    )  # accepted of a round by class, quality, k
    weights = 2 * np.arange(K_MOST) + 1
    square = np.concatenate(
        [np.zeros((classes, QUALITIES, 1)), np.cumsum(survival * weights, axis=2)], axis=2
    )
    spread = np.sqrt(np.maximum(0.0, square - mean**2))
    output = np.array([kind.output for kind in kinds])
    prompt = np.array([kind.prompt for kind in kinds])
    shape = (worlds, slots)
    left, size, ran = np.zeros(shape), np.ones(shape), np.zeros(shape)
    born = np.zeros(shape, np.int64)
    kind_of, quality = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    context = np.zeros(shape)
    queue: list[list[tuple[int, int]]] = [[] for _ in range(worlds)]
    waiting = np.zeros(worlds, np.int64)
    stall = np.zeros(worlds)
    sums = {name: np.zeros((blocks, worlds)) for name in SUMS}
    by_class = {
        name: np.zeros((blocks, worlds, classes))
        for name in ("rounds", "emitted", "accepted", "requests")
    }
    tested = np.zeros((blocks, worlds, classes, K_MOST))
    kept = np.zeros((blocks, worlds, classes, K_MOST))
    times = np.zeros((blocks + 1, worlds, BINS), np.int32)
    time_ms, timed = np.zeros((blocks + 1, worlds)), np.zeros((blocks + 1, worlds))
    drift = np.zeros(worlds)

    def admit(places: NDArray[np.bool_], into: NDArray[np.int64], what: NDArray[np.int64]) -> None:
        """Fill places with requests of classes `what`, timed in blocks `into`; flat, row by row."""
        count = len(what)
        kind_of[places], quality[places] = what, random.integers(0, QUALITIES, count)
        asked = np.ceil(random.exponential(0.8 * output[what]) + 0.2 * output[what])
        left[places] = size[places] = asked
        context[places] = random.lognormal(0.0, 0.4, count) * prompt[what]
        ran[places], born[places] = 0.0, into

    for number in range(blocks):
        k = arms[number]
        drafts = k > 0
        drift = 0.9 * drift + random.normal(0, noise.drift, worlds)
        own = np.exp(drift + random.normal(0, noise.block, worlds))
        if number % 2 == 0:
            tail = random.standard_t(3, worlds) if noise.heavy else random.normal(0, 1, worlds)
            gift = np.exp(noise.effect * np.clip(tail, -4, 4))
        share = np.broadcast_to(traffic.share[number], (worlds, classes)).copy()
        more = np.ones(worlds)
        for arm, other in traffic.seen.items():
            share[k == arm] = other
        for arm, factor in traffic.more.items():
            more[k == arm] = factor
        chances = np.cumsum(share, axis=1)
        chances /= chances[:, -1:]
        totals = {name: column[number] for name, column in sums.items()}
        for step in range(steps):
            counts = step >= settled
            if step == settled:
                totals["first"] += waiting
            timed_now = settled <= step <= steps - settled
            # Arrivals, or clients whose request has ended.
            free = left <= 0
            if traffic.rate is None:
                places = free
                what_rows = np.nonzero(places)[0]
                into = np.full(len(what_rows), number if timed_now else blocks)
                arrived = places.sum(axis=1)
                picks = _classes(chances, what_rows, random)
            else:
                arrived = random.poisson(traffic.rate[number] * more * STEP_S)
                who = np.repeat(np.arange(worlds), arrived)
                fresh = _classes(chances, who, random)
                if counts:
                    np.add.at(by_class["requests"][number], (who, fresh), 1)
                room = free.sum(axis=1)
                at = number if timed_now else blocks
                if (waiting > 0).any() or (arrived > room).any():
                    ends = np.cumsum(arrived)
                    for world in np.nonzero((waiting > 0) | (arrived > room))[0]:
                        start = ends[world] - arrived[world]
                        queue[world] += [(int(c), at) for c in fresh[start : ends[world]]]
                admitted = np.minimum(room, waiting + arrived)
                places = free & (np.cumsum(free, axis=1) <= admitted[:, None])
                what_rows = np.nonzero(places)[0]
                picks = np.empty(len(what_rows), np.int64)
                into = np.full(len(what_rows), at)
                queued = np.array([bool(line) for line in queue])
                direct = ~queued[what_rows]
                picks[direct] = fresh[~queued[who]]
                starts = np.cumsum(admitted) - admitted
                for world in np.nonzero(queued)[0]:
                    count = admitted[world]
                    line = queue[world]
                    for i in range(count):
                        picks[starts[world] + i], into[starts[world] + i] = line[i]
                    del line[:count]
                waiting = waiting + arrived - admitted
            if len(what_rows):
                admit(places, into, picks)
                if traffic.rate is None and counts:
                    np.add.at(by_class["requests"][number], (what_rows, picks), 1)
                totals["arrived"] += arrived
                totals["asked"] += np.where(places, size, 0.0).sum(axis=1)
                totals["prompts"] += np.where(places, context, 0.0).sum(axis=1)
            elif traffic.rate is not None:
                totals["arrived"] += arrived
            # The round of each world.
            running = left > 0
            n = running.sum(axis=1)
            n_kv = np.where(running, context, 0.0).sum(axis=1)
            n_q = n * (k + 1.0)
            accept = mean[kind_of, quality, k[:, None]] * np.where(running, 1.0, 0.0)
            padded = np.zeros(worlds)
            if cost.ragged:
                # Rows that keep less than the longest wait for it.
                padded = cost.ragged * (n * k - accept.sum(axis=1))
            if cost.tile:
                padded = padded + np.ceil((n_q + padded) / cost.tile) * cost.tile - n_q - padded
            verify = (
                cost.fixed
                + np.maximum(cost.weights, cost.per_query * (n_q + padded))
                + cost.per_context * n_kv * (1.0 + cost.reread * k)
            )
            draft = k * (cost.draft + cost.draft_per_sequence * n + cost.draft_per_context * n_kv)
            gap = np.where(drafts, cost.idle, 0.0)
            sample = cost.sample * n
            slow = own * np.exp(random.normal(0, noise.step, worlds))
            round_ms = (verify + draft + gap + sample) * slow
            prefill = 1e3 * STEP_S * np.minimum(0.8, (cost.prefill * arrived) / (1e3 * STEP_S))
            catchup = np.where(drafts, np.minimum(100.0, cost.draft_prefill * arrived), 0.0)
            if noise.stalls:
                hit = random.random(worlds) < noise.stalls
                lengths = noise.shortest_s * (1.0 - random.random(worlds)) ** (-1.0 / noise.shape)
                stall = stall + np.where(hit, np.minimum(lengths, noise.longest_s), 0.0)
            lost = np.minimum(STEP_S, stall)
            stall = stall - lost
            budget = np.maximum(0.0, 1e3 * (STEP_S - lost) - prefill - catchup)
            rounds = np.where(n > 0, budget / round_ms, 0.0)
            if noise.effect:
                accept = accept * np.where(drafts, gift, 1.0)[:, None]
                accept = np.minimum(accept, k[:, None])
            wobble = spread[kind_of, quality, k[:, None]]
            drawn = accept * rounds[:, None] + wobble * np.sqrt(rounds)[:, None] * random.normal(
                0, 1, shape
            )
            drawn = np.clip(drawn, 0.0, k[:, None] * rounds[:, None])
            out = np.where(running, rounds[:, None] + drawn, 0.0)
            part = np.where(out > left, left / np.maximum(out, 1e-9), 1.0)
            out = np.minimum(out, left)
            ran += np.where(running, 1e3 * STEP_S * part, 0.0)
            own_rounds = np.where(running, rounds[:, None] * part, 0.0)
            context += out
            left = np.where(running, left - out, left)
            ended = running & (left <= 1e-9)
            left[ended] = 0.0
            if ended.any():
                world, slot = np.nonzero(ended)
                per_token = ran[world, slot] / size[world, slot]
                where = born[world, slot], world
                bins = np.ceil(np.log(np.maximum(per_token, 1e-3)) / np.log(GROWTH)).astype(int)
                np.add.at(times, (*where, np.clip(bins, 0, BINS - 1)), 1)
                np.add.at(time_ms, where, per_token)
                np.add.at(timed, where, 1)
            if not counts:
                continue
            busy = (n > 0) & (budget > 0)
            totals["wall"] += np.where(n > 0, 1e3 * STEP_S, 0.0)
            totals["rounds"] += rounds
            totals["request_rounds"] += own_rounds.sum(axis=1)
            for name, each in (("draft", draft), ("verify", verify), ("sample", sample)):
                totals[name] += np.where(busy, rounds * each * slow, 0.0)
            totals["idle"] += np.where(busy, rounds * gap * slow, 0.0)
            totals["prefill"] += np.where(n > 0, prefill, 0.0)
            totals["catchup"] += np.where(n > 0, catchup, 0.0)
            totals["n_q"] += own_rounds.sum(axis=1) * (k + 1)
            totals["padded"] += rounds * padded
            totals["n_kv"] += rounds * n_kv
            totals["proposed"] += own_rounds.sum(axis=1) * k
            totals["waiting"] += rounds * waiting
            totals["emitted"] += out.sum(axis=1)
            totals["accepted"] += np.maximum(0.0, out - own_rounds).sum(axis=1)
            for place in range(classes):
                mine = running & (kind_of == place)
                rounds_of = np.where(mine, own_rounds, 0.0)
                by_class["rounds"][number, :, place] += rounds_of.sum(axis=1)
                by_class["emitted"][number, :, place] += np.where(mine, out, 0.0).sum(axis=1)
                by_class["accepted"][number, :, place] += np.where(
                    mine, np.maximum(0.0, out - own_rounds), 0.0
                ).sum(axis=1)
        totals["last"] += waiting
    for place in range(classes):
        reached = by_class["rounds"][:, :, place]
        whole = by_class["accepted"][:, :, place] / np.maximum(reached, 1e-9)
        curve = survival[place].mean(axis=0)
        for number in range(blocks):
            for j in range(K_MOST):
                live = arms[number] > j
                planned = np.cumsum(curve)[np.maximum(arms[number] - 1, 0)]
                scale = np.where(planned > 0, whole[number] / np.maximum(planned, 1e-9), 1.0)
                before = reached[number] if j == 0 else kept[number, :, place, j - 1]
                tested[number, :, place, j] = np.where(live, before, 0.0)
                kept[number, :, place, j] = np.where(
                    live, np.minimum(before, reached[number] * curve[j] * scale), 0.0
                )
    return Recorded(arms, sums, by_class, tested, kept, times[:-1], time_ms[:-1], timed[:-1])


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
