"""The ring between two processes: nothing torn, nothing lost unseen, whoever is killed."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from zlib import crc32

import pytest

from specscope_hook.ring import Cursor, RingReader

WRITER = """
import sys
from zlib import crc32
sys.path.insert(0, sys.argv[3])
from hook_fakes import a_boot
from specscope_hook.ring import ROUND, Ring
ring = Ring.create(sys.argv[1], a_boot(), 1 << 20)
print("ready", flush=True)
total = int(sys.argv[2])
number = 0
while total < 0 or number < total:
    body = (number % 251).to_bytes(1, "little") * (number * 31 % 500)
    ring.push(ROUND, crc32(body).to_bytes(4, "little") + body, number % 1000)
    number += 1
ring.close()
"""


def writer(path: Path, count: int) -> subprocess.Popen:
    here = str(Path(__file__).parent)
    run = [sys.executable, "-c", WRITER, str(path), str(count), here]
    process = subprocess.Popen(run, stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    return process


def whole(record) -> bool:
    """Whether a record's own check, which is not the ring's, and its number agree."""
    number = record.seq - 1
    body = record.payload[4:]
    return (
        int.from_bytes(record.payload[:4], "little") == crc32(body)
        and len(body) == number * 31 % 500
        and record.batch == number % 1000
    )


def test_a_hundred_thousand_records_are_read_or_counted_as_dropped(tmp_path):
    count = 120_000
    process = writer(tmp_path / "a.ring", count)
    reader = RingReader.open(tmp_path / "a.ring")
    cursor, read, lost, torn = Cursor(), 0, 0, 0

    while True:
        over = reader.ended or not reader.writer_alive
        records, cursor, gaps = reader.pull(cursor, 1 << 18)
        reader.release(cursor)
        read += len(records)
        torn += sum(not whole(record) for record in records)
        lost += sum(gap.count for gap in gaps)
        assert all(gap.reason == "ring_full" for gap in gaps)
        if over and not records:
            break
    process.wait()

    assert torn == 0
    assert read + lost == count
    assert lost == reader.dropped
    assert cursor.next_seq == reader.next_seq == count + 1


@pytest.mark.parametrize("turn", range(5))
def test_a_writer_killed_in_the_middle_leaves_whole_records(tmp_path, turn):
    process = writer(tmp_path / "a.ring", -1)
    reader = RingReader.open(tmp_path / "a.ring")
    cursor, seqs, lost = Cursor(), [], 0
    until = time.monotonic() + random.Random(turn).uniform(0.02, 0.2)

    while time.monotonic() < until:
        records, cursor, gaps = reader.pull(cursor, 1 << 16)
        reader.release(cursor)
        assert all(map(whole, records))
        seqs += [record.seq for record in records]
        lost += sum(gap.count for gap in gaps)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    while True:
        records, cursor, gaps = reader.pull(cursor, 1 << 20)
        lost += sum(gap.count for gap in gaps)
        if not records:
            break
        assert all(map(whole, records))
        seqs += [record.seq for record in records]

    assert not reader.writer_alive
    assert not reader.ended
    assert seqs == sorted(set(seqs))
    assert len(seqs) + lost == cursor.next_seq - 1
    assert abs(reader.next_seq - cursor.next_seq) <= 1  # killed between the two words
