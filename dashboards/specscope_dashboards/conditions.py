"""Which rows a panel sees: Grafana's range of time, and what is chosen above the dashboard.

The macros are those of Grafana's ClickHouse data source; with "All" chosen a choice is no
condition at all, so it costs nothing and an empty list cannot break the query.
"""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import DatasourceVariable, QueryVariable
from grafana_foundation_sdk.models.dashboard import VariableOption, VariableRefresh

from specscope import queries
from specscope_dashboards.target import PLUGIN, SOURCE


def during(column: str, *chosen: str) -> str:
    """Rows whose time lies in the range shown, and whose columns are among those chosen."""
    choices = [
        f"$__conditionalAll({name} IN (${{{name}:singlequote}}), ${name})" for name in chosen
    ]
    return " AND ".join([f"$__timeFilter({column})", *choices])


def source() -> DatasourceVariable:
    """Which ClickHouse data source the whole dashboard reads."""
    return DatasourceVariable("datasource").label("Data source").type(PLUGIN)


def replica() -> QueryVariable:
    """Which replicas are shown."""
    return _choice("replica", "Replica", queries.replicas(during("minute")))


def class_() -> QueryVariable:
    """Which classes are shown, where a panel knows them."""
    return _choice("class", "Class", queries.classes(during("minute")))


def _choice(name: str, label: str, query: str) -> QueryVariable:
    return (
        QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query(query)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(True)
        .include_all(True)
        .current(VariableOption(selected=True, text="All", value="$__all"))
    )
