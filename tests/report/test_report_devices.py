"""Devices on the page: what they did, why they were slow, or why nobody knows."""

import time

import numpy as np
import pytest
from golden_traffic import Engine

from specscope.report.collect import collect
from specscope.report.phrases.evidence import without_devices
from specscope.report.quality import MOST_REPLICAS, device_rows
from specscope.report.render import to_html, write
from specscope.store.connection import Store
from specscope.store.migrate import migrate
from specscope_agent.loss import rows_table

SECOND = 10**9
POWER_LIMIT, IDLE, HEAT = 0x04, 0x01, 0x40


@pytest.fixture
def store(tmp_path):
    with Store.open(f"chdb://{tmp_path}/store") as opened:
        migrate(opened)
        yield opened


def sampled(store, replica, field, values, unit="1", reason="", uuid="GPU-0"):
    begin = time.time_ns() - 600 * SECOND
    rows = [
        {
            "replica": replica, "uuid": uuid, "field": field, "value": value, "unit": unit,
            "sampled_at": begin + place * SECOND, "reason": reason if value is None else "",
        }
        for place, value in enumerate(values)
    ]  # fmt: skip
    store.insert("device", rows_table("device", rows))


def booted(store, *replicas):
    begin = time.time_ns() - 600 * SECOND
    rows = [Engine(name, "e", 1).boot_row(begin) for name in replicas]
    store.insert("boot", rows_table("boot", rows))


def test_fields_are_means_over_all_samples_of_all_devices(store, tmp_path):
    booted(store, "r0", "r1")
    draw = np.random.default_rng(1)
    first, second = draw.uniform(200, 700, 100), draw.uniform(200, 700, 50)
    sampled(store, "r0", "power", first, "W")
    sampled(store, "r1", "power", second, "W")
    sampled(store, "r0", "dram_active", [0.25] * 100)
    sampled(store, "r1", "sm_active", [None] * 3, reason="needs Hopper or newer")
    sampled(store, "r1", "energy", [1e9, 2e9], "J")

    report = collect(store, title="x", since=time.time_ns() - 3600 * SECOND)

    rows = {row.field: row for row in report.devices}
    both = np.concatenate([first, second])
    assert rows["power"].mean == pytest.approx(both.mean())
    assert (rows["power"].low, rows["power"].high) == pytest.approx(
        tuple(np.quantile(both, [0.05, 0.95])), rel=1e-6
    )
    assert (rows["power"].devices, rows["dram_active"].devices) == (2, 1)
    assert (rows["sm_active"].mean, rows["sm_active"].reason) == (None, "needs Hopper or newer")
    assert "energy" not in rows
    page = to_html(report)
    assert '<td>memory busy</td><td class="n">25</td>' in page
    assert "Multiprocessors busy is not known: needs Hopper or newer" in page
    write(report, tmp_path)
    assert "memory busy 25 % (25 – 25)" in (tmp_path / "report.md").read_text()


def test_what_slowed_devices_down_is_a_share_of_samples(store):
    booted(store, "r0")
    sampled(store, "r0", "clock_event_reasons", [POWER_LIMIT] * 30 + [IDLE] * 70, "bits")
    sampled(store, "r0", "clock_event_reasons", [IDLE | HEAT, 0], "bits", uuid="GPU-1")
    sampled(store, "r0", "power", [300.0], "W")

    report = collect(store, title="x", since=time.time_ns() - 3600 * SECOND)

    rows = {row.cause: row for row in report.throttling}
    assert rows["power limit"].share == pytest.approx(30 / 102)
    assert (rows["power limit"].devices, rows["heat"].devices) == (1, 1)
    assert rows["hardware slowdown"].share == 0
    page = to_html(report)
    assert "power limit in 29 % of the samples on 1 of them" in page
    assert "hardware slowdown in" not in page


def test_without_a_device_the_page_says_why(store):
    booted(store, "r0")
    nothing = collect(store, title="x")
    sampled(store, "r0", "device", [None], reason="no driver library")

    report = collect(store, title="x")

    assert "No device was sampled" in without_devices(nothing)
    assert without_devices(report) in to_html(report)
    assert "no driver library" in without_devices(report)


def test_of_a_fleet_a_few_replicas_are_read(store):
    names = [f"r{number}" for number in range(40)]
    for name in names:
        sampled(store, name, "power", [300.0], "W")

    rows, _ = device_rows(store, 0, names)

    assert [row.devices for row in rows] == [MOST_REPLICAS]
    assert device_rows(store, 0, []) == ([], [])
