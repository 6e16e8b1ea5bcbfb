"""What the store holds about experiments, as the evaluator reads it: one epoch at a time."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from specscope import queries
from specscope.evaluate.costs.machine import Machine, machines_of
from specscope.evaluate.experiment.blocks import BlockClass, BlockPart, BlockTime
from specscope.evaluate.experiment.pairs import pair_key
from specscope.evaluate.outputs.copies import OutputCheck
from specscope.evaluate.verdict.crossover import Crossing
from specscope.evaluate.verdict.prices import prices
from specscope.evidence.outputs import read_outputs, read_side_outputs
from specscope.gate.anchor import under_newest_table
from specscope.gate.sides import Policies, crossings, sides_of, without_crossovers
from specscope.gate.voids import Hold, read_holds, void_pairs
from specscope.queries.period import evidence_condition
from specscope.store.connection import Store

MOST_BLOCKS = 20_000
Row = TypeVar("Row", BlockTime, BlockPart, BlockClass)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Block rows of one epoch, whether its arms changed outputs, and the epochs left out.

    crossings: by router, of configurations whose epochs differ by what is compared. machines: by
    epoch, for the causes of a loss. of_hour: prices of an hour, by epoch.
    """

    epoch: str
    blocks: tuple[BlockTime, ...]
    parts: tuple[BlockPart, ...]
    other_epochs: tuple[str, ...] = ()
    outputs: tuple[OutputCheck, ...] = ()
    crossings: tuple[Crossing, ...] = ()
    machines: Mapping[str, Machine] = field(default_factory=dict)
    of_hour: Mapping[str, float] = field(default_factory=dict)

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
    """Blocks of the store's experiments that concern a time since, ns since 1970.

    See `period.evidence_condition`. Raises StoreError where it cannot be read.
    """
    blocks, parts = read_blocks(store, evidence_condition(since))
    policies = read_bodies(store)
    boots = store.rows(queries.boots())
    found = of_epoch(without_crossovers(blocks, policies), parts, epoch)
    return replace(
        found,
        outputs=tuple(read_outputs(store, since)),
        crossings=tuple(read_crossings(store, blocks, policies)),
        machines=machines_of(boots),
        of_hour=prices(boots),
    )


def read_crossings(store: Store, blocks: Sequence[BlockTime], policies: Policies) -> list[Crossing]:
    """The crossovers among the blocks, each with its sides' outputs compared."""
    if not sides_of(policies):
        return []
    found = crossings(blocks, policies, store.rows(queries.boots()))
    return [
        replace(one, outputs=tuple(read_side_outputs(store, one.policies, one.ran, one.baseline)))
        for one in found
    ]


def read_blocks(
    store: Store, where: str = queries.EVERYTHING
) -> tuple[list[BlockTime], list[BlockPart]]:
    """Blocks that a condition on `block_time` chooses, of every epoch, and their parts.

    Blocks of a table that another one replaced are left out.
    Blocks of pairs that a guardrail cut are marked void. Of a fleet with more than MOST_BLOCKS,
    blocks of like replicas at one time come added up, but for boots where a guardrail fired and
    for crossovers, which are about single replicas.
    """
    holds, policies = read_holds(store), read_bodies(store)
    if not is_large(store, where):
        blocks = read_records(store, queries.blocks(where), BlockTime)
        parts = read_records(store, queries.block_parts(where), BlockPart)
    else:
        single = list(dict.fromkeys(_boot(hold) for hold in holds))
        single += [f"policy = {n}" for n in sides_of(policies)]
        alike = " AND ".join([f"({where})", *(f"NOT ({one})" for one in single)])
        blocks = read_records(store, queries.pooled_blocks(alike), BlockTime)
        parts = read_records(store, queries.pooled_parts(alike), BlockPart)
        if single:
            apart = f"({where}) AND ({' OR '.join(f'({one})' for one in single)})"
            blocks += read_records(store, queries.blocks(apart), BlockTime)
            parts += read_records(store, queries.block_parts(apart), BlockPart)
    return void_pairs(under_newest_table(blocks, policies), holds, policies), parts


def is_large(store: Store, where: str) -> bool:
    """Whether a condition chooses more blocks than are read one by one."""
    count = sum(int(row["blocks"]) for row in store.rows(queries.block_count(where)))
    return count > MOST_BLOCKS


def read_records(store: Store, statement: str, record: type[Row]) -> list[Row]:
    """Rows as records, a batch at a time: a fleet's rows as plain values would not fit."""
    found = []
    for batch in store.query(statement).to_batches(max_chunksize=1000):
        found += [record(**_known(row, record)) for row in batch.to_pylist()]
    return found


def _boot(hold: Hold) -> str:
    """Condition that a row is of the boot on which a guardrail fired."""
    replica, boot = (text.replace("\\", "\\\\").replace("'", "\\'") for text in hold[:2])
    return f"replica = '{replica}' AND boot = '{boot}'"


def read_bodies(store: Store) -> dict[int, Mapping[str, Any]]:
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
