"""What the evaluator reads, from what a simulated world did: the only seam between the two."""

from __future__ import annotations

import numpy as np
from plans import Kind, Recorded

from specscope.evaluate.experiment.blocks import BlockPart, BlockTime

BLOCK_S, BURN_IN_S = 12.0, 3.0  # 16 and 4 times as long as a request runs


def rows(
    recorded: Recorded,
    world: int,
    kinds: tuple[Kind, ...],
    arms: int = 2,
    pairs: int | None = None,
    epoch: str = "e",
) -> tuple[list[BlockTime], list[BlockPart]]:
    """Blocks and parts of one world. arms: blocks of a pair; pairs: only the first so many."""
    last = len(recorded.arms) if pairs is None else pairs * arms
    blocks, parts = [], []
    for number in range(last):
        blocks.append(_block(recorded, world, number, kinds, arms, epoch))
        parts += _parts(recorded, world, number, kinds, blocks[-1])
    return blocks, parts


def _block(
    recorded: Recorded, world: int, number: int, kinds: tuple[Kind, ...], arms: int, epoch: str
) -> BlockTime:
    s = {name: float(column[number, world]) for name, column in recorded.sums.items()}
    k = int(recorded.arms[number, world])
    bins = np.nonzero(recorded.times[number, world])[0]
    served = [
        kind.name
        for place, kind in enumerate(kinds)
        if recorded.by_class["rounds"][number, world, place] > 0
    ]
    begun = int(1e9 * (1000.0 + number * BLOCK_S + BURN_IN_S))
    return BlockTime(
        epoch=epoch, policy=1, replica=f"r{world}", boot="b", pair=1 + number // arms, arm=f"k{k}",
        requests=round(s["arrived"]), rounds=max(1, round(s["rounds"])),
        request_rounds=max(1, round(s["request_rounds"])), classes=tuple(served), k=k,
        wall_us=1e3 * s["wall"], draft_us=1e3 * s["draft"], verify_us=1e3 * s["verify"],
        sample_us=1e3 * s["sample"], idle_us=1e3 * s["idle"], catchup_us=1e3 * s["catchup"],
        prefill_us=1e3 * s["prefill"], n_q=round(s["n_q"]), n_kv=round(s["n_kv"]),
        proposed=round(s["proposed"]), emitted=round(s["emitted"]),
        accepted=max(round(s["accepted"]), round(s["emitted"]) - round(s["request_rounds"])),
        padded_tokens=round(s["padded"]), first_at=begun,
        last_at=begun + int(1e9 * (BLOCK_S - BURN_IN_S)),
        tpot_bins=tuple(int(b) for b in bins),
        tpot_counts=tuple(int(recorded.times[number, world, b]) for b in bins),
        full_tokens=round(s["request_rounds"]) * (k + 1), invalid=0, preempted=0,
        prompt_tokens=round(s["prompts"]), cached_tokens=0, ended_requests=round(s["arrived"]),
        output_tokens=round(s["asked"]), waiting=round(s["waiting"]),
        waiting_first=round(s["first"]), waiting_last=round(s["last"]),
        admitted_kinds=tuple(f"{kind.name} 0-1k 65-256" for kind in kinds),
        admitted_counts=tuple(
            round(float(recorded.by_class["requests"][number, world, place]))
            for place in range(len(kinds))
        ),
    )  # fmt: skip


def _parts(
    recorded: Recorded, world: int, number: int, kinds: tuple[Kind, ...], block: BlockTime
) -> list[BlockPart]:
    found = []
    for place, kind in enumerate(kinds):
        rounds = round(float(recorded.by_class["rounds"][number, world, place]))
        if not rounds:
            continue
        at = number, world, place
        found.append(
            BlockPart(
                epoch=block.epoch, policy=1, replica=block.replica, boot="b", pair=block.pair,
                arm=block.arm, class_=kind.name, context_bucket="0-1k", output_bucket="65-256",
                k=block.k, request_rounds=rounds, proposed=rounds * block.k,
                accepted=round(float(recorded.by_class["accepted"][at])),
                emitted=round(float(recorded.by_class["emitted"][at])),
                tested=tuple(round(float(recorded.tested[at][j])) for j in range(block.k)),
                kept=tuple(round(float(recorded.kept[at][j])) for j in range(block.k)),
                requests=round(float(recorded.by_class["requests"][at])),
            )
        )  # fmt: skip
    return found
