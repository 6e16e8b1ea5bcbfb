"""A store of the version before comes to this one without losing a row, cut off or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from store.traffic import table

from specscope.errors import StoreError
from specscope.store import ledger
from specscope.store.connection import Store
from specscope.store.migrate import migrate
from specscope.store.rebuild import FORMER_KEYS
from specscope.store.tables import EMBEDDED_SETTINGS, LAYOUTS, sorting_key

STORED = Path(__file__).parents[1] / "data" / "versions" / "store"
TEXTS = "SELECT name, create_table_query FROM system.tables WHERE database = currentDatabase()"
ROWS = {path.stem: path for path in STORED.glob("*.parquet")}


@pytest.fixture
def before(tmp_path):
    """A store as a demonstration of the version before left it."""
    with Store.open(f"chdb://{tmp_path}/store") as store:
        for statement in (STORED / "tables.sql").read_text().split(";\n\n"):
            store.command(statement.strip().rstrip(";"))
        for name, path in ROWS.items():
            store.insert(name, pq.read_table(path))
        yield store


def rows(store: Store, name: str) -> list[dict[str, Any]]:
    """All rows of a table of the version before, by the columns that it had."""
    columns = ", ".join(f"`{column}`" for column in pq.read_schema(ROWS[name]).names)
    return store.query(f"SELECT {columns} FROM `{name}` FINAL ORDER BY ALL").to_pylist()


def everything(store: Store) -> dict[str, list[dict[str, Any]]]:
    return {name: rows(store, name) for name in ROWS}


def keys(store: Store) -> dict[str, str]:
    found = store.rows(
        "SELECT name, sorting_key FROM system.tables WHERE database = currentDatabase()"
    )
    return {row["name"]: row["sorting_key"] for row in found}


def test_every_row_is_there_as_it_was(before):
    had = everything(before)

    migrate(before)

    assert everything(before) == had
    assert {len(had[name]) > 0 for name in ("round", "request", "block_time", "block_part")} == {
        True
    }
    assert {name: key for name, key in keys(before).items() if name in LAYOUTS} == {
        name: sorting_key(name) for name in LAYOUTS
    }
    assert migrate(before) == []


def test_a_table_of_an_earlier_version_gets_the_settings_that_nobody_has_set(before):
    before.command("ALTER TABLE batch MODIFY SETTING merge_selector_base = 7")

    migrate(before)

    texts = {row["name"]: row["create_table_query"] for row in before.rows(TEXTS)}
    wanted = EMBEDDED_SETTINGS.items()
    assert "merge_selector_base = 7" in texts["batch"]  # the operator's own
    assert [
        (name, setting)
        for name in LAYOUTS
        for setting, value in wanted
        if f"{setting} = {value}" not in texts[name]
    ] == [("batch", "merge_selector_base")]


def test_one_thread_removes_a_hundred_parts(store):
    store.command("SYSTEM STOP MERGES position")
    for number in range(120):
        ledger.write(store, ledger.STORED, {ledger.Source("r", "b"): ledger.Position(number, 0)})
    threads = len(list(Path("/proc/self/task").iterdir()))

    store.command("DROP TABLE position SYNC")

    assert len(list(Path("/proc/self/task").iterdir())) < threads + 50  # 128 in the engine's way


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE `request_part`",
        "DROP TABLE IF EXISTS `request__former`",
        "CREATE TABLE IF NOT EXISTS `loss__former`",
        "EXCHANGE TABLES `request`",
        "INSERT INTO `request`",
        "DROP TABLE `request__former`",
        "EXCHANGE TABLES `hour`",
        "INSERT INTO `hour`",
    ],
)
def test_a_migration_that_is_cut_off_goes_on_where_it_was(before, monkeypatch, statement):
    had, command = everything(before), Store.command

    def dies(self, sql, *arguments):
        if sql.startswith(statement):
            raise StoreError("cut off")
        command(self, sql, *arguments)

    monkeypatch.setattr(Store, "command", dies)
    with pytest.raises(StoreError, match="cut off"):
        migrate(before)
    monkeypatch.undo()

    migrate(before)

    assert everything(before) == had
    assert not [name for name in keys(before) if name.endswith("__former")]
    assert migrate(before) == []


def test_what_others_insert_while_rows_are_copied_is_kept(before, monkeypatch):
    had, command = rows(before, "request"), Store.command
    late = {**had[0], "request": 12345, "seq": 10**6}

    def inserts_meanwhile(self, sql, *arguments):
        if sql.startswith("INSERT INTO `request`"):
            before.insert("request", table("request", [late]))
        command(self, sql, *arguments)

    monkeypatch.setattr(Store, "command", inserts_meanwhile)
    migrate(before)

    assert len(rows(before, "request")) == len(had) + 1


def test_a_column_of_a_newer_version_survives_a_rebuild(before):
    before.command("ALTER TABLE request ADD COLUMN later UInt8 DEFAULT 5")

    migrate(before)

    assert before.rows("SELECT DISTINCT later FROM request") == [{"later": 5}]


def test_an_id_that_comes_again_within_the_hour_is_another_request(store):
    row = pq.read_table(ROWS["request"]).to_pylist()[0]
    again = {**row, "admitted_at": row["admitted_at"].value + 10**9, "seq": row["seq"] + 1}
    for each in (row, again, again):
        store.insert("request", table("request", [each]))

    assert store.rows("SELECT count() AS n FROM request FINAL") == [{"n": 2}]


def test_losses_of_two_batches_without_records_are_two(store):
    loss = {"replica": "r", "boot": "b", "lost_at": 1, "table": "device", "reason": "spool_full",
            "first_seq": 9, "count": 3, "detail": ""}  # fmt: skip
    for number in (4, 5, 5):
        store.insert("loss", table("loss", [loss | {"number": number}]))

    assert store.rows("SELECT count() AS n, sum(count) AS lost FROM loss FINAL") == [
        {"n": 2, "lost": 6}
    ]


@pytest.mark.parametrize("name", FORMER_KEYS)
def test_a_new_key_tells_apart_all_that_the_former_one_did(name):
    now = sorting_key(name)

    assert all(all(part in now for part in former.split(", ")) for former in FORMER_KEYS[name])
