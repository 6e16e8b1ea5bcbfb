"""A full disk refuses, holds back, and never costs a store or an acknowledged row."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest
from service.harness import service, service_process
from service.sidecar import acknowledged, exchange
from service.small_disk import small_disk
from store.traffic import Traffic
from waiting import PATIENCE_S, until

from specscope.doctor.embedded import states
from specscope.errors import StoreError, StoreFull
from specscope.store import connection
from specscope.store.connection import Store
from specscope.store.metadata import COPY, damaged, damaged_parts, keep, whole
from specscope.store.migrate import migrate

MIB = 1 << 20
FLOOR = str(4 * MIB)


@pytest.fixture
def disk(tmp_path):
    with small_disk(tmp_path / "disk", 24 * MIB) as made:
        yield made


def refused(dsn):
    """The one line of a service that does not start."""
    kept = {name: value for name, value in os.environ.items() if "SPECSCOPE" not in name}
    result = subprocess.run(
        [sys.executable, "-m", "specscope", "serve", "--store", dsn,
         "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"],
        capture_output=True, text=True, timeout=PATIENCE_S,
        env=kept | {"SPECSCOPE_STORE_MIN_FREE_BYTES": FLOOR},
    )  # fmt: skip
    assert (result.returncode, result.stdout) == (1, ""), result.stderr
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr


def rounds(dsn):
    with Store.open(dsn, min_free=0) as store:
        return store.rows("SELECT count() AS n FROM round FINAL")[0]["n"]


@pytest.mark.parametrize("leave", [0, 20_000])
def test_a_first_start_on_a_full_disk_is_one_line_and_works_once_there_is_room(disk, leave):
    dsn = f"chdb://{disk.path}/store"
    disk.fill(leave)

    assert "SPECSCOPE_STORE_MIN_FREE_BYTES" in refused(dsn)

    disk.free()
    for _ in range(2):
        with service_process(dsn, SPECSCOPE_STORE_MIN_FREE_BYTES=FLOOR) as ports:
            messages = Traffic(seed=1).messages()
            assert len(acknowledged(exchange(ports["grpc"], messages))) == len(messages)


def test_an_upgrade_on_a_full_disk_is_one_line_and_keeps_every_row(disk):
    dsn = f"chdb://{disk.path}/store"
    traffic = Traffic(seed=2)
    with service_process(dsn, SPECSCOPE_STORE_MIN_FREE_BYTES=FLOOR) as ports:
        exchange(ports["grpc"], traffic.messages())
    with Store.open(dsn, min_free=0) as store:  # a store of an earlier version
        store.command("ALTER TABLE round DROP COLUMN padded_tokens")
        keep(store.path)
    disk.fill(20_000)

    assert "padded_tokens" in refused(dsn)

    assert not damaged(disk.path / "store")
    disk.free()
    with service_process(dsn, SPECSCOPE_STORE_MIN_FREE_BYTES=FLOOR):
        pass
    assert rounds(dsn) == len(traffic.rounds)


def test_a_store_with_nothing_to_write_opens_on_a_full_disk_and_can_be_read(disk):
    dsn = f"chdb://{disk.path}/store"
    with service_process(dsn, SPECSCOPE_STORE_MIN_FREE_BYTES=FLOOR) as ports:
        exchange(ports["grpc"], Traffic(seed=3).messages())
    disk.fill()

    with service_process(dsn, SPECSCOPE_STORE_MIN_FREE_BYTES=FLOOR) as ports:
        query = f"http://127.0.0.1:{ports['http']}/?query=SELECT+count()+FROM+round"
        assert int(urllib.request.urlopen(query, timeout=PATIENCE_S).read()) > 0


def test_batches_wait_while_the_disk_is_full_and_are_stored_once_it_is_not(disk):
    dsn = f"chdb://{disk.path}/store"
    messages = Traffic(seed=4).messages()
    down = []
    with service_process(dsn, SPECSCOPE_STORE_MIN_FREE_BYTES=FLOOR) as ports:
        disk.fill()
        health = f"http://127.0.0.1:{ports['http']}"
        sending = threading.Thread(target=lambda: down.extend(exchange(ports["grpc"], messages)))
        sending.start()
        until(lambda: b"specscope_store_full 1.0" in read(f"{health}/metrics"))
        assert read(f"{health}/health") == b"ok\n"
        assert not acknowledged(down)

        disk.free()
        sending.join(PATIENCE_S)

    assert acknowledged(down) == [message.number for message in messages]
    assert rounds(dsn) == len(Traffic(seed=4).rounds)


def read(url):
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        return answer.read()


@pytest.mark.parametrize("copied", [True, False], ids=["with its copy", "without a copy"])
@pytest.mark.parametrize("content", [b"", b"ATTACH TABLE _ UUID 'x'\n(\n    `a` UInt8"])
def test_damaged_definitions_are_repaired_before_the_engine_reads_them(tmp_path, copied, content):
    path = tmp_path / "store"
    dsn, traffic = f"chdb://{path}", Traffic(seed=5)
    with service(dsn) as running:
        exchange(running.port, traffic.messages())
    if not copied:
        (path / COPY).unlink()
    for file in [*path.glob("metadata/*.sql"), *path.glob("store/*/*/*.sql")]:
        file.write_bytes(content)

    with Store.open(dsn) as store:
        migrate(store)
        assert store.rows("SELECT count() AS n FROM round FINAL") == [{"n": len(traffic.rounds)}]
        assert store.rows("SELECT count() AS n FROM batch FINAL") == [
            {"n": len(traffic.messages())}
        ]


def test_doctor_names_a_full_disk_and_damaged_definitions(disk):
    path = disk.path / "store"
    environment = {"SPECSCOPE_STORE": f"chdb://{path}", "SPECSCOPE_STORE_MIN_FREE_BYTES": FLOOR}
    with Store.open(f"chdb://{path}", min_free=0) as store:
        migrate(store)

    before = [(check[0], check[1]) for check in states(environment)]
    disk.fill()
    next(path.glob("store/*/*/round.sql")).write_bytes(b"")
    after = [(check[0], check[1]) for check in states(environment)]

    assert before == [(f"disk of {path}", "ok")]
    assert after == [(f"disk of {path}", "refused"), (f"store {path}", "refused")]
    assert not list(states({"SPECSCOPE_STORE": "clickhouse://host/db"}))


def test_an_empty_definition_that_no_rows_belong_to_is_removed(tmp_path):
    path = tmp_path / "store"
    with Store.open(f"chdb://{path}") as store:
        migrate(store)
    (path / COPY).unlink()
    (definition,) = path.glob("store/*/*/round.sql")
    (path / "data" / "specscope" / "round").unlink()
    definition.write_bytes(b"")

    with Store.open(f"chdb://{path}") as store:
        migrate(store)
        assert store.rows("SELECT count() AS n FROM round") == [{"n": 0}]


def test_a_definition_that_the_disk_did_not_take_ends_the_migration(tmp_path):
    with Store.open(f"chdb://{tmp_path}/store") as store:
        migrate(store)
        (definition,) = store.path.glob("store/*/*/hour.sql")
        definition.write_bytes(b"")

        with pytest.raises(StoreError, match="hour"):
            migrate(store)


def test_an_insert_that_a_filling_disk_took_in_part_is_refused(tmp_path, monkeypatch):
    with Store.open(f"chdb://{tmp_path}/store") as store:
        migrate(store)
        rows = next(b["round"] for b in Traffic(seed=6).batches() if "round" in b)
        # As chDB 26.9 leaves it when the disk fills between its reservation and its writes.
        insert = store.client.insert_arrow

        def fills(*args, **kwargs):
            insert(*args, **kwargs)
            for file in Path(store.path).glob("store/*/*/2*_*_*_*/checksums.txt"):
                file.write_bytes(b"")
            store.room = connection.Room(store.path, 1 << 60)

        monkeypatch.setattr(store.client, "insert_arrow", fills)

        with pytest.raises(StoreFull, match="only some of the rows"):
            store.insert("round", rows)
        assert len(damaged_parts(store.path, "specscope", "round")) == 1


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        (b"ATTACH TABLE _ UUID 'u'\n(\n    `a` UInt8 COMMENT 'x (y [1]'\n)\nENGINE = Log\n", True),
        (b"", False),
        (b"ATTACH TABLE _ UUID 'u'\n(\n    `a` UInt8 COMMENT 'x [1]'\n", False),
        (b"ATTACH TABLE _ UUID 'u'\n(\n    `a` UInt8 COMMENT 'x\n", False),
        (b"\0" * 4096, False),
    ],
)
def test_a_whole_definition_is_told_from_a_torn_one(text, complete):
    assert whole(text) is complete
