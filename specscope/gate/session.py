"""What the gate's commands share: the store's evidence, the table in force, a recommendation."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from specscope.evaluate.experiment.blocks import BlockClass
from specscope.evaluate.experiment.checks import Design
from specscope.evaluate.verdict.choice import Rules
from specscope.evaluate.verdict.crossover import judge_crossovers
from specscope.evaluate.verdict.shared_batch import judge_delays
from specscope.evaluate.verdict.untried import untried
from specscope.gate.anchor import reaches_back
from specscope.gate.evidence import Evidence, read_evidence
from specscope.gate.recommend import Recommendation, recommend
from specscope.gate.sharing import read_class_blocks, under_table
from specscope.policy.stored import (
    StoredPolicy,
    history,
    newest_with_table,
    read_policies,
    unread,
)
from specscope.policy.table import REPLAYED, GateTable
from specscope.replay.result import Result
from specscope.store.connection import Store

# How traffic reaches the blocks of a kind of policy, and whether their evidence is read while
# it grows.
DESIGNS: dict[str, tuple[Design, bool]] = {
    "cohort": ("cohort", False),
    "blocks": ("switchback", True),
}


@dataclass(frozen=True, slots=True)
class Reading:
    """A store as the gate sees it."""

    policies: tuple[StoredPolicy, ...]
    evidence: Evidence
    design: Design
    looked_at_often: bool
    table: GateTable
    notes: tuple[str, ...]
    shared: tuple[BlockClass, ...] = ()
    """Classes of shared batches, in blocks under the table in force."""


def read(
    store: Store,
    *,
    default_k: int | None = None,
    epoch: str | None = None,
    since: int = 0,
    by_class: bool = True,
) -> Reading:
    """Read policies, and evidence that concerns a time since, ns since 1970.

    default_k: in force where no policy is; None for 0. by_class: with how long each class waited,
    which only an allowance asks for.

    Blocks of one kind of experiment are used, that of the newest policy which ran any.
    """
    policies = read_policies(store)
    evidence = read_evidence(store, epoch, since)
    kinds = {policy.number: policy.kind for policy in policies}
    ran = sorted({block.policy for block in evidence.blocks})
    kind = next((kinds[n] for n in reversed(ran) if kinds.get(n) in DESIGNS), "cohort")
    kept = tuple(b for b in evidence.blocks if kinds.get(b.policy, kind) == kind)
    notes = []
    if len(kept) < len(evidence.blocks):
        notes.append(f"{len(evidence.blocks) - len(kept)} blocks of other experiments left out")
    notes += [*reaches_back(kept, since), *unread(policies)]
    in_force = newest_with_table(policies)
    table = GateTable((), default_k or 0) if in_force is None else in_force.table
    design, often = DESIGNS[kind]
    waited = read_class_blocks(store, evidence.epoch, since) if by_class else []
    return Reading(
        policies=tuple(policies),
        evidence=replace(evidence, blocks=kept),
        design=design,
        looked_at_often=often,
        table=table,
        notes=tuple(notes),
        shared=tuple(under_table(waited, policies, table)),
    )


def recommendation(
    reading: Reading,
    *,
    closed_loop: bool = False,
    allowances: Mapping[str, float] | None = None,
    now: int | None = None,
    replays: Sequence[Result] = (),
) -> Recommendation:
    """What should be in force, from what was read, and from replays that were accepted.

    allowances: what the 95th percentile of a class's time per output token may be. [ms]
    """
    evidence = reading.evidence
    design: Design = "closed_loop" if closed_loop else reading.design
    rules = Rules(looked_at_often=reading.looked_at_often, tpot_allowance_ms=allowances)
    found = recommend(
        evidence,
        reading.table,
        history(reading.policies),
        now=time.time_ns() if now is None else now,
        decision=rules,
        design=design,
        replays=replays,
    )
    return replace(
        found,
        notes=(
            *found.notes,
            *reading.notes,
            *_caveats(reading, found),
            *_never_served(reading, allowances or {}),
        ),
        delays=tuple(judge_delays(reading.shared, rules)),
        untried=tuple(untried(evidence.blocks, evidence.parts, found.verdicts, design)),
        of_hour=evidence.of_hour,
        crossovers=tuple(
            one.verdict for one in judge_crossovers(evidence.crossings, closed_loop=closed_loop)
        ),
    )


def _never_served(reading: Reading, allowances: Mapping[str, float]) -> list[str]:
    """A note for each allowance of a class that nothing was measured of, as of one misspelt."""
    served = {name for block in reading.evidence.blocks for name in block.classes}
    served |= {row.class_ for row in reading.shared}
    return [
        f"nothing was held against the allowance of {name}: no block served that class"
        for name in sorted(set(allowances) - served)
    ]


def _caveats(reading: Reading, found: Recommendation) -> Sequence[str]:
    caveats = []
    grades = {move.place.verdict.grade for move in found.changes}
    if reading.design == "cohort" and grades - {REPLAYED}:
        caveats.append(
            "these classes ran alone: in a shared batch compare `current` with one cell changed "
            "before all replicas follow"
        )
    if REPLAYED in grades:
        caveats.append(
            "cells marked `replayed` rest on a replay: let `--hold-out` blocks confirm them"
        )
    return caveats
