"""An engine round by round, with one thing wrong with it: many blocks at once, in numpy.

It shares no code with the evaluator, and knows the law of every cost. A round of n sequences with
drafts of k tokens, n_q query tokens and n_kv cached tokens takes

    fixed + max(weights, per_query (n_q + padding)) + per_context n_kv (1 + reread k) + experts
          + k (draft + draft_per_sequence n) + gap + sample n + prefill of new requests [ms]

times noise of the round, of the block, and of the pair, which both arms share. Each sequence keeps
its drafts position by position; requests differ in how well, and end after their own length.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from specscope.evaluate.experiment.blocks import BlockPart, BlockTime

Array = NDArray[np.float64]

ROUNDS = 120
BLOCK_MS = 4000.0
GROWTH = 1.01 / 0.99  # of a bin of the store's histograms
NORMAL = (0.72, 0.70, 0.68, 0.66, 0.65, 0.64, 0.63, 0.62)


@dataclass(frozen=True)
class Law:
    """What rounds cost and yield. Times in ms; `spec_` holds only where drafts are made.

    hazard: chance that a position is kept, given those before it. spread: how far requests differ.
    kinds: by kind of request, its share and a multiple of its hazards. output: mean tokens. short:
    share of sequences that draft one token only. displaced: share of the sequences that fits.
    rate: requests a second of open traffic; None for a closed loop of `batch` clients.
    """

    hazard: tuple[float, ...] = NORMAL
    spread: float = 0.2
    kinds: tuple[tuple[str, float, float], ...] = (("", 1.0, 1.0),)
    output: float = 200.0
    context: float = 900.0
    bucket: str = "0-1k"
    batch: int = 16
    rate: float | None = None
    fixed: float = 2.0
    weights: float = 5.0
    per_query: float = 0.01
    per_context: float = 1e-5
    reread: float = 0.0
    draft: float = 0.65
    draft_per_sequence: float = 0.002
    gap: float = 0.1
    spec_gap: float = 0.0
    sample: float = 0.01
    spec_sample: float = 0.0
    prefill: float = 2.0
    spec_prefill: float = 0.0
    catchup: float = 0.2
    spec_launch: float = 0.0
    jump_at: float = np.inf
    jump: float = 0.0
    spec_tile: int = 1
    short: float = 0.0
    displaced: float = 1.0
    experts: int = 0
    active: int = 0
    expert_ms: float = 0.0
    model_bytes: float | None = None
    noise: float = 0.05
    block_noise: float = 0.01
    drift: float = 0.05


@dataclass(frozen=True)
class Traffic:
    """One class of requests, alone in its blocks."""

    name: str
    law: Law
    lengths: tuple[int, ...] = (0, 4)


Rows = tuple[list[BlockTime], list[BlockPart]]


def simulate(
    traffic: Traffic, worlds: int, pairs: int, seed: int, first: int = 1, epoch: str = "e"
) -> list[Rows]:
    """Blocks and parts of each world. first: number of the first pair."""
    random = np.random.default_rng(seed)
    shared = np.exp(random.normal(0, traffic.law.drift, (worlds, pairs)))
    found: list[Rows] = [([], []) for _ in range(worlds)]
    for k in traffic.lengths:
        slow = shared * np.exp(random.normal(0, traffic.law.block_noise, (worlds, pairs)))
        sums = _run(traffic.law, k, slow.ravel(), random)
        for place in range(worlds * pairs):
            world, pair = divmod(place, pairs)
            number = first + pair
            block = _block(traffic, k, number, epoch, sums, place, random.random() < 0.5)
            found[world][0].append(block)
            found[world][1].append(_part(traffic, block, sums, place))
    return found


def _run(law: Law, k: int, slow: Array, random: np.random.Generator) -> dict[str, Array]:
    """Sums over the rounds of blocks, [blocks] each, or with a last axis."""
    blocks, n = len(slow), _sequences(law, k)
    fits = max(1, round(n * law.displaced)) if k else n
    shape = blocks, fits
    shares = np.array([share for _, share, _ in law.kinds])
    worth = np.array([multiple for _, _, multiple in law.kinds])
    kind = random.choice(len(law.kinds), shape, p=shares / shares.sum())
    skill = np.exp(law.spread * random.normal(0, 1, shape))
    drafts = np.where(random.random(shape) < law.short, min(k, 1), k)
    size = np.ceil(law.output * random.uniform(0.5, 1.5, shape))
    left = np.ceil(size * random.random(shape))
    ran, whole = np.zeros(shape), np.zeros(shape, dtype=bool)
    hazard = np.array(law.hazard[:k])
    width = np.arange(1, k + 1)
    names = ("wall", "draft", "verify", "sample", "idle", "catchup", "prefill", "request_rounds",
             "n_q", "n_kv", "proposed", "accepted", "emitted", "padded", "ended", "asked",
             "full")  # fmt: skip
    sums = {name: np.zeros(blocks) for name in names}
    sums["tested"], sums["kept"] = np.zeros((blocks, k)), np.zeros((blocks, k))
    sums["kinds"] = np.zeros((blocks, len(law.kinds), 4))
    sums["times"] = np.zeros((blocks, 400))
    for _ in range(ROUNDS):
        chance = np.clip(hazard * worth[kind][:, :, None], 0, 1) ** (1.0 / skill[:, :, None])
        drawn = random.random((*shape, k)) < chance
        tried = width <= drafts[:, :, None]
        alive = np.cumprod(drawn & tried, axis=2)
        reached = np.concatenate([np.ones((*shape, 1)), alive[:, :, :-1]], axis=2)[:, :, :k]
        kept = alive.sum(axis=2)
        out = np.minimum(1 + kept, left)
        n_q = (1.0 + drafts).sum(axis=1)
        padded = fits * (1.0 + k) - n_q
        tile = law.spec_tile if k else 1
        padded += np.ceil((n_q + padded) / tile) * tile - n_q - padded
        n_kv = fits * law.context * np.ones(blocks)
        verify = law.fixed + np.maximum(law.weights, law.per_query * (n_q + padded))
        verify += law.per_context * n_kv * (1 + law.reread * k)
        verify += np.where(n_q + padded >= law.jump_at, law.jump, 0.0)
        if law.experts:
            idle_share = (1 - law.active / law.experts) ** (n_q + padded)
            verify += law.expert_ms * law.experts * (1 - idle_share)
        verify += law.spec_launch * (k > 0)
        draft = k * (law.draft + law.draft_per_sequence * fits) * np.ones(blocks)
        gap = law.gap + law.spec_gap * (k > 0)
        sample = fits * (law.sample + law.spec_sample * (k > 0))
        over = left - out <= 0
        begun = over.sum(axis=1)
        prefill = begun * (law.prefill + law.spec_prefill * (k > 0))
        catchup = begun * law.catchup * (k > 0)
        noisy = slow * np.exp(random.normal(0, law.noise, blocks))
        wall = noisy * (verify + draft + gap + sample + prefill + catchup)
        for name, time in (("verify", verify), ("draft", draft), ("idle", gap), ("wall", None),
                           ("sample", sample), ("prefill", prefill),
                           ("catchup", catchup)):  # fmt: skip
            sums[name] += wall if time is None else noisy * time
        sums["request_rounds"] += fits
        sums["n_q"] += n_q
        sums["n_kv"] += n_kv
        sums["padded"] += padded
        sums["full"] += fits * (1.0 + k)
        sums["proposed"] += drafts.sum(axis=1)
        sums["accepted"] += kept.sum(axis=1)
        sums["emitted"] += out.sum(axis=1)
        if k:
            sums["tested"] += (reached * tried).sum(axis=1)
            sums["kept"] += alive.sum(axis=1)
        for place in range(len(law.kinds)):
            mine = kind == place
            first = alive[:, :, 0] if k else np.zeros(shape)
            sums["kinds"][:, place] += np.stack(
                [
                    (mine * x).sum(axis=1)
                    for x in (np.ones(shape), out, np.full(shape, k > 0), first)
                ],
                1,
            )
        ran += wall[:, None]
        left = left - out
        if over.any():
            block, slot = np.nonzero(over)
            per_token = ran[block, slot] / size[block, slot]
            bins = np.ceil(np.log(np.maximum(per_token, 1e-3)) / np.log(GROWTH)).astype(int)
            timed = whole[block, slot]
            np.add.at(sums["times"], (block[timed], np.clip(bins, 0, 399)[timed]), 1)
            whole[block, slot] = True
            sums["ended"] += begun
            np.add.at(sums["asked"], block, size[block, slot])
            fresh = len(block)
            kind[block, slot] = random.choice(len(law.kinds), fresh, p=shares / shares.sum())
            skill[block, slot] = np.exp(law.spread * random.normal(0, 1, fresh))
            drafts[block, slot] = np.where(random.random(fresh) < law.short, min(k, 1), k)
            size[block, slot] = np.ceil(law.output * random.uniform(0.5, 1.5, fresh))
            left[block, slot] = size[block, slot]
            ran[block, slot] = 0.0
    sums["rounds"] = np.full(blocks, float(ROUNDS))
    if law.rate is not None:  # blocks of open traffic are as long in every arm
        share = BLOCK_MS / sums["wall"]
        for name, column in sums.items():
            if name != "times":
                column *= share.reshape(-1, *(1,) * (column.ndim - 1))
        sums["ended"] = random.poisson(law.rate * 1e-3 * BLOCK_MS, blocks).astype(float)
        sums["asked"] = sums["ended"] * law.output
    return sums | {"fits": np.full(blocks, fits), "asking": np.full(blocks, n)}


def _sequences(law: Law, k: int) -> int:
    """Sequences that run at once: those of the loop, or by Little's law those of open traffic."""
    if law.rate is None:
        return law.batch
    chances = np.cumprod(law.hazard[:k])
    n = 4.0
    for _ in range(50):
        step = (
            law.fixed
            + max(law.weights, law.per_query * n * (1 + k))
            + law.gap
            + law.spec_gap * (k > 0)
        )
        step += k * (law.draft + law.draft_per_sequence * n) + law.spec_launch * (k > 0)
        n = law.rate * law.output * 1e-3 * step / (1.0 + chances.sum())
    return max(1, round(n))


def _block(
    traffic: Traffic, k: int, pair: int, epoch: str, sums: dict[str, Array], at: int, first: bool
) -> BlockTime:
    law = traffic.law
    s = {name: float(column[at]) for name, column in sums.items() if column.ndim == 1}
    requests = max(1, round(s["ended"]))
    bins = np.nonzero(sums["times"][at])[0]
    begun = 10**9 * (40 * pair + (0 if first == (k == 0) else 20))
    open_ = law.rate is not None
    return BlockTime(
        epoch=epoch, policy=1, replica="r", boot="b", pair=pair, arm=f"k{k}", requests=requests,
        rounds=round(s["rounds"]), request_rounds=round(s["request_rounds"]),
        classes=(traffic.name,), k=k,
        wall_us=1e3 * s["wall"], draft_us=1e3 * s["draft"], verify_us=1e3 * s["verify"],
        sample_us=1e3 * s["sample"], idle_us=1e3 * s["idle"], catchup_us=1e3 * s["catchup"],
        prefill_us=1e3 * s["prefill"], n_q=round(s["n_q"]), n_kv=round(s["n_kv"]),
        proposed=round(s["proposed"]), accepted=round(s["accepted"]), emitted=round(s["emitted"]),
        padded_tokens=round(s["padded"]), full_tokens=round(s["full"]), invalid=0,
        first_at=begun, last_at=begun + int(1e6 * (BLOCK_MS if open_ else s["wall"])),
        preempted=round(requests * 0.5) if s["fits"] < s["asking"] else 0,
        model_bytes=None if law.model_bytes is None else round(s["rounds"] * law.model_bytes),
        prompt_tokens=round(requests * law.context), cached_tokens=0, ended_requests=requests,
        output_tokens=round(s["asked"]), waiting=round(s["rounds"] * (s["asking"] - s["fits"])),
        waiting_first=0, waiting_last=0,
        admitted_kinds=(f"{traffic.name} 0-1k 65-256",) if open_ else (),
        admitted_counts=(requests,) if open_ else (),
        tpot_bins=tuple(int(b) for b in bins),
        tpot_counts=tuple(int(sums["times"][at, b]) for b in bins),
    )  # fmt: skip


def _part(traffic: Traffic, block: BlockTime, sums: dict[str, Array], at: int) -> BlockPart:
    columns = sums["kinds"][at].T
    names = ("kind_rounds", "kind_emitted", "kind_tested", "kind_kept")
    return BlockPart(
        epoch=block.epoch, policy=1, replica="r", boot="b", pair=block.pair, arm=block.arm,
        class_=traffic.name, context_bucket=traffic.law.bucket, output_bucket="65-256", k=block.k,
        request_rounds=block.request_rounds, proposed=block.proposed, accepted=block.accepted,
        emitted=block.emitted, tested=tuple(round(x) for x in sums["tested"][at]),
        kept=tuple(round(x) for x in sums["kept"][at]), requests=block.requests,
        kinds=tuple(name for name, _, _ in traffic.law.kinds),
        **{name: tuple(round(x) for x in row) for name, row in zip(names, columns, strict=True)},
    )  # fmt: skip


def scaled(law: Law, factor: float) -> Law:
    """The same law for texts that a draft keeps better or worse."""
    return replace(law, hazard=tuple(min(0.97, factor * h) for h in law.hazard))
