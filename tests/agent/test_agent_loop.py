"""The loop, turn by turn: nothing recorded is without a row or a loss."""

from __future__ import annotations

import fcntl
import os
import time
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from agent_support import Traffic, a_boot, ring_at

from specscope.service.server import MESSAGE_BYTES
from specscope_agent.agent import Agent
from specscope_agent.guardrail import Held
from specscope_agent.settings import AgentSettings
from specscope_agent.source import Source
from specscope_agent.ticks import ticks
from specscope_agent.transpose import transpose
from specscope_agent.wire import decode
from specscope_hook.recorder import Recorder


@pytest.fixture
def rings(tmp_path):
    folder = tmp_path / "rings"
    folder.mkdir()
    return folder


@pytest.fixture
def agent(rings):
    agents = []

    def start(spool_bytes=1 << 30):
        settings = AgentSettings(rings=rings, spool=rings.parent / "spool", spool_bytes=spool_bytes)
        agents.append(Agent(settings))
        return agents[-1]

    yield start
    for each in agents:
        each.close()


def spooled(agent, source):
    """Rows in the spool by table, and its losses."""
    rows, losses, number = Counter(), [], 0
    while number := agent.spool.next_waiting(source, number):
        for table in agent.spool.take(source, number).tables:
            rows[table.name] += table.rows
            if table.name == "loss":
                losses += decode(table.arrow).to_pylist()
    return rows, losses


def lost(losses, table):
    return sum(loss["count"] for loss in losses if loss["table"] == table)


def test_recorded_is_spooled_and_lost_whatever_overflows(rings, agent):
    ring = ring_at(rings, a_boot(), 1 << 16)
    traffic = Traffic(Recorder(ring, salt=b"s"), np.random.default_rng(1))
    running = agent(spool_bytes=400_000)

    for turn in range(120):
        for _ in range(1 + turn % 40):
            traffic.round(8)
        running.tick()
    running.tick()

    rows, losses = spooled(running, running.rings.open[0].source)
    recorded = running.rings.open[0].reader.next_seq - 1
    records = rows["round"] + rows["request"]
    in_spool = lost(losses, "round") + lost(losses, "request")
    in_ring = (
        running.rings.open[0].reader.next_seq
        - running.spool.newest(running.rings.open[0].source).cursor.next_seq
    )
    assert lost(losses, "round") > 0
    assert records + in_spool + lost(losses, "ring") + in_ring == recorded
    ring.close()


def test_a_full_spool_leaves_records_in_the_ring_until_there_is_room(rings, agent):
    ring = ring_at(rings, a_boot())
    traffic = Traffic(Recorder(ring, salt=b"s"), np.random.default_rng(2))
    running = agent(spool_bytes=16_384)
    while running.spool.has_room:
        traffic.round(3)
        running.tick()
    source = running.rings.open[0].source
    held = running.spool.newest(source)

    traffic.round(3)
    running.tick()
    assert running.spool.newest(source) == held
    running.spool.resume(source, held.number, held.cursor.next_seq)
    running.tick()

    assert running.spool.newest(source).number == held.number + 1
    assert ring.dropped == 0
    ring.close()


def test_the_cursor_is_the_truth_when_the_ring_was_not_released(rings, agent):
    ring = ring_at(rings, a_boot())
    traffic = Traffic(Recorder(ring, salt=b"s"), np.random.default_rng(3))
    first = agent()
    first.rings.refresh()
    first.rings.open[0].reader.release = lambda cursor: None
    for _ in range(10):
        traffic.round(2)
    first.tick()
    first.close()

    again = agent()
    for _ in range(5):
        traffic.round(2)
    again.tick()

    rows, losses = spooled(again, again.rings.open[0].source)
    assert (rows["round"], losses) == (15, [])
    ring.close()


def test_the_boot_is_said_again_when_the_disk_spoils_the_batch_that_said_it(rings, agent):
    ring = ring_at(rings, a_boot())
    traffic = Traffic(Recorder(ring, salt=b"s"), np.random.default_rng(8))
    first = agent()
    for _ in range(3):
        traffic.round(2)
        first.tick()
    first.close()
    (rings.parent / "spool").glob("*/*0001.batch").__next__().write_bytes(b"")

    again = agent()
    traffic.round(2)
    again.tick()

    rows, losses = spooled(again, again.rings.open[0].source)
    assert rows["boot"] == 1
    recorded = again.rings.open[0].reader.next_seq - 1
    assert rows["round"] + rows["request"] + lost(losses, "ring") == recorded
    ring.close()


def test_a_ring_that_its_writer_closed_is_said_to_have_ended_once_and_then_removed(rings, agent):
    boot = a_boot()
    ring = ring_at(rings, boot)
    Traffic(Recorder(ring, salt=b"s"), np.random.default_rng(9)).round(2)
    ring.close()
    running, source = agent(), Source(boot.replica, boot.boot)

    for _ in range(6):
        running.tick()

    said = [
        row["ended_at"] is not None
        for table in tables_of(running, source)
        if table.name == "boot"
        for row in decode(table.arrow).to_pylist()
    ]
    assert said == [False, True]
    assert ring.path.exists()
    newest = running.spool.newest(source)
    running.spool.resume(source, newest.number, newest.cursor.next_seq)
    running.tick()
    assert not ring.path.exists()


def tables_of(agent, source):
    number = 0
    while number := agent.spool.next_waiting(source, number):
        yield from agent.spool.take(source, number).tables


def test_a_ring_that_vanished_with_its_machine_is_an_unknown_tail(rings, agent, monkeypatch):
    boot = a_boot()
    ring = ring_at(rings, boot)
    Traffic(Recorder(ring, salt=b"s"), np.random.default_rng(4)).round(2)
    first = agent()
    first.tick()
    first.close()
    ring.close()
    ring.path.unlink()

    again = agent()
    again.tick()
    again.tick()
    assert spooled(again, Source(boot.replica, boot.boot))[1] == []  # it may be made anew

    monkeypatch.setattr("specscope_agent.drain.ORPHAN_S", 0.0)
    again.tick()
    again.tick()

    _, losses = spooled(again, Source(boot.replica, boot.boot))
    assert [loss["reason"] for loss in losses] == ["tail_unknown"]


@pytest.mark.parametrize("there", [None, b"cut"])
def test_a_ring_whose_file_is_gone_or_damaged_again_is_waited_for(rings, agent, monkeypatch, there):
    boot = a_boot()
    ring = ring_at(rings, boot)
    traffic = Traffic(Recorder(ring, salt=b"s"), np.random.default_rng(4))
    traffic.round(2)
    sidecar = agent()
    sidecar.tick()
    whole = ring.path.read_bytes()
    ring.path.unlink()
    os.close(ring._file)  # as its writer does when it makes the ring anew
    if there:
        ring.path.write_bytes(there)

    for _ in range(4):
        sidecar.tick()
    source = Source(boot.replica, boot.boot)
    assert spooled(sidecar, source)[1] == []

    if there:  # mended
        ring.path.write_bytes(whole)
        sidecar.tick()
        assert sidecar.rings.open[0].reader.in_place
    else:
        monkeypatch.setattr("specscope_agent.drain.ORPHAN_S", 0.0)
        sidecar.tick()
        assert [row["reason"] for row in spooled(sidecar, source)[1]] == ["tail_unknown"]


def test_a_file_that_is_no_ring_is_said_once_and_stops_nobody(rings, agent, caplog):
    (rings / "junk.ring").write_bytes(b"x" * 500_000)
    ring = ring_at(rings, a_boot())
    Traffic(Recorder(ring, salt=b"s"), np.random.default_rng(5)).round(2)
    running = agent()

    for _ in range(3):
        running.tick()

    assert len(running.rings.open) == 1
    assert sum("junk.ring" in record.message for record in caplog.records) == 1
    assert (rings / "junk.ring").exists()
    ring.close()


def test_a_directory_that_is_not_there_yet_is_waited_for(rings, agent):
    rings.rmdir()
    running = agent()
    running.tick()

    rings.mkdir()
    ring = ring_at(rings, a_boot())
    running.tick()

    assert len(running.rings.open) == 1
    ring.close()


def test_a_record_that_cannot_be_made_into_rows_stops_none_beside_it(rings, agent, monkeypatch):
    ring = ring_at(rings, a_boot())
    traffic = Traffic(Recorder(ring, salt=b"s"), np.random.default_rng(6))
    for _ in range(40):
        traffic.round(2)
    bad = 21
    running = agent()

    def refusing(records, *more, **named):
        if any(record.seq == bad for record in records):
            raise pa.ArrowInvalid("a planted fault")
        return transpose(records, *more, **named)

    monkeypatch.setattr("specscope_agent.cut.transpose", refusing)
    for _ in range(12):
        running.tick()

    rows, losses = spooled(running, running.rings.open[0].source)
    assert [(x["reason"], x["first_seq"], x["count"]) for x in losses] == [("corrupt", bad, 1)]
    assert rows["round"] + rows["request"] + 1 == running.rings.open[0].reader.next_seq - 1
    ring.close()


def test_a_disk_that_fails_for_a_while_loses_nothing(rings, agent, monkeypatch):
    ring = ring_at(rings, a_boot())
    traffic = Traffic(Recorder(ring, salt=b"s"), np.random.default_rng(7))
    running = agent()
    traffic.round(2)

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr("specscope_agent.files.os.fsync", full)
        running.tick()
    traffic.round(2)
    running.tick()

    rows, losses = spooled(running, running.rings.open[0].source)
    assert (rows["round"], losses) == (2, [])
    ring.close()


class Stopwatch:
    """A stop event whose waiting takes no time, with the clock that it moves, in ms."""

    def __init__(self, monkeypatch):
        self.now, self.stopped = 0, False
        monkeypatch.setattr("specscope_agent.ticks.time.monotonic", lambda: self.now / 1000)

    def is_set(self):
        return self.stopped

    def wait(self, seconds):
        self.now += round(seconds * 1000)
        return self.stopped


def test_deadlines_are_absolute_and_late_ones_are_said(monkeypatch):
    stop, seen = Stopwatch(monkeypatch), []

    for late in ticks(0.05, stop):
        seen.append((stop.now, late))
        stop.now += 130 if len(seen) == 2 else 10
        stop.stopped = len(seen) == 5

    # The work of the second turn outlasts the deadlines at 100 and 150 ms.
    assert seen == [(0, False), (50, False), (180, True), (200, False), (250, False)]


def test_a_guardrail_that_fired_is_said_once_a_boot_even_by_the_next_agent(rings, agent):
    boot = a_boot()
    traffic = Traffic(Recorder(ring_at(rings, boot), salt=b"s"), np.random.default_rng(1))
    held = Held(
        policy=3, fired_at=1_790_000_000 * 10**9, until=1_790_001_800 * 10**9, reason="slow"
    )

    def said(running):
        traffic.round(4)
        running.guardrail.held = held
        running.tick()
        running.tick()
        _, losses = spooled(running, Source(boot.replica, boot.boot))
        return [loss for loss in losses if loss["reason"] == "guardrail"]

    first = agent()
    found = said(first)
    first.close()
    second = agent()
    again = said(second)

    assert found == again  # the same batch still waits, and no other says it
    (loss,) = found
    assert (loss["table"], loss["count"]) == ("block", 1)
    assert loss["lost_at"].value == held.fired_at
    assert loss["detail"] == held.detail


def test_a_boot_that_no_table_takes_stops_no_other_ring(rings, agent, caplog):
    ring_at(rings, a_boot("odd", k_max=300))
    ring = ring_at(rings, a_boot())
    Traffic(Recorder(ring, salt=b"s"), np.random.default_rng(8)).round(2)
    running = agent()

    for _ in range(3):
        running.tick()

    (open_,) = running.rings.open
    assert open_.source.replica == "r0"
    assert spooled(running, open_.source)[0]["round"] == 1
    assert running.rings.refused == 1
    assert "the boot record of" in caplog.text


@pytest.mark.parametrize("kept", [b"\xff\xfe", b"{", b'{"policy": 99999999999}'])
def test_a_kept_policy_that_cannot_be_read_stops_no_agent(rings, agent, kept):
    (rings.parent / "spool").mkdir()
    (rings.parent / "spool" / "policy.json").write_bytes(kept)

    running = agent()
    running.tick()

    assert running.policies.number == 0


def test_the_largest_round_goes_up_in_one_batch_that_the_service_takes(rings, agent):
    ring = ring_at(rings, a_boot())
    recorder, rng = Recorder(ring, salt=b"s"), np.random.default_rng(9)
    batch = 0xFFFF
    values = {name: rng.integers(0, 255, batch, np.uint8) for name in ("k", "classes")}
    recorder.round(
        started_at=1_790_000_000_000_000_000,
        wall_us=1e6,
        requests=rng.integers(1, 1 << 63, batch, np.uint64),
        contexts=rng.integers(0, 1 << 32, batch, np.uint32),
        accepted=values["k"] // 2,
        emitted=values["k"] // 2 + 1,
        ends=np.zeros(batch, np.uint8),
        **values,
    )
    running = agent()

    running.tick()

    source = running.rings.open[0].source
    sent = running.spool.take(source, 1)
    assert (sent.rows("round"), sent.rows("request_part")) == (1, batch)
    assert sum(len(table.arrow) for table in sent.tables) < MESSAGE_BYTES
    ring.close()


def test_of_two_sidecars_at_one_directory_the_second_waits_and_then_goes_on(rings, caplog):
    def a_sidecar(name):
        settings = AgentSettings(rings=rings, spool=rings.parent / name, spool_bytes=1 << 30)
        return Agent(settings)

    ring = ring_at(rings, a_boot())
    traffic = Traffic(Recorder(ring, salt=b"s"), np.random.default_rng(10))
    first, second = a_sidecar("one"), a_sidecar("two")
    for each in (first, second, first, second):
        traffic.round(2)
        each.tick()

    assert len(first.rings.open) == 1
    assert (second.rings.open, second.spool.sources) == ([], ())
    assert sum("another sidecar" in record.message for record in caplog.records) == 1
    source, drained = first.rings.open[0].source, first.rings.open[0].reader.next_seq - 1
    first.close()
    traffic.round(2)
    second.tick()
    rows, losses = spooled(second, source)
    assert rows["round"] > 0
    assert [(x["reason"], x["first_seq"]) for x in losses] == [("corrupt", 1)]
    assert losses[0]["count"] <= drained
    second.close()
    ring.close()


def test_a_ring_that_was_never_finished_is_removed_once_its_writer_is_gone(
    rings, agent, monkeypatch
):
    left, being_made, young = (rings / f"{n}.ring.new" for n in ("left", "being-made", "young"))
    for path in (left, being_made):
        path.write_bytes(b"x" * 4096)
    writer = os.open(being_made, os.O_RDWR)
    fcntl.flock(writer, fcntl.LOCK_EX)
    running = agent()
    ahead = time.time() + 3600
    monkeypatch.setattr("specscope_agent.rings.time.time", lambda: ahead)
    running.tick()

    monkeypatch.undo()
    young.write_bytes(b"x")
    running.tick()

    assert sorted(path.name for path in rings.iterdir()) == [being_made.name, young.name]
    os.close(writer)
