"""What every dashboard has in common: range, refresh, source, and the way to the others."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard, DashboardLink
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync, DashboardLinkType

from specscope_dashboards.conditions import source

TAG = "specscope"


def page(uid: str, title: str) -> Dashboard:
    """An empty dashboard in the house style."""
    others = (
        DashboardLink("specscope")
        .type(DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .keep_time(True)
        .include_vars(True)
    )
    return (
        Dashboard(title)
        .uid(uid)
        .tags([TAG])
        .time("now-6h", "now")
        .timezone("browser")
        .refresh("1m")  # rollups close a minute; faster would ask for the same again
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .link(others)
        .with_variable(source())
    )
