"""Device samples: a value or the reason why there is none, and never a crash.

The driver is a small library of ours that plays real machines; the bindings are NVIDIA's.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from specscope_agent.sampler import MEAN_GAP_S, Sampler, gap_s
from specscope_agent.windows import Window

SOURCE = Path(__file__).with_name("simulated_nvml.c")

SCRIPT = """
import ctypes, json, sys, time
from specscope_agent.nvml import close_gpus
from specscope_agent.sampler import Sampler
passed_ms = 0
time.monotonic = lambda: passed_ms / 1e3
time.time_ns = lambda: 1_790_000_000_000_000_000 + passed_ms * 1_000_000
sampler, turns = Sampler(), []
for _ in range(int(sys.argv[1])):  # argv: turns, ms between them, devices
    sampler.sample()
    turns.append([reading._asdict() for reading in sampler.take()])
    passed_ms += int(sys.argv[2])
windows = sampler.windows(sys.argv[3:])
close_gpus(sampler._gpus)
try:
    driver = ctypes.CDLL("libnvidia-ml.so.1")
    left = driver.simulated_samples(), driver.simulated_opens()
except (OSError, AttributeError):
    left = None
print(json.dumps({"turns": turns, "windows": windows, "left": left}))
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to build the simulated driver with")
    folder = tmp_path_factory.mktemp("nvml")
    target = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-Wall", "-shared", "-fPIC", "-o", target, SOURCE], check=True)
    return folder


def played(machine, folder=None, turns=2, uuids=(), step_ms=120):
    """What the sampler reads on a machine, turn by turn."""
    environment = os.environ | {"SIMULATED_NVML": machine}
    if folder:
        environment["LD_LIBRARY_PATH"] = str(folder)
    command = [sys.executable, "-c", SCRIPT, str(turns), str(step_ms), *uuids]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def by_field(turn, uuid="GPU-0"):
    return {reading["field"]: reading for reading in turn if reading["uuid"] == uuid}


def test_hopper_reports_activity_over_a_window(library):
    first, second = played("hopper", library)["turns"]

    assert "dram_active" not in by_field(first)
    dram = by_field(second)["dram_active"]
    assert (dram["value"], dram["unit"], dram["reason"]) == (0.625, "1", "")
    assert dram["window_ms"] == pytest.approx(120)
    assert by_field(second)["pcie_sent"]["value"] == 3 * 1024**2
    power = by_field(second)["power"]
    assert (power["value"], power["unit"], power["window_ms"]) == (412.5, "W", None)


def test_a_link_that_a_device_lacks_is_a_reason_and_the_rest_stands(library):
    _, second = played("hopper", library)["turns"]

    link = by_field(second)["nvlink_sent"]
    assert (link["value"], link["reason"]) == (None, "not supported by this device")


def test_windows_adjoin_and_are_means_over_the_named_devices(library):
    windows = [Window(*w) for w in played("hopper", library, 4)["windows"]]

    assert [window.dram_active for window in windows] == [0.625] * 3
    for before, after in itertools.pairwise(windows):
        assert abs(after.began_at - before.ended_at) < 1000  # ns, of rounding
    assert played("hopper", library, 2, ["GPU-of-another"])["windows"] == []


def test_a_device_before_hopper_says_what_it_cannot_tell(library):
    first, _ = played("ampere", library)["turns"]

    dram = by_field(first)["dram_active"]
    assert (dram["value"], dram["reason"]) == (None, "needs Hopper or newer")
    assert by_field(first)["gpu_utilisation"]["value"] == 0.8
    assert by_field(first)["sm_clock"]["value"] == 1755


def test_a_reason_is_said_once_and_not_every_second(library):
    _first, second, third = played("ampere", library, 3)["turns"]

    assert [r["field"] for r in second + third if r["reason"]] == []
    assert by_field(third)["power"]["value"] == 412.5


def test_a_reason_said_while_nobody_served_is_said_again_to_the_first_who_does():
    sampler = Sampler()
    sampler.sample()
    sampler.forget()

    sampler.sample()

    assert [bool(reading.reason) for reading in sampler.take()] == [True]


def test_mig_instances_are_read_apart(library):
    _, second = played("mig", library)["turns"]

    for uuid, instance in (("MIG-3", 3), ("MIG-5", 5)):
        dram = by_field(second, uuid)["dram_active"]
        assert (dram["value"], dram["gpu_instance"]) == (instance / 10, instance)
    assert "dram_active" not in by_field(second, "GPU-0")


def test_under_mig_utilisation_is_a_reason(library):
    first, _ = played("mig", library)["turns"]

    assert by_field(first)["gpu_utilisation"]["reason"] == "not supported by this device"
    assert by_field(first)["power"]["value"] == 412.5


def test_without_permission_every_field_says_so(library):
    first, _ = played("denied", library)["turns"]

    readings = by_field(first)
    assert {reading["reason"] for reading in readings.values()} == {"no permission"}
    assert {"dram_active", "power", "sm_clock"} <= set(readings)


def test_a_device_that_falls_off_the_bus_is_said_and_survived(library):
    turns = played("lost", library, 6)["turns"]

    assert by_field(turns[1])["dram_active"]["value"] == 0.625
    after = by_field(turns[3])
    assert (after["power"]["value"], after["power"]["reason"]) == (None, "device lost")
    assert after["dram_active"]["reason"] == "device lost"
    assert {reading["reason"] for reading in turns[4]} == {"device lost"}
    assert turns[5] == []


def test_a_device_that_cannot_be_opened_does_not_hide_the_others(library):
    first, second = played("half", library)["turns"]

    lost = [(r["uuid"], r["field"], r["reason"]) for r in first if r["reason"] == "device lost"]
    assert lost == [("device 0", "device", "device lost")]
    assert by_field(second)["dram_active"]["value"] == 0.625


@pytest.mark.parametrize(
    ("machine", "reason"), [("empty", "no device visible"), ("broken", "driver not loaded")]
)
def test_a_machine_without_a_device_says_why(library, machine, reason):
    first, second = played(machine, library)["turns"]

    assert [(r["uuid"], r["field"], r["value"], r["reason"]) for r in first] == [
        ("", "device", None, reason)
    ]
    assert second == []


def test_a_machine_without_a_driver_says_so():
    if shutil.which("nvidia-smi"):
        pytest.skip("this machine has a driver")

    first, _ = played("none")["turns"]

    assert [r["reason"] for r in first] == ["no driver library"]


@pytest.mark.parametrize(
    "machine", ["hopper", "mig", "lost", "reset", "remig", "grow", "half", "poor", "denied"]
)
def test_everything_is_given_back_to_the_driver(library, machine):
    assert played(machine, library, 12, step_ms=20_000)["left"] == [0, 0]


@pytest.mark.parametrize("machine", ["empty", "broken"])
def test_a_driver_without_a_device_is_not_held_open(library, machine):
    left = played(machine, library, 12, step_ms=20_000)["left"]

    assert left[1] <= 0  # the script itself closes once more


def test_a_driver_that_is_loaded_anew_is_found_again(library):
    turns = played("reset", library, 9, step_ms=20_000)["turns"]

    silent, again = turns[3], turns[-1]
    assert by_field(silent)["power"]["value"] is None
    assert by_field(again)["power"]["value"] == 412.5
    assert by_field(again)["dram_active"]["value"] == 0.625


def test_instances_that_were_made_while_it_ran_are_found_and_old_ones_dropped(library):
    turns = played("remig", library, 9, step_ms=20_000)["turns"]

    assert {r["uuid"] for r in turns[2]} == {"GPU-0", "MIG-3", "MIG-5"}
    assert {r["uuid"] for r in turns[-1]} == {"GPU-0", "MIG-5", "MIG-7"}
    assert by_field(turns[-1], "MIG-7")["dram_active"]["value"] == pytest.approx(0.7)


def test_a_device_that_came_while_it_ran_is_found(library):
    turns = played("grow", library, 9, step_ms=20_000)["turns"]

    assert {r["uuid"] for r in turns[2]} == {"GPU-0"}
    assert {r["uuid"] for r in turns[-1]} == {"GPU-0", "GPU-1"}


def test_without_room_for_samples_the_rest_of_the_device_stands(library):
    first, _ = played("poor", library)["turns"]

    assert by_field(first)["power"]["value"] == 412.5
    assert by_field(first)["dram_active"]["reason"] != ""


def test_what_the_driver_says_is_not_available_is_no_value(library):
    first, second = played("shared", library)["turns"]

    memory, dram = by_field(first)["memory_used"], by_field(second)["dram_active"]
    assert (memory["value"], memory["reason"]) == (None, "not supported by this device")
    assert (dram["value"], dram["reason"]) == (None, "no data in the window")
    assert by_field(second)["sm_active"]["value"] == 0.25


@pytest.mark.parametrize("named", ["0", "GPU-0"])
def test_a_device_is_the_same_by_cudas_name_and_by_nvmls(library, named):
    windows = played("hopper", library, 3, [named])["windows"]

    assert len(windows) == 2


def test_a_driver_that_answers_nonsense_ends_no_sampling(monkeypatch):
    sampler = Sampler()
    turns = itertools.count()
    twice = threading.Event()

    def nonsense():
        if next(turns) > 1:
            twice.set()
        raise UnicodeDecodeError("utf-8", b"x", 0, 1, "planted")

    monkeypatch.setattr(sampler, "sample", nonsense)
    monkeypatch.setattr("specscope_agent.sampler.gap_s", lambda _: 0.001)
    sampler.start()

    assert twice.wait(60)
    sampler.close(60)
    (reading,) = sampler.take()
    assert (reading.field, reading.value) == ("device", None)
    assert "planted" in reading.reason


def test_gaps_are_exponential_around_a_second_and_never_within_the_refresh():
    draws = (np.arange(100_000) + 0.5) / 100_000

    gaps = np.array([gap_s(draw) for draw in draws])

    assert gaps.mean() == pytest.approx(MEAN_GAP_S, rel=1e-3)
    assert gaps.min() >= 0.1
    beyond = gaps - 0.1
    assert beyond.std() == pytest.approx(beyond.mean(), rel=1e-2)
