"""A real embedded store with traffic whose numbers are known, and an empty one."""

from __future__ import annotations

import grafana_macros
import pytest
import stored_traffic
from grafana_macros import ALL

from specscope.roll import roll
from specscope.store import Store

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
        return grafana_macros.expanded(sql, self.begin_ns - hour, end_ns, {**EVERYTHING, **chosen})


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with Store.open(f"chdb://{tmp_path_factory.mktemp('dashboards') / 'store'}") as opened:
        yield opened


@pytest.fixture(scope="module")
def screen(store):
    begin_ns = stored_traffic.begin()
    store.migrate()
    stored_traffic.fill(store, begin_ns)
    roll(store, everything=True)
    return Screen(store, begin_ns)


@pytest.fixture(scope="module")
def blank(store):
    """The same engine, another database, no rows."""
    other = store.session()
    other.command("CREATE DATABASE nothing")
    other.client.database = other.database = "nothing"
    other.migrate()
    return Screen(other, stored_traffic.begin())
