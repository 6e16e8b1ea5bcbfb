"""A real embedded store with traffic whose numbers are known, and an empty one."""

from __future__ import annotations

import pytest
import stored_traffic
from dashboard_screen import Screen

from specscope.service.assessor import Assessor
from specscope.store.connection import Store
from specscope.store.migrate import migrate
from specscope.store.roll import roll


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with Store.open(f"chdb://{tmp_path_factory.mktemp('dashboards') / 'store'}") as opened:
        yield opened


@pytest.fixture(scope="module")
def screen(store):
    begin_ns = stored_traffic.begin()
    migrate(store)
    stored_traffic.fill(store, begin_ns)
    roll(store, everything=True)
    Assessor(store).tick()
    return Screen(store, begin_ns)


@pytest.fixture(scope="module")
def blank(store):
    """The same engine, another database, no rows."""
    other = store.session()
    other.command("CREATE DATABASE nothing")
    other.client.database = other.database = "nothing"
    migrate(other)
    return Screen(other, stored_traffic.begin())
