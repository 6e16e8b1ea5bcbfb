"""The house style: what a panel looks like here, once. A dashboard is a list of these.

A panel takes a query function and the condition on its rows, so that its unit is the one that
the query's docstring ends with; every panel needs a description that says what a change of it
means.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from grafana_foundation_sdk.builders import barchart, common, table, timeseries
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.common import (
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
    VisibilityMode,
)

from specscope_dashboards.target import SOURCE, ClickHouseQuery, Shape, Target

Query = Callable[..., str]
AnyPanel = TypeVar("AnyPanel", timeseries.Panel, barchart.Panel, table.Panel)

WIDTH = 24  # columns of Grafana's grid
HEIGHT = 9  # rows of it, for a panel with a legend below

UNITS = {
    "1": "none",
    "share": "percentunit",
    "us": "µs",
    "ms": "ms",
    "s": "s",
    "bytes": "bytes",
    "bytes/s": "Bps",
    "rounds/s": "suffix: rounds/s",
    "tokens/s": "suffix: tokens/s",
}
"""Grafana's name of a unit; any other is written after the number."""

_UNIT = re.compile(r"\[([^\]]+)\]\s*$")


def unit(query: Query) -> str:
    """Grafana's unit of what a query returns, from the end of its docstring.

    Raises ValueError where the docstring names none.
    """
    found = _UNIT.search((query.__doc__ or "").strip().partition("\n\n")[0])
    if found is None:
        raise ValueError(f"{query.__name__} does not say its unit")
    return UNITS.get(found[1], f"suffix: {found[1]}")


def series(
    title: str, description: str, query: Query, where: str, *, width: int = 12
) -> timeseries.Panel:
    """Lines over time."""
    panel = timeseries.Panel().line_width(2).fill_opacity(6).show_points(VisibilityMode.AUTO)
    return _lined(_dressed(panel, title, description, query, where, "timeseries", width))


def stacked(
    title: str, description: str, query: Query, where: str, *, width: int = 12
) -> timeseries.Panel:
    """Parts of a whole over time."""
    panel = timeseries.Panel().line_width(1).fill_opacity(60).show_points(VisibilityMode.NEVER)
    panel = panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL).group("A"))
    return _lined(_dressed(panel, title, description, query, where, "timeseries", width))


def bars(
    title: str, description: str, query: Query, where: str, *, by: str, width: int = 12
) -> barchart.Panel:
    """A bar for each value of the column `by`, from a table."""
    panel = barchart.Panel().x_field(by).show_value(VisibilityMode.AUTO).legend(_legend())
    return _dressed(panel, title, description, query, where, "table", width)


def rows(
    title: str, description: str, query: Query, where: str, *, width: int = WIDTH
) -> table.Panel:
    """A table as it comes."""
    return _dressed(table.Panel(), title, description, query, where, "table", width)


def named(panel: AnyPanel, names: Mapping[str, str]) -> AnyPanel:
    """Name columns as a person reads them."""
    for column, name in names.items():
        panel = panel.override_by_name(
            column, [models.DynamicConfigValue(id_val="displayName", value=name)]
        )
    return panel


def in_unit(panel: AnyPanel, grafana_unit: str, *columns: str) -> AnyPanel:
    """Give some columns a unit of their own: counts beside times, say."""
    for column in columns:
        panel = panel.override_by_name(
            column, [models.DynamicConfigValue(id_val="unit", value=grafana_unit)]
        )
    return panel


def dashed(panel: timeseries.Panel, column: str) -> timeseries.Panel:
    """Draw a column as a dashed red line without fill: a limit to hold the others against."""
    looks = {
        "custom.lineStyle": {"fill": "dash", "dash": [10, 10]},
        "custom.fillOpacity": 0,
        "color": {"mode": "fixed", "fixedColor": "dark-red"},
    }
    return panel.override_by_name(
        column, [models.DynamicConfigValue(id_val=key, value=value) for key, value in looks.items()]
    )


def a_line_each(panel: timeseries.Panel, label: str) -> timeseries.Panel:
    """Name each line by one of its labels alone."""
    return panel.display_name(f"${{__field.labels.{label}}}")


def spread(panel: AnyPanel, *, columns: str, rows: str, values: str) -> AnyPanel:
    """Turn long rows into a matrix, a column for each value of `columns`."""
    options = {"columnField": columns, "rowField": rows, "valueField": values}
    return panel.with_transformation(
        models.DataTransformerConfig(id_val="groupingToMatrix", options=options)
    )


def only(panel: AnyPanel, *columns: str) -> AnyPanel:
    """Show these columns, in this order, and leave the others out."""
    order = {column: place for place, column in enumerate(columns)}
    return panel.with_transformation(
        models.DataTransformerConfig(
            id_val="filterFieldsByName", options={"include": {"names": list(columns)}}
        )
    ).with_transformation(
        models.DataTransformerConfig(id_val="organize", options={"indexByName": order})
    )


def row(title: str) -> builders.Row:
    """A heading between panels."""
    return builders.Row(title)


def _dressed(
    panel: AnyPanel,
    title: str,
    description: str,
    query: Query,
    where: str,
    shape: Shape,
    width: int,
) -> AnyPanel:
    grafana_unit = unit(query)
    if grafana_unit == "percentunit":
        panel = panel.min(0).max(1)
    return (
        panel.title(title)
        .description(description)
        .datasource(SOURCE)
        .with_target(Target(ClickHouseQuery(query(where), shape)))
        .unit(grafana_unit)
        .height(HEIGHT)
        .span(width)
        .no_value("nothing measured in this time")
    )


def _lined(panel: timeseries.Panel) -> timeseries.Panel:
    tooltip = common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING)
    return panel.legend(_legend()).tooltip(tooltip)


def _legend() -> common.VizLegendOptions:
    legend = common.VizLegendOptions().display_mode(LegendDisplayMode.LIST)
    return legend.placement(LegendPlacement.BOTTOM).show_legend(True)
