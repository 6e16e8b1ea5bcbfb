"""Blocks of an engine whose every cost is known, with one cause of loss planted in it.

A round of `batch` sequences at draft length k takes
    draft    k * draft_ms
    verify   step_ms + slot_ms * positions + context_ms * n_kv + reread_ms * k * n_kv
    sample   sample_ms, and idle idle_ms where anything was drafted
and yields, for each sequence, what position-by-position acceptance gives.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import numpy as np

from specscope.evaluate.experiment.blocks import BlockPart, BlockTime


@dataclass(frozen=True)
class Engine:
    """The engine's costs, in ms, and what it does to positions, prompts and memory."""

    draft_ms: float = 0.05
    step_ms: float = 1.0
    slot_ms: float = 0.0
    context_ms: float = 0.0
    reread_ms: float = 0.0
    sample_ms: float = 0.02
    idle_ms: float = 0.02
    sampling_ms: float = 0.0  # more, where anything was drafted
    keep: float = 0.7  # chance that a position is kept
    late: float = 1.0  # of positions behind the first two, as a multiple
    pad_to: int = 1  # positions of a pass come in multiples of this
    ragged: bool = False  # all sequences but one draft one token, and are padded to the longest
    steps: dict[int, float] = field(default_factory=dict)  # ms more from so many positions on
    prefill_ms: float = 0.0  # of a request, where speculating; 0.1 otherwise
    catchup_ms: float = 0.0  # of a request, where speculating
    displaced: float = 1.0  # share of the batch that fits where speculating
    model_bytes: int | None = None  # of a round


@dataclass(frozen=True)
class Cohort:
    """What runs in a block."""

    class_: str = "x"
    batch: int = 8
    context: int = 500
    output: int = 400
    bucket: str = "0-1k"
    kinds: dict[str, float] = field(default_factory=lambda: {"": 1.0})  # keep, as a multiple
    refused: float = 0.0  # share of proposals that a grammar refuses


def blocks_of(
    engine: Engine,
    *cohorts: Cohort,
    ks: tuple[int, ...] = (0, 4),
    pairs: int = 20,
    seed: int = 0,
) -> tuple[list[BlockTime], list[BlockPart]]:
    """Pairs of every arm for each cohort, with a drift that both blocks share and 1 % noise."""
    random = np.random.default_rng(seed)
    times, parts = [], []
    for number, cohort in enumerate(cohorts):
        for pair in range(pairs):
            drift = np.exp(random.normal(0, 0.1))
            for k in ks:
                slow = drift * np.exp(random.normal(0, 0.01))
                block, part = one_block(engine, cohort, k, 1 + number * pairs + pair, slow)
                times.append(block)
                parts.append(part)
    return times, parts


def one_block(
    engine: Engine, cohort: Cohort, k: int, pair: int, slow: float
) -> tuple[BlockTime, BlockPart]:
    fits = max(1, round(cohort.batch * (engine.displaced if k else 1.0)))
    lengths = [min(k, 1) if engine.ragged and row else k for row in range(cohort.batch)]
    kinds: dict[str, list[float]] = {}
    yielded = 0.0
    for row, length in enumerate(lengths):
        kind = list(cohort.kinds)[row % len(cohort.kinds)]
        keep = engine.keep * cohort.kinds[kind]
        accepted = sum(survival(engine, keep, j) for j in range(1, length + 1))
        if cohort.output < 20:  # the last round is cut: half a round too many, on average
            accepted *= cohort.output / (cohort.output + (1 + accepted) / 2)
        yielded += 1 + accepted
        counts = kinds.setdefault(kind, [0.0] * 4)
        for place, value in enumerate((1.0, 1 + accepted, float(length > 0), keep * (length > 0))):
            counts[place] += value
    tokens_a_round = yielded / cohort.batch
    request_rounds = cohort.batch * cohort.output / tokens_a_round
    rounds = max(1, round(request_rounds / fits))
    request_rounds = rounds * fits
    asked = sum(length + 1 for length in lengths) / cohort.batch
    full = k + 1.0
    slots = full if engine.ragged and k else asked
    width = int(np.ceil(slots * fits / engine.pad_to) * engine.pad_to) if k else slots * fits
    n_kv = fits * cohort.context
    verify = engine.step_ms + engine.slot_ms * width + engine.context_ms * n_kv
    verify += engine.reread_ms * k * n_kv
    verify += sum(more for positions, more in engine.steps.items() if width >= positions)
    prefill = cohort.batch * (engine.prefill_ms if k and engine.prefill_ms else 0.1)
    catchup = cohort.batch * engine.catchup_ms if k else 0.0
    sample = engine.sample_ms + (engine.sampling_ms if k else 0.0)
    parts_ms = {
        "draft_us": rounds * engine.draft_ms * k,
        "verify_us": rounds * verify,
        "sample_us": rounds * sample,
        "idle_us": rounds * engine.idle_ms * (k > 0),
        "catchup_us": catchup,
        "prefill_us": prefill,
    }
    emitted = round(request_rounds * tokens_a_round)
    proposed = round(request_rounds * (asked - 1))
    share = request_rounds / cohort.batch
    block = BlockTime(
        epoch="e",
        policy=1,
        replica="r",
        boot="b",
        pair=pair,
        arm=f"k{k}",
        requests=cohort.batch,
        rounds=rounds,
        request_rounds=request_rounds,
        classes=(cohort.class_,),
        k=k,
        wall_us=1e3 * slow * sum(parts_ms.values()),
        **{name: 1e3 * slow * value for name, value in parts_ms.items()},
        n_q=round(request_rounds * asked),
        n_kv=rounds * n_kv,
        proposed=proposed,
        accepted=emitted - request_rounds,
        emitted=emitted,
        padded_tokens=round(rounds * width) - round(request_rounds * asked),
        full_tokens=round(request_rounds * full),
        invalid=round(proposed * cohort.refused),
        preempted=cohort.batch if k and engine.displaced < 1 else 0,
        model_bytes=None if engine.model_bytes is None else rounds * engine.model_bytes,
        prompt_tokens=cohort.batch * cohort.context,
        cached_tokens=0,
        ended_requests=cohort.batch,
        output_tokens=cohort.batch * cohort.output,
        first_at=pair * 10**9,
        last_at=pair * 10**9 + 10**6,
    )
    tested = [float(sum(length >= j for length in lengths)) for j in range(1, k + 1)]
    reached = [share * n * survival(engine, engine.keep, j) for j, n in enumerate(tested)]
    hazards = [engine.keep * (engine.late if j >= 2 else 1.0) for j in range(k)]
    columns = list(zip(*kinds.values(), strict=True))
    part = BlockPart(
        epoch="e",
        policy=1,
        replica="r",
        boot="b",
        pair=pair,
        arm=f"k{k}",
        class_=cohort.class_,
        context_bucket=cohort.bucket,
        output_bucket="257-1k",
        k=k,
        request_rounds=request_rounds,
        proposed=proposed,
        accepted=block.accepted,
        emitted=emitted,
        tested=tuple(round(n) for n in reached),
        kept=tuple(
            round(n * hazard / engine.keep * sum(c[3] for c in kinds.values()) / cohort.batch)
            for n, hazard in zip(reached, hazards, strict=True)
        ),
        requests=cohort.batch,
        kinds=tuple(kinds),
        **{
            name: tuple(round(share * value) for value in column)
            for name, column in zip(
                ("kind_rounds", "kind_emitted", "kind_tested", "kind_kept"), columns, strict=True
            )
        },
    )  # fmt: skip
    return block, part


def survival(engine: Engine, keep: float, position: int) -> float:
    """Chance that a position and all before it are kept."""
    return float(keep**position * engine.late ** max(0, position - 2))


def without(rows: list[BlockTime], *names: str) -> list[BlockTime]:
    """The same blocks, where columns are not known."""
    return [dataclasses.replace(row, **dict.fromkeys(names)) for row in rows]
