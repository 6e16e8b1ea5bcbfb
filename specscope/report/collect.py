"""From a store's rollups to a report's values: read, decide, and put into words.

Only block rollups decide; everything else says what was measured and what was lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from specscope import queries
from specscope.evaluate.blocks import BASELINE, BlockPart, BlockTime, pairs_of
from specscope.evaluate.choice import Rules
from specscope.evaluate.lossless import DigestCheck, compare_digests
from specscope.evaluate.switch import Story, fleet_verdict, tell
from specscope.evaluate.verdicts import Verdict, by_segment, decide
from specscope.gate.evidence import read_blocks
from specscope.gate.policies import read_policies
from specscope.gate.session import DESIGNS
from specscope.period import since_condition
from specscope.report import model
from specscope.report.views import headline, missing, segment_row, story_row
from specscope.store import Store
from specscope_hook.records import LOSS_REASONS


def collect(
    store: Store,
    *,
    title: str,
    since: int = 0,
    load_names: Mapping[str, str] | None = None,
    rules: Rules | None = None,
    notes: Sequence[str] = (),
) -> model.Report:
    """A report on what began since a time, ns since 1970.

    load_names: words for the load buckets of an experiment whose loads have names.
    Raises StoreError where the store cannot be read.
    """
    names = load_names or {}
    blocks, parts = read_blocks(store, since_condition("first_at", since))
    verdicts, stories = _judge(store, blocks, parts, rules or Rules())
    fleet = fleet_verdict(verdicts)
    pairs = by_segment(pairs_of(blocks, parts))
    boots = store.rows(queries.boots(since_condition("started_at", since)))
    digests = _digests(store, since)
    return model.Report(
        title=title,
        created_at=datetime.now(UTC),
        since=_moment(min((block.first_at for block in blocks), default=None)),
        until=_moment(max((block.last_at for block in blocks), default=None)),
        headline=headline(verdicts, fleet),
        global_action=fleet.action,
        still_needed=missing(verdicts, names),
        segments=[segment_row(v, pairs[v.epoch, v.segment], names) for v in verdicts],
        stories=[story_row(story, names) for story in stories],
        replicas=[_replica(boot) for boot in boots],
        losses=[
            _loss(row) for row in store.rows(queries.losses(since_condition("lost_at", since)))
        ],
        accounting=_accounting(store, since),
        outputs_compared=digests.compared,
        outputs_differing=digests.differing,
        notes=list(notes),
    )


def _judge(
    store: Store, blocks: Sequence[BlockTime], parts: Sequence[BlockPart], rules: Rules
) -> tuple[list[Verdict], list[Story]]:
    """Verdicts and stories of each kind of experiment, by the design that it ran under."""
    kinds = {policy.number: policy.kind for policy in read_policies(store)}
    verdicts, stories = [], []
    for kind, (design, often) in DESIGNS.items():
        mine = [block for block in blocks if kinds.get(block.policy, "cohort") == kind]
        looked = replace(rules, looked_at_often=often)
        verdicts += decide(mine, parts, looked, design)
        stories += tell(mine, parts, looked, design)
    return verdicts, stories


def _digests(store: Store, since: int) -> DigestCheck:
    """Outputs of the same request in several arms; where sampling is coupled they are equal."""
    outputs: dict[object, dict[str, int]] = {}
    for row in store.rows(queries.outputs(since_condition("admitted_at", since))):
        if row["session"] is not None and row["digest"] is not None:
            key = row["replica"], row["boot"], row["pair"], row["session"]
            outputs.setdefault(key, {})[row["arm"]] = row["digest"]
    return compare_digests(outputs, BASELINE)


def _accounting(store: Store, since: int) -> model.Accounting:
    rows = store.rows(queries.reconciliation(since_condition("stored_at", since)))
    return model.Accounting(
        recorded=sum(row["recorded"] for row in rows),
        stored=sum(row["rounds"] + row["requests"] for row in rows),
        lost=sum(row["lost"] for row in rows),
    )


def _replica(boot: Mapping[str, Any]) -> model.Replica:
    return model.Replica(
        replica=boot["replica"],
        engine=f"{boot['engine']} {boot['engine_version']}",
        target=boot["target"],
        draft=boot["draft"],
        device=boot["gpu_type"] or f"CPU of {boot['host']}",
        started_at=boot["started_at"],
    )


def _loss(row: Mapping[str, Any]) -> model.LossRow:
    return model.LossRow(
        replica=row["replica"],
        table=row["table"],
        reason=row["reason"],
        count=row["count"],
        meaning=LOSS_REASONS.get(row["reason"], "not a reason that this version knows"),
    )


def _moment(ns: int | None) -> datetime | None:
    return None if ns is None else datetime.fromtimestamp(ns / 1e9, UTC)
