"""Read the autopilot's evidence from the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specscope import queries
from specscope.evaluate.experiment.blocks import BASELINE
from specscope.evaluate.experiment.paired import paired
from specscope.evidence.read import Evidence, read
from specscope.gate.autopilot import Sight, drifted_arm
from specscope.gate.recommend import Recommendation, recommendation
from specscope.gate.standings import incumbent_of
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
    """Read the replicas of the last hour, their epoch, and the verdicts so far.

    now: ns since 1970. Raises StoreError if the store cannot be read.
    """
    replicas, epoch = serving(store, now)
    if state.first > policies[-1].number:
        return Sight(replicas, epoch)
    return sight_of(read(store, state.since), state, table, replicas, epoch, now)


def sight_of(
    evidence: Evidence, state: AutopilotState, table: GateTable, replicas: int, epoch: str, now: int
) -> Sight:
    """Build the sight from evidence. During a rest it only checks for changes."""
    own = evidence_since(evidence, state)
    if not own.blocks:
        return Sight(replicas, epoch)
    advice = None if state.rests else _advice(own, state, epoch, now)
    if advice is None or advice.experiment is None or advice.experiment.paired is None:
        pairs = paired(own.blocks, own.parts, own.experiments[-1].design).pairs
    else:
        pairs = advice.experiment.paired.pairs
    incumbent = incumbent_of(table)
    drifted = drifted_arm(pairs, [BASELINE, *(arm.name for arm in state.arms)], incumbent)
    moved = state.epoch and epoch and epoch != state.epoch
    if advice is None and (drifted or moved):
        advice = _advice(own, state, epoch, now)
    return Sight(replicas, epoch, own.blocks, advice, drifted)


def _advice(own: Evidence, state: AutopilotState, epoch: str, now: int) -> Recommendation:
    """The recommended gate. Causes of losses are diagnosed only if the table changes."""
    first = recommendation(own, now=now, epoch=state.epoch or epoch or None, explained=False)
    if not first.changes:
        return first
    return recommendation(own, now=now, epoch=state.epoch or epoch or None)


def evidence_since(evidence: Evidence, state: AutopilotState) -> Evidence:
    """Keep only evidence under the autopilot since its last restart."""
    return replace(
        evidence,
        blocks=tuple(one for one in evidence.blocks if one.policy >= state.first),
        parts=tuple(one for one in evidence.parts if one.policy >= state.first),
        classes=tuple(one for one in evidence.classes if one.policy >= state.first),
        crossings=(),
    )


def serving(store: Store, now: int) -> tuple[int, str]:
    """Number of replicas with rounds in the last hour, and the epoch of the newest one."""
    hour = since_condition("started_at", now - HOUR_NS)
    names = {row["replica"] for row in store.rows(queries.policies_followed(hour))}
    boots = [boot for boot in store.rows(queries.boots()) if boot["replica"] in names]
    newest = max(boots, key=lambda boot: boot["started_at"], default=None)
    return len(names), "" if newest is None else str(newest["epoch"])
