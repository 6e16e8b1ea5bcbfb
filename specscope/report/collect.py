"""From a store's rollups to a report's values: read, decide, and put into words.

Only block rollups decide a verdict. All other tables describe the measurements and the losses.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from specscope import queries
from specscope.assess import assess_in_force
from specscope.evaluate.experiment.blocks import BlockTime
from specscope.evaluate.outputs.copies import worst
from specscope.evaluate.verdict import words
from specscope.evaluate.verdict.fleet import fleet_verdict, segment_names
from specscope.evidence.past import read_past
from specscope.evidence.read import read
from specscope.gate.recommend import recommend
from specscope.policy.stored import history
from specscope.queries.period import since_condition
from specscope.report import model
from specscope.report.actions import change_rows, how, tokens_a_week
from specscope.report.past import (
    WEEK_NS,
    WEEKS,
    event_rows,
    kept_replay_rows,
    promise_rows,
    trend_rows,
)
from specscope.report.quality import Records, boots_of, device_rows
from specscope.report.unhooked import engines_in_words
from specscope.report.views import (
    fleet_row,
    headline,
    output_row,
    segment_row,
    story_row,
    turned_around,
    untried_row,
)
from specscope.store.buckets import LOAD
from specscope.store.connection import Store

IN_FORCE_UNKNOWN = (
    "no table is in force, so changes are relative to target-only; give the draft length that the "
    "engines use without specscope as --default-k"
)

STEPS = 4  # read, judge, recommend, look up everything else


def collect(
    store: Store,
    *,
    title: str,
    since: int = 0,
    load_names: Mapping[str, str] | None = None,
    default_k: int | None = None,
    allowances: Mapping[str, float] | None = None,
    notes: Sequence[str] = (),
    closed_loop: bool = False,
    price_per_hour: float | None = None,
    progress: Callable[[int], object] = lambda _: None,
) -> model.Report:
    """Collect the report on all blocks that began since a time in ns since 1970.

    Verdicts on live traffic are based on their whole epoch (`period.evidence_condition`).
    load_names: names of load buckets, for an experiment that names its loads. default_k: the draft
    length in force if there is no table. allowances: see `assess.assess`. closed_loop: in every
    experiment the clients wait for their answers. price_per_hour: a replica's price, which replaces
    the prices in the boots. progress: called with each finished step, 0..STEPS.

    Raises StoreError if the store cannot be read.
    """
    names, now = load_names or {}, time.time_ns()
    progress(0)
    evidence = read(store, since)
    progress(1)
    if price_per_hour is not None:
        epochs = {boot["epoch"] for boot in evidence.boots}
        evidence = replace(evidence, of_hour=dict.fromkeys(epochs, price_per_hour))
    judged = assess_in_force(evidence, default_k, allowances, closed_loop=closed_loop)
    progress(2)
    verdicts = judged.verdicts
    called = segment_names(((v.epoch, v.segment) for v in verdicts), names)
    fleet = fleet_verdict(verdicts, names)
    blocks = [*evidence.blocks, *(b for one in evidence.crossings for b in one.blocks)]
    measured = _measured(evidence.boots, blocks, since)
    advised = recommend(judged, history(evidence.policies), now=now, default_k=default_k or 0)
    progress(3)
    records, boots = Records(store, since), boots_of(judged)
    by_class = store.rows(queries.tokens_by_class(since_condition("hour", since)))
    devices, throttling = device_rows(store, since, [boot["replica"] for boot in measured])
    past = read_past(store, now - WEEKS * WEEK_NS)
    changed = queries.events(since_condition("at", now - WEEKS * WEEK_NS))
    if advised.changes and evidence.table is None and default_k is None:
        notes = [*notes, IN_FORCE_UNKNOWN]
    progress(STEPS)
    return model.Report(
        title=title,
        created_at=datetime.now(UTC),
        since=_moment(min((block.first_at for block in blocks), default=None)),
        until=_moment(max((block.last_at for block in blocks), default=None)),
        headline=headline(verdicts, fleet),
        global_action=fleet.action,
        still_needed=[words.need(one) for one in fleet.still_needed],
        would_change=[words.change(one) for one in fleet.would_change],
        segments=[
            segment_row(
                v,
                called[v.epoch, v.segment],
                judged.of_hour,
                records.quality(boots.get((v.epoch, v.segment), ())),
            )
            for v in verdicts
        ],
        stories=[
            story_row(story, names)
            for story in sorted(judged.stories, key=lambda one: LOAD.rank(one.load or ""))
        ],
        replicas=[_replica(boot) for boot in measured],
        losses=records.losses,
        accounting=records.accounting,
        devices=devices,
        throttling=throttling,
        outputs_compared=sum(check.compared for check in judged.outputs),
        outputs_differing=sum(check.differing for check in judged.outputs),
        outputs_state=worst(judged.outputs),
        outputs=[output_row(check) for check in judged.outputs],
        untried=[untried_row(one) for one in judged.untried],
        fleet=[fleet_row(one) for one in judged.ratios],
        changes=change_rows(advised, called, tokens_a_week(by_class), _gpus(evidence.boots)),
        how=how(advised, [boot["engine"] for boot in measured]),
        promises=promise_rows(judged, past, names, now),
        trend=trend_rows(past, names),
        kept_replays=kept_replay_rows(
            store.rows(queries.replays(since_condition("assessed_at", since)))
        ),
        events=event_rows(store.rows(changed)),
        findings=turned_around(judged.ratios),
        notes=[
            *notes,
            *judged.notes,
            *unlabelled(by_class),
            *engines_in_words(store, since, measured),
        ],
    )


def _measured(
    boots: Sequence[Mapping[str, Any]], blocks: Sequence[BlockTime], since: int
) -> list[Mapping[str, Any]]:
    """Boots that ran blocks in the period or started in it. since: ns since 1970.

    Blocks that the store merged over a fleet name no boot. For these, all boots of the epoch count.
    """
    recent = [block for block in blocks if block.last_at >= since]
    ran = {(block.replica, block.boot) for block in recent}
    pooled = {block.epoch for block in recent if not block.boot}
    return [
        boot
        for boot in boots
        if (boot["replica"], boot["boot"]) in ran
        or boot["epoch"] in pooled
        or _ns(boot["started_at"]) >= since
    ]


def _gpus(boots: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Number of devices per replica, by epoch; boots without device names are left out."""
    return {boot["epoch"]: len(boot["gpu_uuids"]) for boot in boots if boot["gpu_uuids"]}


def _replica(boot: Mapping[str, Any]) -> model.ReplicaRow:
    return model.ReplicaRow(
        replica=boot["replica"],
        engine=f"{boot['engine']} {boot['engine_version']}",
        target=boot["target"],
        draft=boot["draft"],
        device=boot["gpu_type"] or f"CPU of {boot['host']}",
        started_at=boot["started_at"],
    )


def unlabelled(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence on the share of traffic that no class rule matched; empty if there is none. rows:
    those of `queries.tokens_by_class`."""
    without = sum(row["emitted"] for row in rows if row["class"] == "unlabelled")
    if not without:
        return []
    share = without / sum(row["emitted"] for row in rows)
    return [
        f"{share:.0%} of the output tokens belong to requests without a class; a verdict treats "
        "them as one class, unlabelled. Name classes with SPECSCOPE_CLASSES, or in the request."
    ]


def _moment(ns: int | None) -> datetime | None:
    return None if ns is None else datetime.fromtimestamp(ns / 1e9, UTC)


def _ns(moment: datetime) -> int:
    return int(moment.timestamp() * 1e9)
