"""Read rounds of experiments on mixed traffic, the input of a proposed table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specscope import queries
from specscope.evaluate.experiment.blocks import BlockPart
from specscope.evaluate.proposal.rounds import PairOfReplica, RoundSums
from specscope.evidence.crossovers import sides_of
from specscope.evidence.records import read_records
from specscope.policy.stored import StoredPolicy
from specscope.queries.period import since_condition
from specscope.store.connection import Store

MOST_BLOCKS = 1000
"""Blocks that are read, of pairs chosen by chance if there are more: a model needs no fleet."""


@dataclass(frozen=True, slots=True)
class MixedRounds:
    """Rounds and class counts of pairs with at least two arms, in batches that several classes
    shared. epoch: their common epoch; empty without pairs."""

    epoch: str
    rounds: tuple[RoundSums, ...]
    parts: tuple[BlockPart, ...]


def read_mixed(
    store: Store, policies: Sequence[StoredPolicy], since: int, epoch: str | None = None
) -> MixedRounds:
    """Read pairs of live traffic that began since a time in ns since 1970 and have raw rounds.

    epoch: epoch of the pairs (default: the latest with blocks). Raises StoreError if the store
    cannot be read.
    """
    crossed = sides_of({policy.number: policy.body for policy in policies})
    numbers = [p.number for p in policies if p.kind == "blocks" and p.number not in crossed]
    if not numbers:
        return MixedRounds(epoch or "", (), ())
    chosen = f"policy IN ({', '.join(map(str, numbers))})"
    began = f"{chosen} AND {since_condition('first_at', since)}"
    total = sum(int(row["blocks"]) for row in store.rows(queries.block_count(began)))
    some = f"cityHash64(replica, boot, pair) % {max(1, -(-total // MOST_BLOCKS))} = 0"
    parts = read_records(store, queries.block_parts(f"{began} AND {some}"), BlockPart)
    ran = f"{chosen} AND {since_condition('started_at', since)} AND {some}"
    rounds = [_sums(row) for row in store.rows(queries.round_shapes(ran))]
    return _mixed(rounds, parts, epoch)


def _mixed(
    rounds: Sequence[RoundSums], parts: Sequence[BlockPart], epoch: str | None
) -> MixedRounds:
    """Rounds and class counts of complete pairs of one epoch."""
    classes: dict[PairOfReplica, set[str]] = defaultdict(set)
    epochs: dict[PairOfReplica, str] = {}
    for part in parts:
        key = part.policy, part.replica, part.boot, part.pair
        classes[key].add(part.class_)
        epochs[key] = part.epoch
    arms: dict[PairOfReplica, set[str]] = defaultdict(set)
    for row in rounds:
        arms[row.key].add(row.arm)
    whole = {key for key in arms if len(arms[key]) > 1 and len(classes[key]) > 1}
    if epoch is None:
        newest = max(whole, key=lambda key: (key[0], key[3]), default=None)
        epoch = "" if newest is None else epochs[newest]
    kept = {key for key in whole if epochs[key] == epoch}
    return MixedRounds(
        epoch,
        tuple(row for row in rounds if row.key in kept),
        tuple(p for p in parts if (p.policy, p.replica, p.boot, p.pair) in kept),
    )


def _sums(row: Mapping[str, Any]) -> RoundSums:
    values = {name.rstrip("_"): value for name, value in row.items()}
    return RoundSums(**values)
