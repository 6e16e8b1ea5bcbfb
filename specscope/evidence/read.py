"""Read the evidence of a period: the input of all verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from specscope import queries
from specscope.evaluate.costs.machine import Machine, machines_of
from specscope.evaluate.experiment.blocks import BlockClass, BlockPart, BlockTime, Design
from specscope.evaluate.outputs.copies import OutputCheck
from specscope.evaluate.verdict.crossover import Crossing
from specscope.evaluate.verdict.prices import prices
from specscope.evidence.classes import read_class_blocks, under_table
from specscope.evidence.crossovers import Policies, crossings, sides_of, without_crossovers
from specscope.evidence.guardrail import Hold, read_holds, void_pairs
from specscope.evidence.outputs import read_outputs, read_side_outputs
from specscope.evidence.records import is_large, read_records
from specscope.evidence.tables import under_newest_table
from specscope.policy.stored import StoredPolicy, newest_with_table, read_policies
from specscope.policy.table import GateTable
from specscope.queries.period import evidence_condition
from specscope.store.connection import Store
from specscope.store.literals import quoted

KINDS: dict[str, tuple[Design, bool]] = {
    "cohort": ("cohort", False),
    "blocks": ("switchback", True),
    "closed_loop": ("closed_loop", True),
}
"""By kind of policy: how traffic reaches its blocks, and whether its evidence is read while it
grows. `closed_loop` are `blocks` whose policy says that clients wait for their answers."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """The blocks of one kind of policy. looked_at_often: whether they are read while they grow."""

    kind: str
    design: Design
    looked_at_often: bool
    blocks: tuple[BlockTime, ...]


@dataclass(frozen=True, slots=True)
class Evidence:
    """The input of all verdicts on a period.

    since: begin of the period, ns since 1970. blocks, parts: blocks of every epoch, except those of
    crossovers by router, and the request parts in them. crossings: the crossovers. classes: each
    class's times in blocks under the table in force. machines: by epoch, for causes of losses.
    of_hour: price per replica hour, by epoch. boots: rows of `boot`. policies: oldest first.
    """

    blocks: tuple[BlockTime, ...] = ()
    parts: tuple[BlockPart, ...] = ()
    since: int = 0
    policies: tuple[StoredPolicy, ...] = ()
    crossings: tuple[Crossing, ...] = ()
    classes: tuple[BlockClass, ...] = ()
    outputs: tuple[OutputCheck, ...] = ()
    machines: Mapping[str, Machine] = field(default_factory=dict)
    of_hour: Mapping[str, float] = field(default_factory=dict)
    boots: tuple[Mapping[str, Any], ...] = ()

    @property
    def epochs(self) -> tuple[str, ...]:
        """Epochs with blocks; the latest is the last one."""
        latest: dict[str, int] = {}
        for block in self.blocks:
            latest[block.epoch] = max(block.last_at, latest.get(block.epoch, 0))
        return tuple(sorted(latest, key=lambda name: (latest[name], name)))

    @property
    def experiments(self) -> list[Experiment]:
        """Blocks by kind of policy; blocks of an unknown policy are cohorts."""
        kinds = {
            policy.number: "closed_loop" if policy.closed_loop else policy.kind
            for policy in self.policies
        }
        groups: dict[str, list[BlockTime]] = {kind: [] for kind in KINDS}
        for block in self.blocks:
            kind = kinds.get(block.policy, "cohort")
            groups[kind if kind in KINDS else "cohort"].append(block)
        return [
            Experiment(kind, *KINDS[kind], tuple(blocks))
            for kind, blocks in groups.items()
            if blocks
        ]

    @property
    def table(self) -> GateTable | None:
        """The table in force; None if no policy has one."""
        policy = newest_with_table(self.policies)
        return None if policy is None else policy.table

    def begun_since(self, ns: int) -> tuple[BlockTime, ...]:
        """Blocks that began at or after a time, ns since 1970."""
        return tuple(block for block in self.blocks if block.first_at >= ns)


def read(store: Store, since: int = 0) -> Evidence:
    """Read the evidence of a period that begins at `since` (ns since 1970).

    `period.evidence_condition` chooses the blocks. Raises StoreError if the store cannot be read.
    """
    blocks, parts = read_blocks(store, evidence_condition(since))
    policies = read_policies(store)
    bodies = {policy.number: policy.body for policy in policies}
    boots = store.rows(queries.boots())
    in_force = newest_with_table(policies)
    waits = [] if in_force is None else read_class_blocks(store, since)
    return Evidence(
        blocks=tuple(without_crossovers(blocks, bodies)),
        parts=tuple(parts),
        since=since,
        policies=tuple(policies),
        crossings=tuple(read_crossings(store, blocks, bodies, boots)),
        classes=tuple(
            under_newest_table(under_table(waits, policies, in_force.table), bodies)
            if in_force
            else ()
        ),
        outputs=tuple(read_outputs(store, since)),
        machines=machines_of(boots),
        of_hour=prices(boots),
        boots=tuple(boots),
    )


def read_crossings(
    store: Store,
    blocks: Sequence[BlockTime],
    policies: Policies,
    boots: Sequence[Mapping[str, Any]],
) -> list[Crossing]:
    """The crossovers among the blocks, each with its sides' outputs compared."""
    if not sides_of(policies):
        return []
    found = crossings(blocks, policies, boots)
    return [
        replace(one, outputs=tuple(read_side_outputs(store, one.policies, one.ran, one.baseline)))
        for one in found
    ]


def read_blocks(
    store: Store, where: str = queries.EVERYTHING
) -> tuple[list[BlockTime], list[BlockPart]]:
    """Blocks of every epoch that meet a condition on `block_time`, and their parts.

    Blocks of a replaced table are left out. Blocks of pairs in which a guardrail acted are marked
    void. With more than MOST_BLOCKS blocks, simultaneous blocks of equal replicas are merged. Boots
    on which a guardrail fired, and crossovers, are never merged.
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


def _boot(hold: Hold) -> str:
    """SQL condition that a row belongs to the boot on which a guardrail fired."""
    replica, boot = map(quoted, hold[:2])
    return f"replica = {replica} AND boot = {boot}"


def read_bodies(store: Store) -> dict[int, Mapping[str, Any]]:
    """The JSON of each readable policy, by its number."""
    return {policy.number: policy.body for policy in read_policies(store)}
