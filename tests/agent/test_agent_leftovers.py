"""Restarts without a sidecar: what they leave is bounded, and counted once there is one."""

import os
import types

import pytest
from rounds import one_round
from test_agent_damage import spooled

from specscope_agent.agent import Agent
from specscope_agent.settings import AgentSettings
from specscope_hook.attach import attach
from specscope_hook.boot import new_boot
from specscope_hook.leftovers import MOST_RINGS
from specscope_hook.settings import HookSettings

RING_BYTES = 1 << 20
HEADER_BYTES = 200_000


@pytest.fixture
def rings(tmp_path):
    folder = tmp_path / "rings"
    folder.mkdir()
    return folder


def started(rings, rounds):
    """A serving process that records so many rounds."""
    settings = HookSettings(rings=rings, replica="r0", ring_bytes=RING_BYTES)
    boot = new_boot(settings, engine="e", engine_version="1", target="t")
    ring, recorder = attach(settings, boot)
    for _ in range(rounds):
        one_round(recorder)
    return ring, recorder


def held_bytes(rings):
    return sum(path.stat().st_blocks * 512 for path in rings.iterdir())


def test_restarts_without_a_sidecar_are_bounded_and_counted(rings, tmp_path):
    restarts, rounds = 20, 100
    for _ in range(restarts):
        _, recorder = started(rings, rounds)
        recorder.close()
    held = held_bytes(rings)

    agent = Agent(AgentSettings(rings=rings, spool=tmp_path / "spool", spool_bytes=1 << 30))
    for _ in range(6):
        agent.tick()
    seqs, losses = spooled(agent)
    agent.close()
    lost = sum(row["count"] for row in losses)

    assert held < (MOST_RINGS + 1) * RING_BYTES + restarts * HEADER_BYTES
    assert len(seqs) + lost == restarts * rounds
    assert len(seqs) >= MOST_RINGS * rounds
    assert {row["reason"] for row in losses} == {"corrupt"}


def test_a_ring_of_a_living_writer_is_left_alone(rings, tmp_path):
    living = [started(rings, 50) for _ in range(5)]

    assert all(ring.path.stat().st_size > RING_BYTES for ring, _ in living)
    for _, recorder in living:
        recorder.close()


def test_rings_that_were_drained_go_first(rings, tmp_path):
    _, first = started(rings, 50)
    first.close()
    ring, drained = started(rings, 50)
    drained.close()
    with ring.path.open("r+b") as file:  # what a sidecar does, which then died
        file.seek(32)
        written = file.read(8)
        file.seek(40)
        file.write(written)

    for _ in range(MOST_RINGS):
        started(rings, 50)[1].close()
    whole = {path for path in rings.iterdir() if path.stat().st_size > RING_BYTES}

    assert ring.path not in whole
    assert len(whole) == MOST_RINGS + 1


def test_a_folder_of_its_own_file_system_is_filled_by_half_and_has_room_for_the_next(
    rings, monkeypatch
):
    size = 3 * RING_BYTES
    disk = types.SimpleNamespace(f_frsize=1)

    def statvfs(_):
        disk.f_blocks, disk.f_bavail = size, size - held_bytes(rings)
        return disk

    monkeypatch.setattr("specscope_hook.leftovers.os.statvfs", statvfs)
    for _ in range(5):
        started(rings, 10)[1].close()
        assert held_bytes(rings) < size

    whole = [path for path in rings.iterdir() if path.stat().st_size > RING_BYTES]
    assert len(whole) == 2


def test_what_is_no_ring_holds_up_no_start(rings):
    os.mkfifo(rings / "a.ring")
    (rings / "b.ring").mkdir()
    (rings / "c.ring").symlink_to("/dev/zero")
    (rings / "d.ring").write_bytes(b"x")

    ring, recorder = started(rings, 1)

    assert ring.path.exists()
    recorder.close()
