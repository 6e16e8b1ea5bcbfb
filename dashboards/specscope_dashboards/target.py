"""A query of Grafana's ClickHouse data source: the SDK ships no builder for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models.dashboard import DataSourceRef

PLUGIN = "grafana-clickhouse-datasource"
SOURCE = DataSourceRef(type_val=PLUGIN, uid="${datasource}")  # chosen on the dashboard itself

Shape = Literal["timeseries", "table"]
FORMATS = {"timeseries": 0, "table": 1}


@dataclass(frozen=True, slots=True)
class ClickHouseQuery(Dataquery):
    """One SQL text and how its rows are read: as series over time, or as a table."""

    sql: str
    shape: Shape
    ref_id: str = "A"

    def to_json(self) -> dict[str, object]:
        return {
            "refId": self.ref_id,
            "datasource": SOURCE,
            "editorType": "sql",
            "queryType": self.shape,
            "format": FORMATS[self.shape],
            "rawSql": self.sql,
        }


@dataclass(frozen=True, slots=True)
class Target(Builder[Dataquery]):
    """What a panel takes: it wants builders."""

    query: ClickHouseQuery

    def build(self) -> ClickHouseQuery:
        return self.query
