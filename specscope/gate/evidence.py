"""What the store holds about experiments, as the evaluator reads it: one epoch at a time."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specscope import queries
from specscope.evaluate.blocks import BlockPart, BlockTime, pair_key
from specscope.evaluate.outputs import OutputCheck
from specscope.gate.voids import read_holds, void_pairs
from specscope.outputs import read_outputs
from specscope.period import since_condition
from specscope.store import Store


@dataclass(frozen=True, slots=True)
class Evidence:
    """Block rows of one epoch, whether its arms changed outputs, and the epochs left out."""

    epoch: str
    blocks: tuple[BlockTime, ...]
    parts: tuple[BlockPart, ...]
    other_epochs: tuple[str, ...] = ()
    outputs: tuple[OutputCheck, ...] = ()

    def since(self, ns: int) -> Evidence:
        """Only the blocks that began at or after a time, ns since 1970."""
        blocks = tuple(block for block in self.blocks if block.first_at >= ns)
        kept = {pair_key(block) for block in blocks}
        parts = tuple(part for part in self.parts if pair_key(part) in kept)
        return replace(self, blocks=blocks, parts=parts)


def of_epoch(
    blocks: Sequence[BlockTime], parts: Sequence[BlockPart], epoch: str | None = None
) -> Evidence:
    """Evidence of an epoch, by default of the one that ran last. Empty where there is none."""
    latest: dict[str, int] = {}
    for block in blocks:
        latest[block.epoch] = max(block.last_at, latest.get(block.epoch, 0))
    chosen = epoch or max(sorted(latest), key=lambda name: latest[name], default="")
    return Evidence(
        epoch=chosen,
        blocks=tuple(block for block in blocks if block.epoch == chosen),
        parts=tuple(part for part in parts if part.epoch == chosen),
        other_epochs=tuple(sorted(set(latest) - {chosen})),
    )


def read_evidence(store: Store, epoch: str | None = None, since: int = 0) -> Evidence:
    """Blocks of the store's experiments that began since a time, ns since 1970.

    Raises StoreError where it cannot be read.
    """
    blocks, parts = read_blocks(store, since_condition("first_at", since))
    found = of_epoch(blocks, parts, epoch)
    return replace(found, outputs=tuple(read_outputs(store, since)))


def read_blocks(
    store: Store, where: str = queries.EVERYTHING
) -> tuple[list[BlockTime], list[BlockPart]]:
    """Blocks that a condition on `block_time` chooses, of every epoch, and their parts.

    Blocks of pairs that a guardrail cut are marked void.
    """
    blocks = [BlockTime(**_known(row, BlockTime)) for row in store.rows(queries.blocks(where))]
    if holds := read_holds(store):
        blocks = void_pairs(blocks, holds, _policies(store))
    rows = store.rows(queries.block_parts(where))
    return blocks, [BlockPart(**_known(row, BlockPart)) for row in rows]


def _policies(store: Store) -> dict[int, Mapping[str, Any]]:
    """The JSON of each policy by its number; of one that cannot be read, nothing."""
    found: dict[int, Mapping[str, Any]] = {}
    for row in store.rows(queries.policies()):
        with contextlib.suppress(ValueError):
            body = json.loads(row["table"])
            found[int(row["policy"])] = body if isinstance(body, dict) else {}
    return found


def _known(row: Mapping[str, Any], record: type[Any]) -> dict[str, Any]:
    """A row's columns that a record has; a store of a newer version has more."""
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name in record.__dataclass_fields__
        if (value := row.get(name.rstrip("_"), _MISSING)) is not _MISSING
    }


_MISSING = object()
