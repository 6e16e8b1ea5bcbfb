"""Rows that were acknowledged and are gone become losses at the next start."""

from __future__ import annotations

from pathlib import Path

import pytest
from store.test_roll import put
from store.traffic import Traffic

from specscope import queries
from specscope.store.connection import Store
from specscope.store.metadata import broken_parts
from specscope.store.migrate import migrate
from specscope.store.recount import account


def parts(path: Path, table: str) -> list[Path]:
    return sorted((path / "data" / "specscope" / table).glob("2*_*_*_*"))


def broken(path: Path, table: str) -> None:
    """As a full disk leaves a part: the engine sets it aside at its next start."""
    part = parts(path, table)[0]
    for file in part.iterdir():
        file.write_bytes(b"3" if file.name == "count.txt" else b"")


def opened(tmp_path):
    return Store.open(f"chdb://{tmp_path}/store")


def losses(store):
    return store.rows(
        "SELECT replica, boot, table, first_seq, count FROM loss FINAL WHERE reason = 'store' "
        "ORDER BY table, first_seq"
    )


@pytest.mark.parametrize("table", ["round", "request_part"])
@pytest.mark.parametrize("how", ["set aside", "gone"])
def test_batches_whose_part_is_lost_are_losses_and_nothing_is_unaccounted(tmp_path, table, how):
    traffic = Traffic(seed=1)
    with opened(tmp_path) as store:
        migrate(store)
        put(store, traffic)
        kept = store.rows(f"SELECT count() AS n FROM {table} FINAL")[0]["n"]
        assert account(store) == 0
    if how == "set aside":
        broken(tmp_path / "store", table)
    else:  # as a power loss leaves a folder that was not synced
        part = parts(tmp_path / "store", table)[0]
        part.rename(tmp_path / "away")

    with opened(tmp_path) as store:
        held = store.rows(f"SELECT count() AS n FROM {table} FINAL")[0]["n"]
        assert held < kept
        before = store.rows(queries.reconciliation())[0]["unaccounted"]
        assert account(store) == kept - held
        assert account(store) == 0
        found = losses(store)
        (row,) = store.rows(queries.reconciliation())

    assert sum(loss["count"] for loss in found) == kept - held
    assert {(loss["replica"], loss["boot"], loss["table"]) for loss in found} == {
        (traffic.replica, traffic.boot, table)
    }
    assert before == (kept - held if table == "round" else 0)
    assert row["unaccounted"] == 0
    assert not broken_parts(tmp_path / "store")


def test_a_lost_part_of_requests_is_a_loss_of_its_own_count(tmp_path):
    with opened(tmp_path) as store:
        migrate(store)
        put(store, Traffic(seed=2))
    broken(tmp_path / "store", "request")

    with opened(tmp_path) as store:
        assert account(store) == 3
        assert account(store) == 0
        (loss,) = losses(store)

    assert (loss["table"], loss["count"], loss["first_seq"]) == ("request", 3, None)


def test_writing_through_is_a_setting_of_every_raw_table(tmp_path):
    def synced(store):
        rows = store.rows(
            "SELECT name FROM system.tables WHERE database = 'specscope' "
            "AND create_table_query LIKE '%fsync_after_insert = 1%'"
        )
        return {row["name"] for row in rows}

    with opened(tmp_path) as store:
        migrate(store, synced=True)
        on, again = synced(store), migrate(store, synced=True)
        migrate(store, synced=False)
        off = synced(store)

    assert {"round", "request_part", "request", "loss", "batch", "boot"} <= on
    assert "minute" not in on
    assert (again, off) == ([], set())


def test_a_batch_without_records_takes_no_rows_of_the_one_that_begins_where_it_does(tmp_path):
    """A sidecar ships the Boot alone before the first round, and losses between rounds."""
    with opened(tmp_path) as store:
        migrate(store)
        put(store, Traffic(seed=1))
        store.command(
            "INSERT INTO batch SELECT * EXCEPT offset REPLACE (number + offset AS number, "
            "first_seq AS next_seq, 0 AS rounds, 0 AS request_parts, 0 AS requests, "
            "NULL AS first_at, NULL AS last_at) "
            "FROM batch FINAL ARRAY JOIN [100000, 200000] AS offset"
        )

        (row,) = store.rows(queries.reconciliation())

        assert row["unaccounted"] == 0
        assert account(store) == 0
