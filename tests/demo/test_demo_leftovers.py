"""What a killed demonstration left in memory is removed; what anybody uses is not."""

import os
import subprocess
import sys

import pytest

from specscope.doctor.leftovers import held, left_behind, sweep
from specscope_hook.boot import new_boot
from specscope_hook.ring import Ring
from specscope_hook.settings import HookSettings


@pytest.fixture
def dead():
    """The number of a process that is gone."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def folder_of(memory, pid):
    folder = memory / f"specscope-demo-{pid}"
    folder.mkdir()
    return folder


def ring_in(folder):
    boot = new_boot(HookSettings(None, "demo"), engine="x", engine_version="1", target="t")
    return Ring.create(folder / "demo-1.ring", boot, 4096)


def test_a_folder_of_a_process_that_is_gone_is_removed_with_its_rings(tmp_path, dead):
    folder = folder_of(tmp_path, dead)
    ring_in(folder).close()
    assert list(folder.iterdir())

    assert sweep(tmp_path) == [folder]
    assert not folder.exists()
    assert sweep(tmp_path) == []


def test_a_folder_of_a_process_that_runs_is_left(tmp_path):
    folder_of(tmp_path, os.getpid())

    assert sweep(tmp_path) == []


def test_a_ring_that_somebody_writes_is_left(tmp_path, dead):
    ring = ring_in(folder_of(tmp_path, dead))

    assert left_behind(tmp_path) == []
    ring.close()
    assert left_behind(tmp_path) != []


def test_a_folder_that_is_held_is_left_whatever_its_number_means_here(tmp_path, dead):
    folder = tmp_path / f"specscope-demo-{dead}"

    with held(folder):
        assert left_behind(tmp_path) == []

    assert not folder.exists()


def test_what_is_not_of_a_demonstration_is_left(tmp_path, dead):
    for name in ("specscope-demo-", "specscope-demo-notes", f"other-{dead}"):
        (tmp_path / name).mkdir()
    (tmp_path / f"specscope-demo-{dead}").write_text("no folder")

    assert sweep(tmp_path) == []
