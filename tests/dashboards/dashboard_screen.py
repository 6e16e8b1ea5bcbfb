"""A store as a dashboard sees it."""

from __future__ import annotations

from grafana_macros import ALL, expanded

EVERYTHING = {"replica": ALL, "class": ALL}


class Screen:
    """A store as a dashboard sees it: runs a panel's query over a range of time."""

    def __init__(self, store, begin_ns):
        self.store, self.begin_ns = store, begin_ns

    def show(self, sql, **chosen):
        """Rows of a query, with everything chosen unless said otherwise."""
        return self.store.rows(self.expanded(sql, chosen))

    def schema(self, sql):
        """(name, ClickHouse type) of each column of a query."""
        described = self.store.rows(f"DESCRIBE ({self.expanded(sql, {})})")
        return [(column["name"], column["type"]) for column in described]

    def expanded(self, sql, chosen):
        """The text that reaches the store."""
        hour = 3600 * 10**9
        end_ns = self.begin_ns + hour
        return expanded(sql, self.begin_ns - hour, end_ns, {**EVERYTHING, **chosen})
