"""The spool: whole batches only, numbers without holes, detail dropped first and counted."""

from __future__ import annotations

import random
import subprocess
import sys
import zlib

import pyarrow as pa
import pytest

from specscope_agent import batchfile, files
from specscope_agent.errors import SpoolError
from specscope_agent.lane import MOST_UNACKNOWLEDGED
from specscope_agent.loss import Losses
from specscope_agent.source import Source
from specscope_agent.spool import Spool
from specscope_agent.wire import Encoded, decode, encode
from specscope_hook.ring import Cursor

SOURCE = Source("r0", "b0")
LARGE = 1 << 30


def rows(name: str, count: int, size: int) -> Encoded:
    return Encoded(name, count, bytes(size))


def fill(spool: Spool, count: int, source: Source = SOURCE, size: int = 20_000) -> None:
    for _ in range(count):
        last = spool.newest(source).cursor
        cursor = Cursor(last.position + 1000, last.next_seq + 10)
        tables = [
            rows("round", 10, size // 4),
            rows("request_part", 5, size // 2),
            rows("request", 2, size // 4),
        ]
        spool.add(source, cursor, tables)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "spool"


@pytest.fixture
def spool(folder):
    spool = Spool.open(folder, LARGE)
    yield spool
    spool.close()


def batch_files(folder):
    return sorted(folder.glob("*/*.batch"))


def numbers(spool, source=SOURCE):
    found, number = [], 0
    while number := spool.next_waiting(source, number):
        found.append(number)
    return found


def losses_in(spool):
    found = []
    for number in numbers(spool):
        for table in spool.take(SOURCE, number).tables:
            if table.name == "loss":
                found += decode(table.arrow).to_pylist()
    return found


def test_batches_are_numbered_from_one_and_follow_each_other(spool):
    fill(spool, 3)

    batches = [spool.take(SOURCE, number) for number in numbers(spool)]

    assert [(b.number, b.first_seq, b.cursor.next_seq) for b in batches] == [
        (1, 1, 11),
        (2, 11, 21),
        (3, 21, 31),
    ]


def test_the_cursor_survives_when_everything_is_acknowledged(folder, spool):
    fill(spool, 2)
    cursor = spool.newest(SOURCE).cursor
    for number in (2, 1):
        spool.acknowledge(SOURCE, [number])
    spool.close()

    again = Spool.open(folder, LARGE)

    assert again.newest(SOURCE).cursor == cursor
    assert again.newest(SOURCE).number == 2
    assert batch_files(folder) == []
    again.close()


def test_a_torn_tail_is_discarded_and_the_cursor_goes_back(folder, spool):
    fill(spool, 3)
    spool.close()
    last = batch_files(folder)[-1]
    last.write_bytes(last.read_bytes()[:-7])

    again = Spool.open(folder, LARGE)

    assert numbers(again) == [1, 2]
    assert again.newest(SOURCE).cursor == Cursor(2000, 21)
    again.close()


def test_a_batch_that_the_disk_spoilt_is_a_counted_loss_under_its_number(folder, spool):
    fill(spool, 3)
    spool.close()
    middle = batch_files(folder)[1]
    middle.write_bytes(b"\0" * middle.stat().st_size)

    again = Spool.open(folder, LARGE)

    assert numbers(again) == [1, 2, 3]
    (loss,) = losses_in(again)
    assert (loss["reason"], loss["first_seq"], loss["count"]) == ("corrupt", 11, 10)
    again.close()


@pytest.mark.parametrize(("acknowledged", "lost"), [(0, (1, 10)), (2, (None, None))])
def test_a_spoilt_batch_at_the_head_is_a_loss_even_if_its_size_is_not_known(
    folder, spool, acknowledged, lost
):
    fill(spool, 5)
    for number in range(1, acknowledged + 1):
        spool.acknowledge(SOURCE, [number])
    spool.close()
    batch_files(folder)[0].write_bytes(b"")

    again = Spool.open(folder, LARGE)

    assert numbers(again) == list(range(acknowledged + 1, 6))
    (loss,) = losses_in(again)
    assert (loss["reason"], loss["first_seq"], loss["count"]) == ("corrupt", *lost)
    again.close()


def test_a_batch_that_is_spoilt_while_it_waits_is_a_counted_loss(folder, spool):
    fill(spool, 2)
    batch_files(folder)[0].write_bytes(b"nothing")

    batch = spool.take(SOURCE, 1)

    (loss,) = decode(batch.tables[0].arrow).to_pylist()
    assert (loss["reason"], loss["first_seq"], loss["count"]) == ("corrupt", 1, 10)
    assert batch.cursor.next_seq == 11


def test_detail_goes_first_then_rounds_then_requests(folder):
    spool = Spool.open(folder, 700_000)
    fill(spool, 60)

    left = [name for number in numbers(spool) for name in kept(spool, number)]

    assert "request_part" not in left[:20]
    dropped = spool.dropped_rows
    assert dropped["request_part"] / 5 >= dropped["round"] / 10 >= dropped.get("request", 0) / 2
    assert dropped["round"] > 0
    assert spool.disk_bytes < 700_000
    spool.close()


def kept(spool, number):
    return [table.name for table in spool.take(SOURCE, number).tables]


def test_what_is_dropped_is_counted_row_by_row_and_numbers_stay(folder):
    spool = Spool.open(folder, 400_000)
    fill(spool, 80)

    found = losses_in(spool)

    assert numbers(spool) == list(range(1, 81))
    assert {loss["reason"] for loss in found} == {"spool_full"}
    for table, per_batch in (("request_part", 5), ("round", 10), ("request", 2)):
        lost = sum(loss["count"] for loss in found if loss["table"] == table)
        stays = sum(
            t.rows
            for number in numbers(spool)
            for t in spool.take(SOURCE, number).tables
            if t.name == table
        )
        assert lost + stays == 80 * per_batch
        assert lost == spool.dropped_rows.get(table, 0)
    spool.close()


def test_the_oldest_goes_first(folder):
    spool = Spool.open(folder, 400_000)
    fill(spool, 30)

    with_parts = [n for n in numbers(spool) if "request_part" in kept(spool, n)]

    assert with_parts == list(range(with_parts[0], 31))
    assert with_parts[0] > 1
    spool.close()


def test_a_batch_that_was_sent_keeps_its_rows(folder):
    spool = Spool.open(folder, 400_000)
    fill(spool, 3)
    spool.take(SOURCE, 1)
    fill(spool, 40)

    assert "request_part" in kept(spool, 1)
    assert "request_part" not in kept(spool, 2)
    spool.close()


def test_a_batch_that_the_agent_before_may_have_sent_keeps_its_rows(folder):
    spool = Spool.open(folder, LARGE)
    fill(spool, MOST_UNACKNOWLEDGED + 20)
    spool.close()

    again = Spool.open(folder, 400_000)
    fill(again, 20)

    with_parts = [n for n in numbers(again) if "request_part" in kept(again, n)]
    assert with_parts[:MOST_UNACKNOWLEDGED] == list(range(1, MOST_UNACKNOWLEDGED + 1))
    assert MOST_UNACKNOWLEDGED + 1 not in with_parts
    again.close()


def test_without_anything_left_to_drop_there_is_no_room_and_it_stays_bounded(folder):
    spool = Spool.open(folder, 100_000)
    while spool.has_room:
        fill(spool, 1)

    assert 100_000 <= spool.disk_bytes <= 100_000 + 24_576
    for number in numbers(spool):
        spool.acknowledge(SOURCE, [number])
    assert spool.has_room
    spool.close()


def test_what_has_been_said_is_remembered(folder, spool):
    spool.add(SOURCE, Cursor(10, 2), [], {"boot"})
    spool.add(SOURCE, Cursor(20, 3), [], {"fault"})
    spool.close()

    again = Spool.open(folder, LARGE)

    assert again.newest(SOURCE).said == {"boot", "fault"}
    again.close()


def test_sources_do_not_mix(spool):
    other = Source("r0", "b1")
    fill(spool, 2)
    fill(spool, 1, other)

    spool.resume(SOURCE, 2, 21)

    assert (numbers(spool), numbers(spool, other)) == ([], [1])


def test_after_a_lost_spool_numbers_go_on_where_the_store_is(folder, spool):
    losses = Losses(SOURCE, 1)
    losses.add("ring", "corrupt", 1, 600)
    losses.add("ring", "corrupt", 605, 2)
    spool.add(SOURCE, Cursor(100, 611), encode({"loss": losses.table()}))
    fill(spool, 2)

    spool.resume(SOURCE, 57, 598)

    assert numbers(spool) == [58, 59, 60]
    assert spool.take(SOURCE, 58).first_seq == 598
    assert [(x["first_seq"], x["count"]) for x in losses_in(spool)] == [(598, 3), (605, 2)]
    fill(spool, 1)
    spool.close()
    again = Spool.open(folder, LARGE)
    assert numbers(again) == [58, 59, 60, 61]
    again.close()


def test_a_batch_of_another_life_under_a_number_of_ours_deletes_nothing(spool):
    fill(spool, 5)

    spool.resume(SOURCE, 3, 9_000)

    assert numbers(spool) == [4, 5, 6, 7, 8]


def test_a_spoilt_batch_that_moves_is_a_loss_of_what_the_store_does_not_have(folder, spool):
    fill(spool, 2)
    path = min(batch_files(folder))
    path.write_bytes(path.read_bytes()[:-1])

    spool.resume(SOURCE, 1, 6)  # of batch 1 as an earlier life cut it

    assert numbers(spool) == [2, 3]
    assert spool.take(SOURCE, 2).first_seq == 6
    assert [(x["first_seq"], x["count"]) for x in losses_in(spool)] == [(6, 5)]


def test_records_that_the_store_has_do_not_go_again_under_another_number(spool):
    fill(spool, 3)  # records 1 to 30

    spool.resume(SOURCE, 7, 21)

    brought = [{table.name for table in spool.take(SOURCE, n).tables} for n in numbers(spool)]
    assert brought == [set(), set(), {"round", "request_part", "request"}]


def test_a_tail_that_is_unknown_begins_behind_what_the_store_has(spool):
    losses = Losses(SOURCE, 1)
    losses.add("ring", "tail_unknown", 400, None)
    spool.add(SOURCE, Cursor(100, 400), encode({"loss": losses.table()}))

    spool.resume(SOURCE, 57, 598)

    assert [(x["first_seq"], x["count"]) for x in losses_in(spool)] == [(598, None)]


def test_rows_that_a_full_spool_gave_up_stay_counted_when_the_batch_moves(spool):
    losses = Losses(SOURCE, 1)
    losses.add("ring", "corrupt", 1, 600)
    losses.add("request_part", "spool_full", 1, 7, number=1)
    losses.add("request", "classes_full", 2, 3)
    spool.add(SOURCE, Cursor(100, 611), encode({"loss": losses.table()}))

    spool.resume(SOURCE, 57, 598)

    assert [(x["table"], x["first_seq"], x["count"], x["number"]) for x in losses_in(spool)] == [
        ("ring", 598, 3, None), ("request_part", 598, 7, 58), ("request", 598, 3, None),
    ]  # fmt: skip


def test_rows_that_were_given_up_of_a_batch_that_the_store_has_are_no_loss(spool):
    losses = Losses(SOURCE, 1)
    losses.add("round", "spool_full", 1, 7, number=1)
    spool.add(SOURCE, Cursor(100, 300), encode({"loss": losses.table()}))

    spool.resume(SOURCE, 57, 598)

    assert losses_in(spool) == []


def test_what_the_store_has_already_is_deleted(spool):
    fill(spool, 5)

    spool.resume(SOURCE, 3, 31)
    spool.resume(SOURCE, 0, 1)

    assert numbers(spool) == [4, 5]


def test_a_name_with_a_slash_stays_within_the_folder(folder, spool):
    fill(spool, 1, Source("../../up", "b/0"))

    (path,) = batch_files(folder)
    assert path.parent.parent == folder


def test_a_spool_has_one_owner(folder, spool):
    script = (
        "import sys, pathlib; from specscope_agent.spool import Spool;"
        f"Spool.open(pathlib.Path({str(folder)!r}), 1)"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)

    assert "another agent" in done.stderr


def test_a_folder_that_cannot_be_made_is_a_named_error(tmp_path):
    blocked = tmp_path / "file"
    blocked.touch()

    with pytest.raises(SpoolError, match="cannot be used"):
        Spool.open(blocked / "spool", LARGE)


def test_a_disk_that_takes_no_more_leaves_the_cursor_where_it_was(spool, folder, monkeypatch):
    fill(spool, 1)
    before = spool.newest(SOURCE)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("specscope_agent.files.os.fsync", full)
    with pytest.raises(SpoolError, match="No space left"):
        fill(spool, 1)

    assert spool.newest(SOURCE) == before
    assert list(folder.glob("*/*.new")) == []


def test_an_encoded_table_reads_back():
    table = pa.table({"k": [[1, 2], []], "name": ["a", None]})

    (encoded,) = encode({"t": table, "empty": table.slice(0, 0)})

    assert decode(encoded.arrow).equals(table)
    assert (encoded.name, encoded.rows) == ("t", 2)


def full(*_, **__):
    raise OSError(28, "No space left on device")


def test_a_full_disk_keeps_nothing_that_is_acknowledged(spool, folder, monkeypatch):
    fill(spool, 2)
    cursor = spool.newest(SOURCE).cursor
    with monkeypatch.context() as broken:
        broken.setattr("specscope_agent.batchfile.Path.open", full)
        for number in (1, 2):
            spool.acknowledge(SOURCE, [number])

    assert batch_files(folder) == []
    spool.close()
    again = Spool.open(folder, LARGE)
    assert (again.newest(SOURCE).number, again.newest(SOURCE).cursor) == (2, cursor)
    assert numbers(again) == []
    fill(again, 1)
    assert numbers(again) == [3]
    again.close()


def test_a_disk_that_fills_up_while_numbers_move_loses_no_batch(spool, folder, monkeypatch):
    fill(spool, 3)
    calls = iter(range(100))
    sync = files.os.fsync

    def second(file):
        return full() if next(calls) == 2 else sync(file)  # file and folder, each

    with monkeypatch.context() as broken:
        broken.setattr("specscope_agent.files.os.fsync", second)
        with pytest.raises(SpoolError, match="No space left"):
            spool.resume(SOURCE, 10, 1)

    assert numbers(spool) == [1, 2, 13]
    assert [spool.take(SOURCE, n).cursor.next_seq for n in numbers(spool)] == [11, 21, 31]


def test_a_volumes_own_folder_is_left_alone(folder):
    lost = folder / "lost+found"
    lost.mkdir(parents=True)
    lost.chmod(0)

    spool = Spool.open(folder, LARGE)

    assert lost.exists()
    assert spool.sources == ()
    spool.close()
    lost.chmod(0o700)


def test_files_that_are_not_ours_stop_no_agent(folder, spool):
    fill(spool, 2)
    spool.close()
    lane = batch_files(folder)[0].parent
    (lane / "notes.batch").write_bytes(b"mine")
    header = b'{"another": "version"}'
    body = len(header).to_bytes(4, "little") + header
    check = zlib.crc32(body).to_bytes(4, "little")
    (lane / "000000000003.batch").write_bytes(batchfile.MAGIC + check + body)

    again = Spool.open(folder, LARGE)

    assert numbers(again) == [1, 2]
    again.close()


def test_a_service_that_has_gone_back_in_time_gets_what_is_left_and_nothing_is_deleted(spool):
    fill(spool, 10)
    for number in range(1, 7):
        spool.acknowledge(SOURCE, [number])

    spool.resume(SOURCE, 3, 31)

    assert numbers(spool) == [7, 8, 9, 10]


def test_a_damaged_first_batch_on_a_full_disk_is_said_and_acknowledged(spool, folder, monkeypatch):
    fill(spool, 3)
    batch_files(folder)[0].write_bytes(b"torn" * 5000)

    with monkeypatch.context() as disk:
        disk.setattr("specscope_agent.files.replace", full)
        first = spool.take(SOURCE, 1)
        again = spool.take(SOURCE, 1)
        spool.acknowledge(SOURCE, [1])
    (loss,) = decode(first.tables[0].arrow).to_pylist()

    assert (loss["reason"], loss["first_seq"], loss["count"]) == ("corrupt", 1, 10)
    assert again == first
    assert numbers(spool) == [2, 3]


def test_a_damaged_batch_is_said_even_if_nothing_can_be_written(spool, folder, monkeypatch):
    fill(spool, 3)
    batch_files(folder)[0].write_bytes(b"")

    with monkeypatch.context() as disk:
        disk.setattr("specscope_agent.files.replace", full)
        disk.setattr("specscope_agent.files.overwrite", full)
        first = spool.take(SOURCE, 1)
        spool.acknowledge(SOURCE, [1])

    assert decode(first.tables[0].arrow).to_pylist()[0]["count"] == 10
    assert numbers(spool) == [2, 3]


def test_losses_of_device_samples_in_batches_without_records_are_kept_apart(folder):
    spool = Spool.open(folder, 80_000)
    cursor = Cursor(0, 1)
    for second in range(40):
        values = {"sampled_at": [second * 10**9], "field": [random.randbytes(4000).hex()]}
        spool.add(SOURCE, cursor, encode({"device": pa.table(values)}))

    losses = losses_in(spool)
    spool.close()

    assert len(losses) > 10
    assert {loss["first_seq"] for loss in losses} == {None}
    assert len({loss["lost_at"] for loss in losses}) == len(losses)


def test_what_is_kept_is_private(folder, spool):
    fill(spool, 2)
    spool.acknowledge(SOURCE, [1])
    spool.acknowledge(SOURCE, [2])
    fill(spool, 1)

    paths = [folder, *folder.rglob("*")]

    assert len(paths) > 3
    assert {path.stat().st_mode & 0o777 for path in paths if path.is_dir()} == {0o700}
    assert {path.stat().st_mode & 0o777 for path in paths if path.is_file()} == {0o600}


def test_opening_a_spool_takes_no_memory_for_what_it_holds(folder):
    spool = Spool.open(folder, LARGE)
    fill(spool, 60, size=2 << 20)
    spool.close()
    script = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from specscope_agent.spool import Spool\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = peak()\n"
        "spool = Spool.open(Path(sys.argv[1]), 1 << 30)\n"
        "print(peak() - before, spool.disk_bytes)\n"
    )

    run = subprocess.run(
        [sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=True
    )
    grown_kb, held = map(int, run.stdout.split())

    assert held > 100 << 20
    assert grown_kb < 20 << 10


def test_what_the_store_has_is_not_counted_as_lost_by_a_spool_that_lost_it(spool):
    fill(spool, 1)

    spool.resume(SOURCE, 3, 31)  # two more batches had been made, and stored

    assert numbers(spool) == [4]
    assert spool.newest(SOURCE).cursor.next_seq == 31
    assert spool.take(SOURCE, 4).cursor.next_seq == 31
