"""What the autopilot looks at, read from the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specscope import queries
from specscope.evaluate.experiment.paired import paired
from specscope.evidence.read import Evidence, read
from specscope.gate.autopilot import Sight, drifted_arm, incumbent_of
from specscope.gate.recommend import recommendation
from specscope.policy.autopilot import AutopilotState
from specscope.policy.stored import StoredPolicy
from specscope.policy.table import GateTable
from specscope.queries.period import since_condition
from specscope.store.connection import Store

HOUR_NS = 3600 * 10**9


def look(
    store: Store,
    state: AutopilotState,
    policies: Sequence[StoredPolicy],
    table: GateTable,
    now: int,
) -> Sight:
    """Replicas that served within the hour, what they run, and the verdicts so far.

    now: ns since 1970. Raises StoreError if the store cannot be read.
    """
    replicas, epoch = serving(store, now)
    if state.rests or state.first > policies[-1].number:
        return Sight(replicas, epoch)
    return sight_of(read(store, state.since), state, table, replicas, epoch, now)


def sight_of(
    evidence: Evidence, state: AutopilotState, table: GateTable, replicas: int, epoch: str, now: int
) -> Sight:
    """The same from evidence that was read."""
    own = evidence_since(evidence, state)
    if not own.blocks:
        return Sight(replicas, epoch)
    pairs = paired(own.blocks, own.parts, "switchback").pairs
    names = [arm.name for arm in state.arms]
    return Sight(
        replicas=replicas,
        epoch=epoch,
        blocks=own.blocks,
        advice=recommendation(own, now=now, epoch=state.epoch or epoch or None),
        drifted=drifted_arm(pairs, names, incumbent_of(table)),
    )


def evidence_since(evidence: Evidence, state: AutopilotState) -> Evidence:
    """Only what ran under the autopilot since its last fresh start."""
    return replace(
        evidence,
        blocks=tuple(one for one in evidence.blocks if one.policy >= state.first),
        parts=tuple(one for one in evidence.parts if one.policy >= state.first),
        classes=tuple(one for one in evidence.classes if one.policy >= state.first),
        crossings=(),
    )


def serving(store: Store, now: int) -> tuple[int, str]:
    """How many replicas ran rounds within the hour, and the epoch of the one that started last."""
    hour = since_condition("started_at", now - HOUR_NS)
    names = {row["replica"] for row in store.rows(queries.policies_followed(hour))}
    boots = [boot for boot in store.rows(queries.boots()) if boot["replica"] in names]
    newest = max(boots, key=lambda boot: boot["started_at"], default=None)
    return len(names), "" if newest is None else str(newest["epoch"])
