from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from store.traffic import Traffic

from specscope import queries
from specscope.errors import SchemaDrift, StoreBusy, StoreError, UsageError
from specscope.store.connection import Store, error_code
from specscope.store.migrate import migrate
from specscope.store.tables import LAYOUTS, RECORDS, column_type, create_on_cluster, sorting_key
from specscope_agent.schemas import schema
from specscope_hook.columns import columns, stored_name
from specscope_hook.records import TABLES

OWN = """
import sys, time
from specscope.store.connection import Store
store = Store.open(sys.argv[1])
store.owner.publish("http://127.0.0.1:1234")
print("owned", flush=True)
time.sleep(600)
"""


def columns_of(store: Store, table: str) -> list[tuple[str, str, str]]:
    rows = store.rows(
        "SELECT name, type, comment FROM system.columns "
        "WHERE database = {d:String} AND table = {t:String} ORDER BY position",
        {"d": store.database, "t": table},
    )
    return [(row["name"], row["type"], row["comment"]) for row in rows]


def test_a_table_has_its_record_s_columns_types_units_and_meanings(store):
    expected = {
        table: [
            (stored_name(c.name), column_type(c), f"{c.meaning} [{c.unit}]")
            for c in columns(record)
        ]
        for table, record in RECORDS.items()
    }

    assert {table: columns_of(store, table) for table in RECORDS} == expected


def test_every_record_that_is_stored_has_a_layout():
    assert set(TABLES) <= set(LAYOUTS) == set(RECORDS)


def test_a_table_replaces_rows_by_the_key_that_its_layout_says(store):
    rows = store.rows(
        "SELECT name, engine, sorting_key FROM system.tables WHERE database = {d:String}",
        {"d": store.database},
    )

    assert {row["engine"] for row in rows} == {"ReplacingMergeTree"}
    assert {row["name"]: row["sorting_key"] for row in rows} == {
        table: sorting_key(table) for table in LAYOUTS
    }


def test_migrating_twice_changes_nothing(store):
    assert migrate(store) == []


def test_a_missing_column_is_added_where_it_is_declared(store):
    before = columns_of(store, "round")
    store.command("ALTER TABLE round DROP COLUMN idle_us")

    done = migrate(store)

    assert len(done) == 1
    assert "ADD COLUMN `idle_us`" in done[0]
    assert columns_of(store, "round") == before


def test_a_column_of_another_type_is_drift_and_nothing_is_changed(store):
    store.command("ALTER TABLE round DROP COLUMN idle_us")
    store.command("ALTER TABLE request MODIFY COLUMN queue_ms Nullable(Float64)")
    before = columns_of(store, "round")

    with pytest.raises(
        SchemaDrift, match=r"request\.queue_ms: is Nullable\(Float64\), must be Nullable\(Float32\)"
    ):
        migrate(store)

    assert columns_of(store, "round") == before


def test_a_table_with_another_key_is_drift(store):
    store.command("DROP TABLE policy")
    store.command("CREATE TABLE policy (policy UInt32) ENGINE = MergeTree ORDER BY tuple()")

    # No key at all is how a distributed table looks, so its columns are what is compared.
    store.command("DROP TABLE boot")
    store.command(
        "CREATE TABLE boot (replica String, boot String) ENGINE = MergeTree ORDER BY boot"
    )
    with pytest.raises(SchemaDrift, match="boot: ordered by boot, must be replica, boot"):
        migrate(store)


def test_a_column_of_a_newer_version_stays(store):
    store.command("ALTER TABLE round ADD COLUMN later Nullable(UInt8)")

    assert migrate(store) == []
    assert "later" in [name for name, _, _ in columns_of(store, "round")]


def test_what_is_inserted_comes_back_value_by_value(store):
    traffic = Traffic()
    for tables in traffic.batches():
        for name, rows in tables.items():
            store.insert(name, rows)

    names = {"boot": "boot", "round": "seq", "request_part": "first_seq, request"}
    for name, order in names.items():
        sent = pa.concat_tables(t[name] for t in traffic.batches() if name in t)
        keys = [(key, "ascending") for key in order.split(", ")]
        got = store.query(f"SELECT * FROM {name} FINAL ORDER BY {order}")
        assert got.to_pylist() == sent.sort_by(keys).to_pylist()


def test_the_row_of_a_request_s_end_replaces_that_of_its_admission(store):
    traffic = Traffic()
    for tables in traffic.batches():
        store.insert("request", tables["request"])

    got = {row["request"]: row for row in store.rows("SELECT * FROM request FINAL")}

    assert len(got) == len(traffic.requests_ended)
    for ended in traffic.requests_ended:
        assert got[ended["request"]]["output_tokens"] == ended["output_tokens"]
        assert got[ended["request"]]["reason"] == ended["reason"]


def test_an_insert_that_is_tried_again_under_its_token_is_stored_once(store):
    rows = Traffic().batches()[0]["round"]

    store.insert("round", rows, "one")
    store.insert("round", rows, "one")

    assert store.rows("SELECT count() AS rows FROM round") == [{"rows": rows.num_rows}]


def test_rows_that_are_sent_again_later_count_once_for_readers(store):
    rows = Traffic().batches()[0]["round"]

    store.insert("round", rows, "one")
    store.insert("round", rows.slice(0, 5), "another")

    assert store.rows("SELECT count() AS rows FROM round FINAL") == [{"rows": rows.num_rows}]


def test_rows_that_come_twice_in_one_insert_count_once_for_readers(store):
    rows = Traffic().batches()[0]["round"]

    store.insert("round", pa.concat_tables([rows, rows.slice(0, 5)]))

    assert store.rows("SELECT count() AS rows FROM round FINAL") == [{"rows": rows.num_rows}]


def test_a_loss_that_names_its_first_record_counts_once_whenever_it_is_reported(store):
    loss = {"replica": "r", "boot": "b", "table": "ring", "reason": "ring_full", "detail": ""}
    twice = [loss | {"lost_at": at, "first_seq": 7, "count": 3} for at in (10**18, 2 * 10**18)]
    tails = [loss | {"lost_at": at, "first_seq": None, "count": None} for at in (1, 2)]

    for row in twice + tails:
        store.insert("loss", pa.Table.from_pylist([row], schema("loss")))

    rows = store.rows("SELECT first_seq, count() AS rows FROM loss FINAL GROUP BY first_seq")
    assert sorted((row["first_seq"] or 0, row["rows"]) for row in rows) == [(0, 2), (7, 1)]


def test_a_period_is_reconciled_with_the_losses_of_its_own_records_alone(store):
    source, now = {"replica": "r", "boot": "b"}, time.time_ns()
    counts = {"rounds": 97, "request_parts": 0, "requests": 0, "losses": 1}
    batches = [
        {"number": n + 1, "first_seq": n * 100, "next_seq": n * 100 + 100, "stored_at": now + n}
        for n in range(3)
    ]
    loss = {"lost_at": now, "table": "ring", "reason": "ring_full", "count": 3, "detail": ""}
    losses = [source | loss | {"first_seq": n * 100 + 96} for n in range(3)]
    store.insert(
        "batch",
        pa.Table.from_pylist([source | counts | batch for batch in batches], schema("batch")),
    )
    store.insert("loss", pa.Table.from_pylist(losses, schema("loss")))

    whole, last_two, second = (
        store.rows(queries.reconciliation(where))[0] for where in ("1", "number > 1", "number = 2")
    )

    assert (whole["recorded"], whole["lost"], whole["unaccounted"]) == (300, 9, 0)
    assert (last_two["recorded"], last_two["lost"], last_two["unaccounted"]) == (200, 6, 0)
    assert (second["recorded"], second["lost"], second["unaccounted"]) == (100, 3, 0)


def test_parameters_are_bound_and_never_read_as_sql(store):
    text = "it's \\ a\ttab, {x:String} and \n a line"

    assert store.rows("SELECT {x:String} AS x", {"x": text}) == [{"x": text}]


def test_a_refused_statement_raises_in_one_line_with_the_engine_s_code(store):
    with pytest.raises(StoreError) as raised:
        store.query("SELECT * FROM nowhere")

    assert error_code(raised.value) == 60
    assert "\n" not in str(raised.value)
    assert "nowhere" in str(raised.value)


def test_nothing_of_a_query_that_failed_halfway_comes_with_the_next_answer(store):
    with pytest.raises(StoreError):
        store.query("SELECT throwIf(number = 200000), 'secret' FROM numbers(300000)")

    assert store.rows("SELECT 1 AS one") == [{"one": 1}]


def test_a_session_for_reading_cannot_write(store):
    reader = store.session({"readonly": "1"})

    with pytest.raises(StoreError, match="readonly"):
        reader.insert("round", Traffic().batches()[0]["round"])

    assert reader.rows("SELECT count() AS rows FROM round") == [{"rows": 0}]


def test_times_are_utc_whatever_the_machine_s_zone(store):
    assert store.rows("SELECT timezone() AS zone") == [{"zone": "UTC"}]


def test_a_store_has_one_owner_and_says_who_and_where_to_read(tmp_path: Path):
    dsn = f"chdb://{tmp_path}/store"
    owner = subprocess.Popen([sys.executable, "-c", OWN, dsn], stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "owned\n"

        with pytest.raises(
            StoreBusy, match=rf"owned by process {owner.pid}; .* http://127\.0\.0\.1:1234"
        ):
            Store.open(dsn)
    finally:
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()

    Store.open(dsn).close()


def test_a_store_that_is_not_there_is_not_made_by_reading(tmp_path: Path):
    with pytest.raises(StoreError, match="there is no store at"):
        Store.open(f"chdb://{tmp_path}/none", create=False)

    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("dsn", ["chdb://memory", "sqlite:///x", "chdb:relative", "host:8123", ""])
def test_a_destination_that_means_nothing_is_an_error_that_says_what_does(dsn):
    with pytest.raises(UsageError, match="chdb:///"):
        Store.open(dsn)


def test_a_mistyped_destination_does_not_show_its_password():
    with pytest.raises(UsageError) as raised:
        Store.open("clikhouse://someone:secret@host/db")

    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("port", ["99999", "secret", "secret:8123"])
def test_an_address_that_cannot_be_read_is_wrong_use_and_does_not_show_its_password(port):
    with pytest.raises(UsageError, match="written with %") as raised:
        Store.open(f"clickhouse://someone:{port}", create=False)

    assert "secret" not in str(raised.value)


@pytest.fixture
def web_server():
    """Something that answers HTTP, and is no ClickHouse."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        server.RequestHandlerClass.log_message = lambda *_: None
        threading.Thread(target=server.serve_forever).start()
        yield server.server_port
        server.shutdown()


@pytest.mark.parametrize(
    ("dsn", "why"),
    [
        ("clickhouse://someone:secret@127.0.0.1:1/db", "no server listens"),
        ("https://any:secret@127.0.0.1:1", "no server listens"),
        ("clickhouse://someone:secret@no-such-host.invalid/db", "no such host"),
        ("http://any:secret@127.0.0.1:{port}", "no ClickHouse"),
        ("clickhouse://someone:secret@127.0.0.1:{port}/db", "no ClickHouse"),
        ("https://any:secret@127.0.0.1:{port}", "TLS failed"),
    ],
)
def test_a_server_that_cannot_be_read_is_one_line_of_what_to_look_at(web_server, dsn, why):
    with pytest.raises(StoreError, match=why) as raised:
        Store.open(dsn.format(port=web_server))

    text = str(raised.value)
    assert urlsplit(dsn.format(port=web_server)).hostname in text
    for word in ("secret", "\n", "Pool", "retries", "DOCTYPE", "Error"):
        assert word not in text


def test_the_statements_for_a_cluster_are_ones_that_the_engine_parses(store):
    for table in LAYOUTS:
        local, distributed = create_on_cluster(table, "main", "specscope")

        for statement in (local, distributed):
            store.command(f"EXPLAIN AST {statement}")
        assert "ON CLUSTER `main`" in local
        assert "ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/specscope/" in local
        assert f"ENGINE = Distributed(`main`, `specscope`, `{table}_local`" in distributed


def test_a_statement_for_a_cluster_that_is_no_sql_would_be_seen(store):
    local, _ = create_on_cluster("round", "main", "specscope")

    with pytest.raises(StoreError, match="Syntax error"):
        store.command(f"EXPLAIN AST {local.replace('ORDER BY', 'ORDERED BY')}")


def test_the_owner_s_file_is_plain_json(store, tmp_path: Path):
    held = json.loads((tmp_path / "store" / "specscope-owner.json").read_text())

    assert held == {"pid": os.getpid(), "endpoint": ""}
