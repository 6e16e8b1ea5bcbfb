"""Mixed traffic of four classes on four kinds of engine, round by round in numpy.

It shares no code with the evaluator. All rows of a batch take every round together; a row drafts
the length that its class is given, and each token of it is kept with the request's own chance until
the first that is not. A row whose text has ended makes room for a request of a class drawn by the
mix. A round of n rows with n_kv cached tokens costs, in ms,

    step + max(weights, per_query * width) + per_context * n_kv     the verify pass
    draft_step * longest + draft_row * rows drafted                 the draft

where width and rows drafted count the draft of each row on an engine that packs them, and the
longest draft for each row on one that pads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from specscope.evaluate.experiment.blocks import BlockPart, BlockTime
from specscope.evaluate.proposal.rounds import RoundSums

CLASSES = ("chat", "json", "prose", "sql")
KEEPS = np.array([0.35, 0.93, 0.28, 0.80])
"""Mean chance that a token is kept, by class; requests differ around it (beta, of 20 counts)."""
OUTPUT = 120.0
K_MOST = 4
BURN_IN = 40
ROWS = 16_000  # rounds of requests in a block
DRIFT, OWN, STEP = 0.10, 0.03, 0.05
"""Standard deviations of log time: of a pair, of a block, of a round."""


@dataclass(frozen=True)
class EngineKind:
    """An engine, its batch, and what a round costs. [ms]"""

    name: str
    batch: int
    step: float
    weights: float
    per_query: float
    per_context: float
    draft_step: float
    draft_row: float
    pads: bool = False

    def times(self, batch, drafted, longest, n_kv):
        """Verify pass and draft of rounds. [ms]"""
        rows = batch * longest if self.pads else drafted
        verify = self.step + np.maximum(self.weights, self.per_query * (batch + rows))
        draft = self.draft_step * longest + self.draft_row * rows
        return verify + self.per_context * n_kv, draft


PACKED = EngineKind("packed", 64, 12.0, 4.0, 0.09, 2e-5, 0.2, 0.01)
PADDED = EngineKind("padded", 64, 12.0, 4.0, 0.09, 2e-5, 0.2, 0.01, pads=True)
WAITING = EngineKind("waiting", 8, 4.0, 6.0, 0.02, 2e-5, 1.1, 0.01)
COMPUTE = EngineKind("compute-bound", 128, 8.0, 4.0, 0.04, 1e-5, 0.2, 0.002)
ENGINES = (PACKED, PADDED, WAITING, COMPUTE)
SWITCHES = np.repeat(np.arange(K_MOST + 1)[:, None], len(CLASSES), axis=1)
"""One draft length for all, [5, 4]."""
TABLES = np.array(list(product(range(K_MOST + 1), repeat=len(CLASSES))))
"""Every table: draft lengths of the classes, [625, 4]."""


@dataclass
class Ran:
    """What worlds recorded, by round, [rounds, worlds], and by class, [worlds, classes, ...]."""

    wall: np.ndarray
    verify: np.ndarray
    draft: np.ndarray
    longest: np.ndarray
    drafted: np.ndarray
    n_kv: np.ndarray
    emitted: np.ndarray
    by_class: dict[str, np.ndarray]


def run(engine: EngineKind, lengths, slow, random, rounds, mix=None, step=STEP) -> Ran:
    """Rounds of worlds side by side. lengths: [worlds, classes]; slow: of each world's time."""
    worlds, batch = len(lengths), engine.batch
    share = np.full(len(CLASSES), 0.25) if mix is None else np.asarray(mix, float)
    edges = np.cumsum(share / share.sum())
    # Slow classes hold more rows than they send requests, from the first round on.
    rows = share * (1 - KEEPS) / (1 - KEEPS ** (lengths + 1.0))
    begun = np.cumsum(rows / rows.sum(axis=1, keepdims=True), axis=1)
    kind = (random.random((worlds, batch))[:, :, None] > begun[:, None, :-1]).sum(axis=2)
    chance = random.beta(20 * KEEPS[kind], 20 * (1 - KEEPS[kind]))
    left = np.ceil(random.exponential(OUTPUT, kind.shape))
    context = random.uniform(100, 800, kind.shape)
    at = np.arange(worlds)[:, None]
    sums = {
        name: np.zeros((worlds, len(CLASSES)))
        for name in ("rounds", "emitted", "proposed", "accepted", "requests")
    }
    tested, kept = (np.zeros((worlds, len(CLASSES), K_MOST)) for _ in range(2))
    columns = {name: [] for name in Ran.__dataclass_fields__ if name != "by_class"}
    for number in range(BURN_IN + rounds):
        k = lengths[at, kind]
        drawn = np.floor(np.log(random.random(kind.shape)) / np.log(chance))
        accepted = np.minimum(drawn, k)
        out = np.minimum(accepted + 1, left)
        if number >= BURN_IN:
            drafted, longest = k.sum(axis=1), k.max(axis=1)
            n_kv = context.sum(axis=1)
            verify, draft = engine.times(batch, drafted, longest, n_kv)
            factor = slow * np.exp(random.normal(0, step, worlds)) if step else slow
            values = ((verify + draft) * factor, verify * factor, draft * factor)
            for name, value in zip(
                columns, (*values, longest, drafted, n_kv, out.sum(axis=1)), strict=True
            ):
                columns[name].append(value)
            # What lies behind the end of a text was never tested.
            whole = out > accepted
            reach = np.where(whole, np.minimum(accepted + 1, k), np.minimum(accepted, out))
            held = np.where(whole, accepted, np.minimum(accepted, out))
            flat = (at * len(CLASSES) + kind).ravel()
            size = worlds * len(CLASSES)

            def add(value, flat=flat, size=size):
                counted = np.bincount(flat, np.broadcast_to(value, kind.shape).ravel(), size)
                return counted.reshape(worlds, -1)

            sums["rounds"] += add(1.0)
            sums["emitted"] += add(out)
            sums["proposed"] += add(k)
            sums["accepted"] += add(accepted)
            for j in range(K_MOST):
                tested[:, :, j] += add(reach > j)
                kept[:, :, j] += add(held > j)
        left -= out
        context += out
        over = left <= 0
        if number >= BURN_IN:
            sums["requests"] += add(over)
        count = int(over.sum())
        new = np.minimum(np.searchsorted(edges, random.random(count)), len(CLASSES) - 1)
        kind[over] = new
        chance[over] = random.beta(20 * KEEPS[new], 20 * (1 - KEEPS[new]))
        left[over] = np.ceil(random.exponential(OUTPUT, count))
        context[over] = random.uniform(100, 800, count)
    by_class = {**sums, "tested": tested, "kept": kept}
    return Ran(**{name: np.array(rows) for name, rows in columns.items()}, by_class=by_class)


def throughput(engine: EngineKind, tables, rows, seed=99, mix=None) -> np.ndarray:
    """Tokens per ms of each table over so many rounds of requests, without noise. [tables]"""
    copies = max(1, (128 if len(tables) > 100 else 1024) // engine.batch)
    lengths = np.repeat(tables, copies, axis=0)
    random = np.random.default_rng(seed)
    rounds = max(50, rows // (engine.batch * copies))
    ran = run(engine, lengths, np.ones(len(lengths)), random, rounds, mix, step=0.0)
    tokens, took = (
        one.sum(axis=0).reshape(-1, copies).sum(axis=1) for one in (ran.emitted, ran.wall)
    )
    return tokens / took


def truth(engine: EngineKind, chosen, rows=1_000_000, rough=20_000) -> tuple[np.ndarray, float]:
    """Tokens per ms of these tables, and of the best table there is.

    All tables are run for so many rounds of requests, then the forty that look best for longer. The
    winner is run once more beside the chosen ones, since the best of many looks better than it is.
    """
    first = throughput(engine, TABLES, rough, seed=96)
    few = TABLES[np.argsort(first)[-40:]]
    winner = few[np.argmax(throughput(engine, few, rows // 2, seed=97))]
    rates = throughput(engine, np.concatenate([[winner], chosen]), rows, seed=98)
    return rates[1:], float(rates[0])


def alone(engine: EngineKind, rows=40_000) -> tuple[np.ndarray, float]:
    """The gate that classes lead to that ran alone, and its gain over the best switch there."""
    per_token = np.empty((len(CLASSES), K_MOST + 1))
    for place in range(len(CLASSES)):
        only = np.eye(len(CLASSES))[place]
        per_token[place] = 1.0 / throughput(engine, SWITCHES, rows, 7, mix=only)
    return per_token.argmin(axis=1), per_token.sum(axis=0).min() / per_token.min(axis=1).sum()


@dataclass
class Records:
    """What the store would hold of one experiment."""

    blocks: list[BlockTime]
    parts: list[BlockPart]
    rounds: list[RoundSums]


def experiments(
    engine: EngineKind, arms: dict[str, Sequence[int]], pairs: int, runs: int, seed: int,
    parts_timed: bool = True, counts_padding: bool = False, own: float = OWN,
) -> list[Records]:  # fmt: skip
    """So many experiments of these arms, each with its own draws."""
    random = np.random.default_rng(seed)
    names = list(arms)
    worlds = runs * pairs * len(names)
    lengths = np.tile(np.array([arms[name] for name in names]), (runs * pairs, 1))
    drift = np.repeat(random.normal(0, DRIFT, runs * pairs), len(names))
    slow = np.exp(drift + random.normal(0, own, worlds))
    ran = run(engine, lengths, slow, random, ROWS // engine.batch)
    found = []
    for number in range(runs):
        records = Records([], [], [])
        for pair in range(pairs):
            for place in random.permutation(len(names)):
                world = (number * pairs + pair) * len(names) + int(place)
                _record(
                    records, engine, ran, world, lengths[world], (names[place], pair + 1),
                    parts_timed, counts_padding,
                )  # fmt: skip
        found.append(records)
    return found


def _record(records, engine, ran, world, lengths, named, timed, counts) -> None:
    arm, pair = named
    where = {"policy": 2, "replica": "r", "boot": "b", "pair": pair, "arm": arm}
    one = {name: value[world] for name, value in ran.by_class.items()}
    kinds, place = np.unique(
        np.stack([ran.longest[:, world], ran.drafted[:, world]]), axis=1, return_inverse=True
    )
    place = place.ravel()
    size = kinds.shape[1]

    def total(name):
        return np.bincount(place, getattr(ran, name)[:, world], size)

    count = np.bincount(place, minlength=size)
    wall, verify, draft, n_kv, out = map(total, ("wall", "verify", "draft", "n_kv", "emitted"))
    for i in range(size):
        longest, drafted = map(int, kinds[:, i])
        padded = engine.batch * longest - drafted if engine.pads and counts else 0
        records.rounds.append(
            RoundSums(
                **where, rounds=int(count[i]), batch=engine.batch, k=longest,
                n_q=engine.batch + drafted, n_kv=int(n_kv[i]),
                padded_tokens=padded * int(count[i]), prefill_tokens=0, emitted=int(out[i]),
                wall_us=1e3 * wall[i], draft_us=1e3 * draft[i] if timed else None,
                verify_us=1e3 * verify[i] if timed else None,
            )
        )  # fmt: skip
    where["epoch"] = "e"
    for c, name in enumerate(CLASSES):
        k = int(lengths[c])
        records.parts.append(
            BlockPart(
                **where, class_=name, context_bucket="0-1k", output_bucket="65-256", k=k,
                request_rounds=int(one["rounds"][c]), proposed=int(one["proposed"][c]),
                accepted=int(one["accepted"][c]), emitted=int(one["emitted"][c]),
                requests=int(one["requests"][c]) + engine.batch // len(CLASSES),
                tested=tuple(map(int, one["tested"][c, :k])),
                kept=tuple(map(int, one["kept"][c, :k])),
            )
        )  # fmt: skip
    began = 10**15 + len(records.blocks) * 10**11
    rows = engine.batch * int(count.sum())
    drafted = int(ran.drafted[:, world].sum())
    records.blocks.append(
        BlockTime(
            **where, requests=int(one["requests"].sum()) + engine.batch, rounds=int(count.sum()),
            request_rounds=rows, classes=CLASSES, k=int(lengths.max()), wall_us=1e3 * wall.sum(),
            draft_us=1e3 * draft.sum(), verify_us=1e3 * verify.sum(), n_q=rows + drafted,
            n_kv=int(n_kv.sum()), proposed=int(one["proposed"].sum()),
            accepted=int(one["accepted"].sum()), emitted=int(out.sum()), first_at=began,
            last_at=began + round(1e6 * wall.sum()), waiting=0,
        )
    )  # fmt: skip
