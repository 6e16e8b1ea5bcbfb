"""The ring: full, torn, corrupt, forked, out of space, read again."""

import errno
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hook_fakes import a_boot, drained
from waiting import until

from specscope_hook import layout as at
from specscope_hook.errors import CorruptRing, RingError
from specscope_hook.ring import NAME_CLASS, OTHER, ROUND, Cursor, Gap, Ring, RingReader


@pytest.fixture
def ring(tmp_path):
    made = Ring.create(tmp_path / "r0-b0.ring", a_boot(), 4096)
    yield made
    made.close()


@pytest.fixture
def reader(ring):
    opened = RingReader.open(ring.path)
    yield opened
    opened.close()


def pushed(ring: Ring, kind: int, payload: bytes, batch: int = 0) -> bool:
    """Push one record and let the reader see it."""
    kept = ring.push(kind, payload, batch)
    ring.flush()
    return kept


def flip(ring: Ring, offset: int, bits: int) -> None:
    """Change bits of one byte of the file behind the writer's back."""
    with ring.path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ bits]))


def put(ring: Ring, offset: int, data: bytes) -> None:
    """Overwrite bytes of the file behind the writer's back."""
    with ring.path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def filled(ring: Ring, payload: bytes = b"x" * 100) -> int:
    count = 0
    while pushed(ring, ROUND, payload, 1):
        count += 1
    return count


def test_what_is_pushed_is_pulled_in_order(ring, reader):
    for index in range(5):
        pushed(ring, ROUND, bytes([index]) * (index + 1), index)

    records, gaps = drained(reader)

    assert [(r.seq, r.kind, r.batch, r.payload) for r in records] == [
        (index + 1, ROUND, index, bytes([index]) * (index + 1)) for index in range(5)
    ]
    assert gaps == []


def test_a_full_ring_drops_the_newest_record_and_counts_it(ring, reader):
    kept = filled(ring)
    pushed(ring, ROUND, b"also dropped" * 20, 1)

    records, gaps = drained(reader)

    assert [r.seq for r in records] == list(range(1, kept + 1))
    assert ring.dropped == reader.dropped == 2
    assert gaps == [Gap(kept + 1, 2, "ring_full")]


def test_a_drop_at_the_tail_is_told_once(ring, reader):
    filled(ring)
    _, cursor, first = reader.pull(Cursor(), 1 << 20)

    records, after, again = reader.pull(cursor, 1 << 20)

    assert len(first) == 1
    assert (records, again) == ([], [])
    assert after == cursor
    assert cursor.next_seq == reader.next_seq


def test_records_written_while_the_reader_looks_at_a_dying_writer_are_not_a_loss(tmp_path):
    ring = Ring.create(tmp_path / "r0-b0.ring", a_boot(), 4096)
    pushed(ring, ROUND, b"first", 1)

    class Late(RingReader):
        """The writer's last words fall between the reader's look at the end and at the tail."""

        def _tail(self, position, next_seq, gaps):
            if ring.open:
                pushed(ring, ROUND, b"last", 1)
                ring.close()
            return super()._tail(position, next_seq, gaps)

    reader = Late.open(ring.path)

    records, cursor, gaps = reader.pull(Cursor(), 1 << 20)
    more, _, later_gaps = reader.pull(cursor, 1 << 20)
    reader.close()

    assert [record.payload for record in records + more] == [b"first", b"last"]
    assert gaps == later_gaps == []


def test_drops_between_records_are_a_gap_between_them(ring, reader):
    kept = filled(ring)
    _, cursor, _ = reader.pull(Cursor(), 1)
    reader.release(cursor)
    pushed(ring, ROUND, b"y" * 100, 1)

    records, _, gaps = reader.pull(cursor, 1 << 20)

    assert records[-1].payload == b"y" * 100
    assert records[-1].seq == kept + 2
    assert gaps == [Gap(kept + 1, 1, "ring_full")]


def test_space_is_reused_only_once_it_is_released(ring, reader):
    filled(ring)
    _, cursor, _ = reader.pull(Cursor(), 1 << 20)

    before = pushed(ring, ROUND, b"z" * 100, 1)
    reader.release(cursor)
    after = pushed(ring, ROUND, b"z" * 100, 1)

    assert not before
    assert after


def test_a_reader_that_died_pulls_again_what_it_had_not_released(ring, reader):
    for index in range(6):
        pushed(ring, ROUND, bytes([index]), 1)
    first, stored, _ = reader.pull(Cursor(), 70)
    reader.pull(stored, 1 << 20)

    again, _, gaps = RingReader.open(ring.path).pull(stored, 1 << 20)

    assert [r.seq for r in first + again] == [1, 2, 3, 4, 5, 6]
    assert gaps == []


def test_many_sizes_wrap_around_the_end_unharmed(ring, reader):
    cursor = Cursor()
    sent, got = [], []

    for index in range(2000):
        payload = bytes([index % 251]) * (index * 37 % 900)
        assert pushed(ring, ROUND, payload, index % 7)
        sent.append((index + 1, index % 7, payload))
        records, cursor, gaps = reader.pull(cursor, 1 << 20)
        reader.release(cursor)
        got += [(r.seq, r.batch, r.payload) for r in records]
        assert gaps == []

    assert got == sent


def test_a_record_larger_than_the_ring_is_dropped(ring, reader):
    ok = pushed(ring, ROUND, b"x" * 5000, 1)
    pushed(ring, ROUND, b"x", 1)

    records, gaps = drained(reader)

    assert not ok
    assert [r.seq for r in records] == [2]
    assert gaps == [Gap(1, 1, "ring_full")]


@pytest.mark.parametrize("offset", [0, 4, 8, 16, 18, 24, 60])
def test_a_torn_record_is_a_gap_and_the_next_one_is_read(ring, reader, offset):
    for index in range(4):
        pushed(ring, ROUND, bytes([index]) * 64, 1)
    torn = at.DATA + 88 + offset  # within the second record
    flip(ring, torn, 0xFF)

    first, cursor, none = reader.pull(Cursor(), 1 << 20)
    rest, _, gaps = reader.pull(cursor, 1 << 20)

    assert [r.seq for r in first + rest] == [1, 3, 4]
    assert none == []
    assert gaps == [Gap(2, 1, "corrupt")]


def test_a_record_that_becomes_whole_before_the_next_pull_is_read(ring, reader):
    pushed(ring, ROUND, b"a" * 64, 1)
    flip(ring, at.DATA + 30, 1)

    none, cursor, _ = reader.pull(Cursor(), 1 << 20)
    flip(ring, at.DATA + 30, 1)
    records, _, gaps = reader.pull(cursor, 1 << 20)

    assert none == []
    assert [r.payload for r in records] == [b"a" * 64]
    assert gaps == []


def test_a_whole_record_from_a_lap_ago_is_not_taken_for_the_new_one(ring, reader):
    cursor = Cursor()
    for _ in range(32):
        pushed(ring, ROUND, b"o" * 104, 1)
    _, cursor, _ = reader.pull(cursor, 1 << 20)
    reader.release(cursor)
    old = ring.path.read_bytes()[at.DATA : at.DATA + 128]
    pushed(ring, ROUND, b"n" * 104, 1)
    new = ring.path.read_bytes()[at.DATA : at.DATA + 128]
    put(ring, at.DATA, old)

    none, cursor, _ = reader.pull(cursor, 1 << 20)
    put(ring, at.DATA, new)
    records, _, gaps = reader.pull(cursor, 1 << 20)

    assert none == []
    assert [r.payload for r in records] == [b"n" * 104]
    assert gaps == []


def test_names_are_given_once_and_the_65th_class_is_other(ring, reader):
    ids = [ring.name_id(NAME_CLASS, f"class-{index}") for index in range(66)]

    names = reader.names(NAME_CLASS)

    assert ids[:64] == list(range(64))
    assert ids[64:] == [OTHER, OTHER]
    assert ring.name_id(NAME_CLASS, "class-3") == 3
    assert names == {index: f"class-{index}" for index in range(64)}


def test_a_long_name_is_cut_between_characters(ring, reader):
    ring.name_id(NAME_CLASS, "ä" * 40)

    assert reader.names(NAME_CLASS) == {0: "ä" * 32}


def test_the_boot_record_can_be_read_back(ring, reader):
    assert reader.boot["replica"] == "r0"
    assert reader.boot["draft"] is None


def test_the_writer_is_alive_until_it_closes(ring, reader):
    alive = reader.writer_alive
    ring.close()

    assert alive
    assert not reader.writer_alive
    assert reader.ended


def test_the_first_fault_is_the_last(ring, reader):
    ring.fault("first")
    ring.fault("second")

    assert reader.fault_text == "first"


def test_a_policy_goes_back_through_the_control_page(ring, reader):
    before = ring.control()
    reader.control_write('{"policy": 1}')
    first = ring.control()
    reader.control_write('{"policy": 2}')
    second = ring.control()

    assert before is None
    assert first[1] == '{"policy": 1}'
    assert second[1] == '{"policy": 2}'
    assert second[0] > first[0]


def test_a_policy_that_is_being_written_is_not_read(ring, reader):
    reader.control_write('{"policy": 1}')
    flip(ring, at.W_CONTROL * 8, 1)

    assert ring.control() is None


def test_a_policy_too_long_for_its_page_is_refused(reader):
    with pytest.raises(RingError, match="the page holds"):
        reader.control_write("x" * 70_000)


def test_a_forked_child_has_no_ring_and_does_not_hold_the_parents_lock(ring, reader):
    child = os.fork()
    if child == 0:
        os._exit(7 if ring.open or pushed(ring, ROUND, b"child", 1) else 0)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert pushed(ring, ROUND, b"parent", 1)
    assert [r.payload for r in drained(reader)[0]] == [b"parent"]


def test_a_child_that_outlives_the_parent_does_not_look_like_a_writer(tmp_path):
    script = (
        "import os, sys, time\n"
        "sys.path.insert(0, sys.argv[2])\n"
        "from hook_fakes import a_boot\n"
        "from specscope_hook.ring import Ring\n"
        "ring = Ring.create(sys.argv[1], a_boot(), 4096)\n"
        "pid = os.fork()\n"
        "if pid == 0: time.sleep(600)\n"
        "else: print(pid, flush=True); os._exit(0)\n"
    )
    path = tmp_path / "a.ring"
    run = [sys.executable, "-c", script, str(path), str(Path(__file__).parent)]
    with subprocess.Popen(run, stdout=subprocess.PIPE, text=True) as parent:
        child = int(parent.stdout.readline())
        parent.wait()

        reader = RingReader.open(path)
        try:
            until(lambda: not reader.writer_alive)  # which the child sees to once it runs
        finally:
            os.kill(child, signal.SIGKILL)


def test_no_space_means_no_ring_and_the_reason_and_no_file(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)

    with pytest.raises(RingError, match="No space left"):
        Ring.create(tmp_path / "a.ring", a_boot(), 4096)
    assert list(tmp_path.iterdir()) == []


def test_a_really_full_filesystem_means_no_ring(tmp_path):
    with pytest.raises(RingError):
        Ring.create(tmp_path / "a.ring", a_boot(), 1 << 60)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_directory_is_named(tmp_path):
    with pytest.raises(RingError, match="nowhere"):
        Ring.create(tmp_path / "nowhere" / "a.ring", a_boot(), 4096)


@pytest.mark.parametrize(
    ("offset", "value"),
    [(0, 0), (8, 99), (16, 8192), (16, 0), (16, 1 << 60), (4096, 0)],
    ids=["magic", "version", "capacity", "no capacity", "huge capacity", "boot"],
)
def test_a_file_that_is_not_a_ring_is_refused(ring, offset, value):
    with ring.path.open("r+b") as file:
        file.seek(offset)
        file.write(struct.pack("<Q", value))

    with pytest.raises(CorruptRing):
        RingReader.open(ring.path)


def test_a_short_file_is_refused_and_a_missing_one_named(tmp_path):
    short = tmp_path / "short.ring"
    short.write_bytes(b"SPECRING")

    with pytest.raises(CorruptRing):
        RingReader.open(short)
    with pytest.raises(RingError, match=r"none\.ring"):
        RingReader.open(tmp_path / "none.ring")


def test_a_cut_ring_of_a_dead_writer_is_read_as_far_as_it_goes_and_the_rest_counted(ring, tmp_path):
    for index in range(30):
        pushed(ring, ROUND, bytes([index]) * 64, 1)
    cut = tmp_path / "cut.ring"
    cut.write_bytes(ring.path.read_bytes()[: at.DATA + 10 * 88 + 5])
    reader = RingReader.open(cut)
    cursor, seqs, lost = Cursor(), [], []

    for _ in range(3):
        records, cursor, gaps = reader.pull(cursor, 1 << 20)
        seqs += [record.seq for record in records]
        lost += gaps
    reader.close()

    assert seqs == list(range(1, 11))
    assert lost == [Gap(11, 20, "corrupt")]


@pytest.mark.parametrize("kind", ["pipe", "folder", "link", "device"])
def test_what_is_no_regular_file_is_refused_without_waiting_for_it(ring, tmp_path, kind):
    path = tmp_path / "x.ring"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(ring.path if kind == "link" else "/dev/zero")

    with pytest.raises(RingError):
        RingReader.open(path)


@pytest.mark.parametrize("offset", [24, 32, 40])
@pytest.mark.parametrize("bit", [0, 3, 12, 50, 63])
def test_a_flipped_word_gives_nothing_wrong_and_is_mended_by_the_writer(
    ring, reader, offset, bit, monkeypatch
):
    for index in range(3):
        pushed(ring, ROUND, bytes([index]) * 64, 1)
    flip(ring, offset + bit // 8, 1 << bit % 8)
    seqs, cursor = [], Cursor()

    for _ in range(3):
        records, cursor, _ = reader.pull(cursor, 1 << 20)
        seqs += [record.seq for record in records]
    ring._inspect_at = 0
    pushed(ring, ROUND, b"later" * 10, 1)
    for _ in range(3):
        records, cursor, gaps = reader.pull(cursor, 1 << 20)
        seqs += [record.seq for record in records]
        missing = sum(gap.count for gap in gaps)

    assert seqs[-1] == 4
    assert len(seqs) + missing <= 4
    assert reader.next_seq == 5


def test_a_number_that_was_never_given_hides_no_record_behind_it(ring, reader):
    for index in range(3):
        pushed(ring, ROUND, bytes([index]) * 64, 1)
    flip(ring, at.DATA + 88 + 8 + 5, 1)  # of the second record's number, beyond its check's reach

    first, cursor, none = reader.pull(Cursor(), 1 << 20)
    rest, _, gaps = reader.pull(cursor, 1 << 20)

    assert [r.seq for r in first + rest] == [1, 3]
    assert none == []
    assert gaps == [Gap(2, 1, "corrupt")]


def test_a_writer_that_died_between_two_words_lost_no_record(ring, reader):
    pushed(ring, ROUND, b"a" * 64, 1)
    put(ring, at.W_SEQ * 8, (1).to_bytes(8, "little"))  # the record is published, its successor not

    records, _, gaps = reader.pull(Cursor(), 1 << 20)

    assert ([r.seq for r in records], gaps) == ([1], [])


def test_a_client_that_names_half_a_character_is_named_as_far_as_it_goes(ring, reader):
    id_ = ring.name_id(NAME_CLASS, "a\ud800b")

    assert reader.names(NAME_CLASS) == {id_: "a?b"}


def test_a_cursor_of_another_ring_gives_the_writer_no_space_that_is_unread(ring, reader):
    kept = filled(ring)

    reader.release(Cursor(1 << 30, 7))

    assert not pushed(ring, ROUND, b"x" * 100, 1)
    assert len(drained(reader)[0]) == kept


@pytest.mark.parametrize(("folder", "mode"), [(0o700, 0o600), (0o755, 0o600), (0o2770, 0o660)])
def test_a_ring_is_private_unless_its_folder_is_shared_by_a_group(tmp_path, folder, mode):
    rings = tmp_path / "rings"
    rings.mkdir()
    rings.chmod(folder)
    before = os.umask(0o077)
    try:
        ring = Ring.create(rings / "a.ring", a_boot(), 4096)
    finally:
        os.umask(before)

    assert ring.path.stat().st_mode & 0o777 == mode
    ring.close()


def test_records_reach_the_file_several_at_once_and_at_most_20_ms_apart(ring, reader, monkeypatch):
    now = [time.monotonic_ns()]
    monkeypatch.setattr("specscope_hook.ring.monotonic_ns", lambda: now[0])
    seen = []

    for _ in range(10):
        now[0] += 8_000_000
        ring.push(ROUND, b"x" * 8, 1)
        seen.append(reader.next_seq - 1)

    assert seen == [1, 1, 1, 4, 4, 4, 7, 7, 7, 10]


def test_more_than_the_buffer_holds_is_written_before_its_time(tmp_path):
    ring = Ring.create(tmp_path / "big.ring", a_boot(), 1 << 21)
    reader = RingReader.open(ring.path)
    sizes = [10, 40_000, 10, 100_000, 32_744, 32_745, 10] * 3

    kept = [ring.push(ROUND, b"x" * size, 1) for size in sizes]
    ring.flush()
    records, gaps = drained(reader)

    assert all(kept)
    assert [len(record.payload) for record in records] == sizes
    assert gaps == []
    reader.close()
    ring.close()


def test_a_disk_that_takes_no_records_drops_them_and_they_are_counted(ring, reader, monkeypatch):
    pushed(ring, ROUND, b"a" * 8, 1)
    pwrite = os.pwrite

    def full(file, data, offset):
        if offset >= at.DATA:
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(file, data, offset)

    with monkeypatch.context() as disk:
        disk.setattr(os, "pwrite", full)
        for _ in range(3):
            ring.push(ROUND, b"lost", 1)
        ring.flush()
    pushed(ring, ROUND, b"b" * 8, 1)
    records, gaps = drained(reader)

    assert [record.seq for record in records] == [1, 5]
    assert gaps == [Gap(2, 3, "ring_full")]
    assert ring.dropped == reader.dropped == 3


def test_a_folder_that_is_gone_is_survived_and_the_ring_made_anew_once_it_is_back(tmp_path):
    rings = tmp_path / "rings"
    rings.mkdir()
    ring = Ring.create(rings / "a.ring", a_boot(), 4096)
    pushed(ring, ROUND, b"before", 1)

    shutil.rmtree(rings)
    ring._inspect_at = 0
    gone = pushed(ring, ROUND, b"meanwhile", 1)
    rings.mkdir()
    ring._inspect_at = 0
    pushed(ring, ROUND, b"after", 1)
    reader = RingReader.open(ring.path)
    records, gaps = drained(reader)

    assert gone
    assert [record.payload for record in records] == [b"after"]
    assert gaps == [Gap(1, 2, "corrupt")]
    reader.close()
    ring.close()


@pytest.mark.parametrize("damage", ["cut", "deleted", "replaced"])
def test_damage_under_a_living_writer_is_mended_within_a_second(ring, reader, monkeypatch, damage):
    now = [time.monotonic_ns()]
    monkeypatch.setattr("specscope_hook.ring.monotonic_ns", lambda: now[0])
    now[0] += 1_000_000_000
    pushed(ring, ROUND, b"x" * 8, 1)
    records, cursor, _ = reader.pull(Cursor(), 1 << 20)
    size = ring.path.stat().st_size

    if damage == "cut":
        os.truncate(ring.path, 0)
    elif damage == "deleted":
        ring.path.unlink()
    else:
        other = ring.path.with_name("other")
        other.write_bytes(b"not a ring")
        os.rename(other, ring.path)
    now[0] += 1_000_000_000
    pushed(ring, ROUND, b"y" * 8, 1)
    with_old_cursor, _, gaps = RingReader.open(ring.path).pull(cursor, 1 << 20)

    assert [record.seq for record in records] == [1]
    assert ring.path.stat().st_size == size
    assert [record.seq for record in with_old_cursor] == [2]
    assert gaps == []


def test_a_flipped_bit_in_boot_or_dictionary_is_seen_and_mended(ring, monkeypatch):
    ring.name_id(NAME_CLASS, "chat")
    ring.name_id(NAME_CLASS, "code")
    boot = RingReader.open(ring.path).boot
    first = at.NAMES + 9  # of the text of the first name
    for place in (at.BOOT + 20, first, at.NAMES + 1, at.W_NAMES * 8):
        with ring.path.open("r+b") as file:
            file.seek(place)
            (byte,) = file.read(1)
            file.seek(place)
            file.write(bytes([byte ^ 2]))
        if place == at.BOOT + 20:
            with pytest.raises(CorruptRing):
                RingReader.open(ring.path)
        elif place != at.W_NAMES * 8:
            with pytest.raises(RingError):
                RingReader.open(ring.path).names(NAME_CLASS)
        else:
            assert RingReader.open(ring.path).names(NAME_CLASS) == {0: "chat", 1: "code"}

        monkeypatch.setattr(ring, "_inspect_at", 0)
        ring.push(ROUND, b"x")
        ring.flush()

        reader = RingReader.open(ring.path)
        assert reader.boot == boot
        assert reader.names(NAME_CLASS) == {0: "chat", 1: "code"}
