"""specscope: pipeline. Whether what was recorded arrived, and what the numbers stand on."""

from __future__ import annotations

from grafana_foundation_sdk.builders import barchart, table, timeseries
from grafana_foundation_sdk.builders.dashboard import Dashboard

from specscope import queries
from specscope_dashboards import panels
from specscope_dashboards.conditions import during, replica
from specscope_dashboards.page import page


def dashboard() -> Dashboard:
    """From the ring to the store, and what there is on the way."""
    return (
        page("specscope-pipeline", "specscope: pipeline")
        .with_variable(replica())
        .with_row(panels.row("Did everything arrive?"))
        .with_panel(reconciliation())
        .with_panel(losses_by_minute())
        .with_panel(losses())
        .with_row(panels.row("Is it still arriving?"))
        .with_panel(stored_rows())
        .with_panel(silence())
        .with_row(panels.row("What it comes from"))
        .with_panel(boots())
        .with_panel(devices())
    )


def reconciliation() -> table.Panel:
    return panels.rows(
        "Where every record went",
        "Records that each hook numbered, and what became of them: rounds and requests in the "
        "store, and the lost. A number under `unaccounted` other than 0 is a fault of ours, once "
        "the last batches have arrived; a growing `lost` weakens what that replica says.",
        queries.reconciliation,
        during("stored_at", "replica"),
    )


def losses_by_minute() -> timeseries.Panel:
    panel = panels.series(
        "Records lost",
        "By reason. ring_full rising means that the sidecar is starved of CPU; spool_full that "
        "the service was away for longer than the disk allows; clock that a machine's time is "
        "wrong; fault that a hook detached itself, and its replica is silent from then on.",
        queries.losses_by_minute,
        during("lost_at", "replica"),
    )
    return panels.a_line_each(panel, "reason")


def losses() -> table.Panel:
    panel = panels.rows(
        "Records lost, by replica",
        "The same by replica and kind of record. One replica growing alone points at its node, "
        "all of them growing at the service or its store. An empty count is a loss of unknown "
        "size.",
        queries.losses,
        during("lost_at", "replica"),
        width=12,
    )
    return panels.in_unit(panel, "dateTimeAsIso", "last_at")


def stored_rows() -> timeseries.Panel:
    return panels.series(
        "Rows that arrive",
        "Rows stored each minute. It follows the traffic; a fall to zero with traffic there means "
        "that the uplink or the store stands still, and a peak after it that the spools drain.",
        queries.stored_rows,
        during("stored_at", "replica"),
        width=14,
    )


def silence() -> barchart.Panel:
    return panels.bars(
        "Time since the last batch",
        "Of each replica. A sidecar ships twice a second while its engine works, so more than a "
        "few seconds means an idle engine, a detached hook, or a sidecar that cannot get through.",
        queries.silence,
        during("stored_at", "replica"),
        by="replica",
        width=10,
    )


def boots() -> table.Panel:
    panel = panels.rows(
        "Starts of serving processes",
        "What each replica ran. A new epoch means other models, versions or hardware: numbers "
        "from before it say nothing about what runs now. Many starts of one replica mean that it "
        "keeps crashing.",
        queries.boots,
        during("started_at", "replica"),
    )
    panel = panels.in_unit(panel, "dateTimeAsIso", "started_at")
    return panels.only(
        panel,
        "started_at",
        "replica",
        "engine",
        "engine_version",
        "hook_version",
        "epoch",
        "target",
        "draft",
        "method",
        "k_max",
        "gpu_type",
    )


def devices() -> table.Panel:
    panel = panels.rows(
        "Device fields without a value",
        "What could not be read from a device, and why. A reason that appears after a change of "
        "driver or permissions takes the memory panels away; it does not touch the verdicts, "
        "which come from time.",
        queries.device,
        f"{during('sampled_at', 'replica')} AND device.reason != ''",
    )
    return panels.in_unit(panel, "dateTimeAsIso", "minute")
