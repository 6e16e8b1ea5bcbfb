"""What a roll reads to find cells that rounds have left does not grow with the rollups' age."""

from __future__ import annotations

import time

import chdb
import pytest

from specscope.store import block_sql, rollup_sql
from specscope.store.connection import Store
from specscope.store.migrate import migrate
from specscope.store.rollups import VERSION_BASE

GRANULE = 8192  # rows that the engine reads at least
HOUR = 3600 * 10**9
REPLICAS = 50


def rows_read(path, statement, params):
    """How many rows the engine reads for the SELECT of an INSERT."""
    connection = chdb.connect(f"{path}/store")
    connection.query("USE specscope")
    texts = {name: as_text(value) for name, value in params.items()}
    select = statement[statement.index("SELECT") :]
    read = connection.query(select, "Null", params=texts).storage_rows_read()
    connection.close()
    return read


def as_text(value):
    return str(value) if isinstance(value, list) else value


@pytest.mark.parametrize("hours", [2, 24 * 365])
def test_an_hour_reads_its_own_cells(tmp_path, hours):
    with Store.open(f"chdb://{tmp_path}/store") as store:
        migrate(store)
        store.command(
            "INSERT INTO hour (hour, epoch, class, k, request_rounds, version) "
            "SELECT toDateTime64(toStartOfHour(now()), 9) - toIntervalHour(intDiv(number, 50)), "
            f"'e', toString(number % 50), 4, 9, {VERSION_BASE} FROM numbers({hours} * 50) "
            "SETTINGS max_partitions_per_insert_block = 0"
        )
        now = time.time_ns()
        begin = now - now % HOUR
        span = {"from": begin, "to": begin + HOUR}

    assert 0 < rows_read(tmp_path, rollup_sql.HOUR_LEFT, span) <= 2 * GRANULE


@pytest.mark.parametrize("pairs", [2, 4000])
def test_blocks_read_those_of_their_own_replicas(tmp_path, pairs):
    with Store.open(f"chdb://{tmp_path}/store") as store:
        migrate(store)
        store.command(
            "INSERT INTO boot (replica, boot, epoch) "
            f"SELECT toString(number), 'b', 'e' FROM numbers({REPLICAS})"
        )
        store.command(
            "INSERT INTO block_time (epoch, policy, replica, boot, pair, arm, rounds, version) "
            f"SELECT 'e', 7, toString(number % {REPLICAS}), 'b', intDiv(number, {REPLICAS}), 'k4', "
            f"9, {VERSION_BASE} FROM numbers({pairs} * {REPLICAS})"
        )
    chosen = {
        "policies": [7], "replicas": ["3"], "boots": ["b"], "pairs": [pairs - 1], "arms": ["k4"],
    }  # fmt: skip

    read = rows_read(tmp_path, block_sql.BLOCK_LEFT[0], chosen)

    assert 0 < read <= 4 * GRANULE
